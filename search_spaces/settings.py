"""Knob values and fixed engine arguments under one set of names, so that rules need not know who set what.

The names are those of the catalogue; a flag that no knob of it sets goes by its own name with underscores
(`max_model_len`). Dead knobs are left out: what does not reach the engine cannot be wrong.
"""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml

from search_spaces.knobs import Knob, Scalar, Values

Settings = Mapping[str, Any]


@cache
def catalogue() -> dict[str, dict[str, Any]]:
    """Every knob that ships with the tuner, as in catalogue.yaml, each left out where it is not offered."""
    text = resources.files("search_spaces").joinpath("catalogue.yaml").read_text(encoding="utf-8")
    return {name: {**fields, "optional": True} for name, fields in yaml.safe_load(text).items()}


@cache
def catalogue_knob(name: str) -> Knob:
    """A knob of the catalogue."""
    return Knob.model_validate(catalogue()[name])


def settings_of(values: Values, knobs: Mapping[str, Knob], fixed_args: Mapping[str, Any]) -> dict[str, Any]:
    """What the engine is told: fixed arguments, and above them every value that is not null and whose knob is alive."""
    settings: dict[str, Any] = {}
    for flag, argument in fixed_args.items():
        if flag == "speculative-config" and isinstance(argument, dict):
            settings.update({_name_of((None, None, key)): value for key, value in argument.items()})
        elif flag == "compilation-config" and isinstance(argument, dict):
            settings.update({_name_of((flag, key, None)): value for key, value in argument.items()})
        else:
            settings[_name_of((flag, None, None))] = argument
    for name, value in values.items():
        knob = knobs.get(name)
        if value is None or (knob is not None and not knob.is_alive(values)):
            continue
        canonical = name if knob is None else _name_of((knob.flag, knob.json_key, knob.speculative_key))
        if knob is None or value != knob.engine_default or canonical not in settings:  # a default is never spelt out
            settings[canonical] = value
    return settings


def number(settings: Settings, name: str) -> int | None:
    """A setting that must be an integer to be judged."""
    value: Scalar = settings.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def draft_length(settings: Settings) -> int:
    """K, or 0 without speculation."""
    return (number(settings, "num_speculative_tokens") or 0) if speculates(settings) else 0


def speculates(settings: Settings) -> bool:
    """Whether a speculative method is set."""
    return settings.get("method") not in (None, "none")


@cache
def _names() -> dict[tuple[str | None, str | None, str | None], str]:
    return {
        (fields.get("flag"), fields.get("json_key"), fields.get("speculative_key")): name
        for name, fields in catalogue().items()
    }


def _name_of(target: tuple[str | None, str | None, str | None]) -> str:
    flag, json_key, speculative_key = target
    own = json_key or speculative_key or flag or ""
    return _names().get(target) or own.replace("-", "_")
