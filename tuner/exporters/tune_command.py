"""The command line that asks for a study again: the reverse of what `tune` makes of its options.

Only what differs from the defaults is said. Where the study lives and what its files are called is the caller's, so
that the command can run on another host.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import join

from tuner.config import TuneConfig

INPUTS = ("workload", "responses", "baseline")
"""Fields that are always files; `space` is one unless it names a preset."""

_NAMES = {"workload_format": "format", "engine_argv": "engine-command"}
_LEFT_OUT = frozenset({"out", "gpus", "study", "measure_timeout_s", "tracking"})
_SECONDS = {"budget_s": "budget", "ready_timeout_s": "ready-timeout", "hang_timeout_s": "hang-timeout"}


def tune_command(
    config: TuneConfig,
    *,
    study: str,
    out: str,
    place: Callable[[Path], str],
    changes: Mapping[str, object] | None = None,
) -> tuple[str, ...]:
    """Words of `tune` that ask for the same study.

    Args:
        config: The request.
        study: Name of the new study.
        out: Directory of studies on the host that runs it.
        place: Where an input file is there.
        changes: Fields that are to differ.
    """
    asked = config.model_copy(update=dict(changes or {}))
    words = ["tune"]
    for name, field in TuneConfig.model_fields.items():
        value = getattr(asked, name)
        if name in _LEFT_OUT or (not field.is_required() and value == field.get_default(call_default_factory=True)):
            continue
        words += _option(name, value, place)
    if not asked.tracking:
        words.append("--no-tracking")
    return (*words, "--study", study, "--out", out)


def input_files(config: TuneConfig) -> tuple[Path, ...]:
    """The files that the study reads, the space only where it is one."""
    named = [getattr(config, name) for name in INPUTS]
    space = [Path(config.space)] if config.space.startswith("/") else []
    return tuple(path for path in [*named, *space] if path is not None)


def _option(name: str, value: object, place: Callable[[Path], str]) -> list[str]:
    if name in _SECONDS:
        return [f"--{_SECONDS[name]}", f"{value}s"]
    option = "--" + _NAMES.get(name, name).replace("_", "-")
    if name == "slo" and isinstance(value, tuple):
        return [word for limit in value for word in (option, limit)]
    if isinstance(value, dict):
        return [word for key, one in value.items() for word in (option, f"{key}={one}")]
    if isinstance(value, tuple):
        return [option, join(value)] if value else []
    if name in INPUTS or (name == "space" and str(value).startswith("/")):
        return [option, place(Path(str(value)))]
    return [option, str(value)]
