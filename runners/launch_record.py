"""What a launch writes into its directory, so that it can be recognised when only its files and processes are left.

``engine.json`` names study, launch, port and processes; ``engine.log`` beside it takes the engine's output. The API key
is in neither.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

LOG_NAME = "engine.log"
RECORD_NAME = "engine.json"
_SECRET_FLAGS = ("--api-key", "--hf-token")


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """The content of engine.json.

    Attributes:
        study: Marker of the study.
        launch: Id of the launch.
        port: Where the engine listens, on 127.0.0.1.
        argv: The engine's command, secrets left out.
        created_at: Unix seconds.
        pid: The engine's main process; None before it is started.
        supervisor_pid: Its supervisor; None before it is started.
    """

    study: str
    launch: str
    port: int
    argv: tuple[str, ...]
    created_at: float
    pid: int | None = None
    supervisor_pid: int | None = None

    def write(self, directory: Path) -> None:
        """Replace engine.json in one step, so that nobody ever reads half of it."""
        partial = directory / f"{RECORD_NAME}.partial"
        partial.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        partial.replace(directory / RECORD_NAME)


def read_marker(directory: Path) -> tuple[str, str] | None:
    """Study and launch that engine.json names; None when there is none or it is somebody else's."""
    try:
        record = json.loads((directory / RECORD_NAME).read_bytes())
        return str(record["study"]), str(record["launch"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def argv_without_secrets(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command with the values of secret flags replaced."""
    shown = []
    for position, argument in enumerate(argv):
        name, equals, _ = argument.partition("=")
        if name in _SECRET_FLAGS and equals:
            shown.append(f"{name}=[redacted]")
        elif position and argv[position - 1] in _SECRET_FLAGS:
            shown.append("[redacted]")
        else:
            shown.append(argument)
    return tuple(shown)
