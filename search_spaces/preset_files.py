"""Where presets are: the YAML files that ship with us, and those of installed packages.

A package adds one by an entry point of the group `dflash_tuner.search_spaces`: its name is the preset's, its value an
object with `read_text`, such as `importlib.resources.files("package") / "space.yaml"`.
"""

import functools
from collections.abc import Iterable, Mapping
from importlib import resources
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from search_spaces.errors import SpaceFileError

GROUP = "dflash_tuner.search_spaces"


class TextFile(Protocol):
    """What is read of a preset."""

    def read_text(self, encoding: str | None = None) -> str:
        """Its YAML."""


@functools.cache
def preset_files() -> dict[str, TextFile]:
    """All presets by name.

    Raises:
        SpaceFileError: a plugin cannot be loaded, is no file, or has a name that is taken.
    """
    files = resources.files("search_spaces.presets").iterdir()
    ours = {file.name.removesuffix(".yaml"): file for file in files if file.name.endswith(".yaml")}
    return with_plugins(ours, entry_points(group=GROUP))


def with_plugins(built_in: Mapping[str, TextFile], found: Iterable[EntryPoint]) -> dict[str, TextFile]:
    """Ours and those of packages; see `preset_files`."""
    table = dict(built_in)
    for point in found:
        if point.name in table:
            raise SpaceFileError(f"{_named(point)}: the preset {point.name!r} exists already; rename or uninstall it")
        try:
            file = point.load()
        except Exception as error:  # a plugin's import may fail in any way
            raise SpaceFileError(f"{_named(point)} cannot be loaded ({error}); repair or uninstall it") from error
        if not hasattr(file, "read_text"):
            raise SpaceFileError(
                f"{_named(point)} is a {type(file).__name__}, not a file with read_text; correct or uninstall it"
            )
        table[point.name] = file
    return table


def _named(point: EntryPoint) -> str:
    package = point.dist.name if point.dist else "unknown package"
    return f"plugin {point.value!r} of {package} (group {GROUP})"
