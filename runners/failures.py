"""Why an engine ended: its log and exit code in, a failure class, one sentence and an advice out.

The rules themselves are in ``runners.failure_rules``. Reads a log when asked to; starts, stops and decides nothing.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

from runners.container_rules import CONTAINER_RULES
from runners.failure_rules import FAILURE_RULES, GPU_OOM, GPU_OOM_FAILURES, Failure
from runners.redaction import redact

# Enough for the first traceback of every process; a GPU engine's start writes some 50 KB.
_LOG_BYTES = 512 * 1024
_QUOTED_CHARACTERS = 300
# No message is longer; a program that writes megabytes without a line's end must not keep the rules busy for hours.
_LINE_CHARACTERS = 4000


# "(EngineCore pid=8265) ERROR 11-29 18:32:33 [core.py:1510] " before each line that vLLM logs.
_PREFIX = re.compile(r"^(?:\([\w -]+ pid=\d+\) )?(?:(?P<level>[A-Z]+) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?")
_HARMLESS = frozenset({"DEBUG", "INFO", "WARNING"})


def classify_failure(log: str, exit_code: int | None) -> Failure:
    """Say why an engine ended.

    Args:
        log: What it wrote.
        exit_code: Of its main process, negative for a signal; None when unknown.
    """
    text = _complaints(log)
    if GPU_OOM.search(text) and not re.search("warming up (?:sampler|pooler)", text):
        return next(failure for pattern, failure in GPU_OOM_FAILURES if pattern.search(log))
    for rule in (*CONTAINER_RULES, *FAILURE_RULES):
        if match := rule.pattern.search(text):
            groups = {name: _shorten(value or "?") for name, value in match.groupdict().items()}
            return Failure(rule.kind, rule.message.format(**groups), rule.infrastructure)
    if exit_code == -signal.SIGKILL:
        message = "the engine was killed (SIGKILL), most likely by the kernel for lack of memory; see the kernel's log"
        return Failure("killed", message, infrastructure=True)
    return Failure("crash", f"the engine ended with {_describe_exit(exit_code)}: {_last_words(text)}; see its log")


def read_log(path: Path) -> str:
    """The end of an engine's log, as much of it as classification needs; empty when there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - _LOG_BYTES))
        return redact(file.read().decode(errors="replace"))


def tail_of(log: str, lines: int = 50) -> str:
    """The last ``lines`` lines of a log."""
    return "\n".join(log.splitlines()[-lines:])


def _complaints(log: str) -> str:
    """The log without prefixes, without what vLLM itself marks as harmless, and without source code in tracebacks.

    A frame's line of code may hold the very words of a message that was never raised.
    """
    kept: list[str] = []
    in_frame = False
    for line in (line[:_LINE_CHARACTERS] for line in log.splitlines()):
        prefix = _PREFIX.match(line)
        if prefix is not None and prefix["level"] in _HARMLESS:
            continue
        text = line[prefix.end() :] if prefix else line
        in_frame = text.startswith('  File "') or (in_frame and text.startswith("    "))
        if not in_frame:
            kept.append(text)
    return "\n".join(kept)


def _last_words(text: str) -> str:
    """The exception that ended the first traceback, as that is the cause of the others; else the last line."""
    lines = text.splitlines()
    if "Traceback (most recent call last):" in lines:
        for position in range(lines.index("Traceback (most recent call last):") + 1, len(lines)):
            if lines[position] and not lines[position].startswith(" "):
                detail = lines[position + 1].strip() if "validation error" in lines[position] else ""
                return _shorten(f"{lines[position]} {detail}".strip())
    said = [line for line in lines if line.strip()]
    return _shorten(said[-1]) if said else "it wrote nothing"


def _describe_exit(exit_code: int | None) -> str:
    if exit_code is None:
        return "an unknown exit code"
    if exit_code < 0:
        return f"signal {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}"


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _QUOTED_CHARACTERS else text[: _QUOTED_CHARACTERS - 3] + "..."
