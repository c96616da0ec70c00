"""What a test of whole studies needs: a pair of checkpoints, traffic, a small space, and `tune` as a process.

Everything is real but the engine's clockwork: `tune` and the simulated engines are processes, the files are files.
Only configs of the checkpoints exist, because nothing here reads weights.
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from runners import EngineProcess, find_engines
from tuner.store import Store

TUNE = Path(sys.executable).with_name("tune")
ENGINE_COMMAND = f"{shlex.quote(sys.executable)} -P -m runners.simulated serve"
# A step takes 10 ms: slow enough that HTTP does not count, fast enough that a replay takes a second.
TIME_SCALE = "1"
# A route that is neither a file name nor one of MLflow's names, and what its profile is called.
CHAT_ROUTE = "chat+客服 (v2)"
CHAT = "chat-v2"

SPACE = """\
name: small
extends: quick
knobs:
  num_speculative_tokens: {choices: [3, 7, 15]}
  disable_eagle_block_drop: {remove: true}
seeds: []
"""


@dataclass(frozen=True, slots=True)
class Desk:
    """The inputs of a study and the command line that runs one."""

    directory: Path

    @property
    def workload(self) -> Path:
        """Two routes, `code` at temperature 0 and a chat at 0.8, 12 requests each, one a session."""
        return self.directory / "api_traffic.jsonl"

    @property
    def target(self) -> Path:
        """Directory of the target's config.json."""
        return self.directory / "target"

    @property
    def draft(self) -> Path:
        """Directory of the draft's config.json."""
        return self.directory / "draft"

    @property
    def space(self) -> Path:
        """Method, K of 3, 7 or 15, prefix caching."""
        return self.directory / "space.yaml"

    def lay_out(self) -> "Desk":
        """Writes all inputs."""
        write_checkpoint(self.target, architectures=["Qwen3ForCausalLM"], num_hidden_layers=32)
        write_checkpoint(self.draft, **DRAFT_CONFIG)
        self.space.write_text(SPACE, encoding="utf-8")
        write_workload(self.workload, [line(n, route) for n in range(12) for route in ("code", CHAT_ROUTE)])
        return self

    def options(self, study: str, out: Path, **changes: str | None) -> list[str]:
        """Options of a small study; a change of None leaves an option out, underscores become dashes."""
        options: dict[str, str | None] = {
            "workload": str(self.workload),
            "model": str(self.target),
            "draft": str(self.draft),
            "engine-command": ENGINE_COMMAND,
            "engine-version": "0.32.0",
            "engine-args": "--max-model-len 2048 --enable-prompt-tokens-details",
            "space": str(self.space),
            "load": "concurrency=2",
            "trials": "3",
            "rounds": "2",
            "finalists": "1",
            "blocks": "2",
            "study": study,
            "out": str(out),
        }
        options |= {name.replace("_", "-"): value for name, value in changes.items()}
        return [word for name, value in options.items() if value is not None for word in (f"--{name}", value)]


class FinishedStudy(BaseModel):
    """A study that ran to its end, and what it said."""

    out: Path
    study: str
    desk: Path
    returncode: int
    stdout: str
    stderr: str

    @property
    def directory(self) -> Path:
        """The study's own directory."""
        return self.out / self.study

    def store(self) -> Store:
        """Its files."""
        return Store.open(self.out, self.study)


def engines_of(out: Path, study: str) -> list[EngineProcess]:
    """Living processes of a study's launches; the directory tells studies of one name apart."""
    place = hashlib.sha256(str((out / study).absolute()).encode()).hexdigest()[:8]
    return list(find_engines(f"{study}-{place}"))


DRAFT_CONFIG: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "num_hidden_layers": 2,
    "block_size": 16,
    "dflash_config": {"mask_token_id": 4095, "target_layer_ids": [1, 8, 15, 22, 30]},
}


def write_checkpoint(directory: Path, **config: Any) -> Path:
    """A checkpoint's directory with a config.json alone."""
    directory.mkdir(parents=True, exist_ok=True)
    shape = {"hidden_size": 128, "vocab_size": 4096, "max_position_embeddings": 4096}
    (directory / "config.json").write_text(json.dumps({**shape, **config}), encoding="utf-8")
    return directory


def line(number: int, route: str, *, at_s: float | None = None, **body: Any) -> dict[str, Any]:
    """One recorded request of the native format."""
    prompt = f"def task_{number}(values):\n    return" if route == "code" else f"Tell me about number {number}, please."
    request: dict[str, Any] = {
        "id": f"{route}-{number}",
        "route": route,
        "timestamp_s": number * 0.1 if at_s is None else at_s,
        "body": {
            "model": "any",
            "prompt": prompt,
            "max_tokens": 32,
            "temperature": 0 if route == "code" else 0.8,
            **body,
        },
    }
    return request


def write_workload(path: Path, lines: list[dict[str, Any]]) -> Path:
    """A workload in the native format."""
    path.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    return path


def environment(**additions: str) -> dict[str, str]:
    """The environment of a `tune` process: simulated engines at the tests' speed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SIMULATED_")}
    return {**kept, "SIMULATED_TIME_SCALE": TIME_SCALE, "PYTHONUNBUFFERED": "1", **additions}


def run_tune(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """`tune WORDS` to its end."""
    return subprocess.run(
        [str(TUNE), *words],
        capture_output=True,
        text=True,
        env=environment(**(env or {})),
        cwd=cwd,
        timeout=timeout_s,
        check=False,
    )


def start_tune(*words: str, log: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """`tune WORDS` in the background, its output in a file."""
    with log.open("ab") as file:
        return subprocess.Popen([str(TUNE), *words], stdout=file, stderr=file, env=environment(**(env or {})))


def wait_until(happened: Callable[[], bool], process: subprocess.Popen[bytes], *, timeout_s: float = 60) -> None:
    """Waits for something that the process brings about; fails when the process ends first."""
    end = time.monotonic() + timeout_s
    while not happened():
        assert process.poll() is None, f"tune ended with {process.returncode} before it happened"
        assert time.monotonic() < end, f"it did not happen within {timeout_s} s"
        time.sleep(0.02)
