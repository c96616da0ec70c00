"""The user's own serve config as the baseline: a YAML as for `vllm serve --config`, taken as it is.

Where its flags are knobs of the search space, the search knows its values; whatever else it sets reaches the engine
word for word, and only makes it a configuration that the search does not propose.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from search_spaces import Argument, ResolvedSpace, Scalar, ServeConfig, unsafe
from tuner.errors import UsageError

# Decided by the study or by the launch, whatever the file says.
IGNORED = ("model", "model-tag", "served-model-name", "host", "port", "api-key", "uds", "config")


def read_baseline(path: Path, space: ResolvedSpace) -> ServeConfig:
    """Reads the file.

    Raises:
        UsageError: it cannot be read, or is not a mapping of flags.
    """
    flags = _flags(path)
    config = space.serve_config(_knob_values(flags, space))
    different = {n: v for n, v in _without_defaults(flags, space).items() if config.tuned_args.get(n) != v}
    if not different:
        return config
    words = {name: json.dumps(value, sort_keys=True) for name, value in different.items()}
    return config.model_copy(update={"tuned_args": flags, "identity": {**config.identity, **words}})


def _flags(path: Path) -> dict[str, Argument]:
    try:
        document: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"--baseline {path}: cannot be read ({' '.join(str(error).split())})") from error
    if not isinstance(document, dict):
        raise UsageError(f"--baseline {path}: must be a mapping of vLLM flags, as for `vllm serve --config`")
    speculative = document.get("speculative-config", document.get("speculative_config"))
    for key, value in speculative.items() if isinstance(speculative, dict) else ():
        reason = unsafe(str(key), [value])
        if reason:
            raise UsageError(f"--baseline {path}: {reason}")
    flags: dict[str, Argument] = {}
    for key, value in document.items():
        name = str(key).replace("_", "-")
        if name in IGNORED or value is None:
            continue
        if not isinstance(value, bool | int | float | str | list | dict):
            raise UsageError(f"--baseline {path}: {key} is {value!r}; it must be a number, text, list or mapping")
        if name.startswith("no-") and value is True:
            flags[name.removeprefix("no-")] = False
        else:
            flags[name] = value
    return flags


def _without_defaults(flags: Mapping[str, Argument], space: ResolvedSpace) -> dict[str, Argument]:
    """Flags less those that say what the engine does anyway, so that a spelt-out default changes nothing."""
    defaults = {knob.flag or knob.speculative_key: knob.engine_default for knob in space.knobs.values()}
    kept = {name: value for name, value in flags.items() if name not in defaults or value != defaults[name]}
    speculative = kept.get("speculative-config")
    if isinstance(speculative, dict):
        kept["speculative-config"] = {k: v for k, v in speculative.items() if k not in defaults or v != defaults[k]}
    return kept


def _knob_values(flags: Mapping[str, Argument], space: ResolvedSpace) -> dict[str, Scalar]:
    speculative = flags.get("speculative-config")
    keys = speculative if isinstance(speculative, dict) else {}
    values: dict[str, Scalar] = {}
    for name, knob in space.knobs.items():
        value = flags.get(knob.flag) if knob.flag else keys.get(knob.speculative_key or "")
        if isinstance(value, bool | int | float | str):
            values[name] = value
    return values
