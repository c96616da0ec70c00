"""Search spaces as files: presets and a user's YAML, one extending another, all taking knobs from the catalogue.

What a space means is space.py's business; this module only reads, merges and says where something is wrong.
"""

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from search_spaces.errors import SpaceFileError
from search_spaces.preset_files import preset_files
from search_spaces.settings import catalogue
from search_spaces.space import SearchSpace


def preset_names() -> tuple[str, ...]:
    """Names that `load_space` knows without a file."""
    return tuple(sorted(preset_files()))


def load_space(name_or_path: str) -> SearchSpace:
    """Loads a preset by name or a user's YAML by path.

    Raises:
        SpaceFileError: no such preset or file, or the content is not a search space.
    """
    return _parse(_read(name_or_path, ()), name_or_path)


def _read(name_or_path: str, children: tuple[str, ...]) -> dict[str, Any]:
    if name_or_path in children:
        raise SpaceFileError(f"{children[0]}: extends itself ({' -> '.join((*children, name_or_path))})")
    if name_or_path in preset_files():
        text = preset_files()[name_or_path].read_text(encoding="utf-8")
    else:
        path = Path(name_or_path)
        if not path.is_file():
            raise SpaceFileError(
                f"search space {name_or_path!r}: no such file, and not one of the presets {', '.join(preset_names())}"
            )
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SpaceFileError(f"{name_or_path}: cannot be read ({error})") from error
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SpaceFileError(f"{name_or_path}: not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(document, dict):
        raise SpaceFileError(f"{name_or_path}: must be a mapping with name and knobs, not {type(document).__name__}")
    return _inherit(document, (*children, name_or_path))


def _inherit(document: dict[str, Any], children: tuple[str, ...]) -> dict[str, Any]:
    """Merges the parent's or the catalogue's knobs under the child's; `remove: true` drops one and all about it."""
    parent_name = document.pop("extends", None)
    knobs = document.get("knobs") or {}
    if not isinstance(knobs, dict) or not all(isinstance(changes, dict | None) for changes in knobs.values()):
        raise SpaceFileError(f"{children[-1]}: knobs: must map names to mappings such as {{choices: [16, 32]}}")
    parent = _read(str(parent_name), children) if parent_name else {"knobs": {}}
    merged: dict[str, Any] = dict(parent["knobs"])
    for name, changes in knobs.items():
        changed = dict(changes or {})
        if changed.pop("remove", False):
            merged.pop(name, None)
            parent = _without(name, parent)
            continue
        own = "flag" in changed or "speculative_key" in changed
        inherited = dict(merged[name] if name in merged else {} if own else catalogue().get(name, {}))
        if "choices" in changed:
            inherited.pop("low", None)
            inherited.pop("high", None)
            if children[-1] not in preset_names():  # what somebody asked for by value must not be left out silently
                inherited.pop("optional", None)
        elif "low" in changed or "high" in changed:
            inherited.pop("choices", None)
        merged[name] = {**inherited, **changed}
    return {**parent, **document, "knobs": merged}


def _without(removed: str, parent: dict[str, Any]) -> dict[str, Any]:
    """A parent whose starting points no longer name a knob that its child removed."""
    seeds = [{name: value for name, value in seed.items() if name != removed} for seed in parent.get("seeds", ())]
    fixed = {name: value for name, value in parent.get("fixed", {}).items() if name != removed}
    return {**parent, "seeds": seeds, "fixed": fixed}


def _parse(document: dict[str, Any], source: str) -> SearchSpace:
    try:
        return SearchSpace.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "top level"
        raise SpaceFileError(f"{source}: {where}: {first['msg']} (got {first['input']!r:.80})") from error
