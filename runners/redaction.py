"""Secrets that engines get through their environment, taken out of what is read of their logs.

An engine gets the tuner's environment, because it needs HF_TOKEN and its like, and may print all of it in a traceback
or a debug line. Knows names of variables and bytes of files; what a secret opens is nobody's business here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

REDACTED = "[redacted]"
_NAMES = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIAL|AUTHORIZATION", re.IGNORECASE)
# Shorter values are settings ("true", "1024"), and taking them out would spoil the log.
_SHORTEST = 8
_PIECE_BYTES = 1 << 20


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values of the variables that are named like secrets, the longest first; a file's name is none."""
    found = {
        value
        for name, value in environment.items()
        if _NAMES.search(name) and len(value) >= _SHORTEST and not value.isdigit() and not _names_a_file(value)
    }
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def _names_a_file(value: str) -> bool:
    return os.path.exists(value)  # noqa: PTH110 - Path.exists raises where a name is too long or its folder is closed


def redact(text: str, secrets: Iterable[str] | None = None) -> str:
    """The text without the secrets; without those of this process's environment by default."""
    for secret in secrets_of(os.environ) if secrets is None else secrets:
        text = text.replace(secret, REDACTED)
    return text


def redact_file(path: Path, secrets: Iterable[str]) -> int:
    """Overwrite secrets in a file, byte for byte, and return how many there were; nobody may be writing to it.

    In pieces, because an engine's log may be larger than memory.
    """
    wanted = [secret.encode() for secret in secrets]
    overlap = max(map(len, wanted), default=1) - 1
    count = 0
    with suppress(FileNotFoundError), path.open("r+b") as file:
        start, kept = 0, b""
        while piece := file.read(_PIECE_BYTES):
            data = kept + piece
            for secret in wanted:
                for match in re.finditer(re.escape(secret), data):
                    file.seek(start + match.start())
                    file.write(b"*" * len(secret))
                    count += 1
            kept = data[len(data) - overlap :] if overlap else b""
            start += len(data) - len(kept)
            file.seek(start + len(kept))
    return count
