"""Exporters of installed packages: entry points of the group `dflash_tuner.exporters`."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points

from tuner.errors import UsageError
from tuner.exporters.exporter import Exporter

GROUP = "dflash_tuner.exporters"


class Exporters(Mapping[str, Exporter]):
    """Exporters by name: ours, then those of packages.

    Packages are asked on first use, not on import: they import this one.
    """

    def __init__(self, built_in: Iterable[Exporter], found: Iterable[EntryPoint] | None = None) -> None:
        self._built_in = tuple(built_in)
        self._found = found

    @functools.cached_property
    def _table(self) -> dict[str, Exporter]:
        """All of them.

        Raises:
            UsageError: a plugin cannot be loaded, is no Exporter, or has a name that is taken.
        """
        table = {known.name: known for known in self._built_in}
        plugins = entry_points(group=GROUP) if self._found is None else self._found
        for point in sorted(plugins, key=lambda one: one.name):
            added = _load(point)
            if added.name in table:
                raise UsageError(f"{_named(point)}: the exporter {added.name!r} exists already; rename or uninstall it")
            table[added.name] = added
        return table

    def __getitem__(self, name: str) -> Exporter:
        return self._table[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def _load(point: EntryPoint) -> Exporter:
    try:
        exporter = point.load()
    except Exception as error:  # a plugin's import may fail in any way
        raise UsageError(f"{_named(point)} cannot be loaded ({error}); repair or uninstall it") from error
    if not isinstance(exporter, Exporter):
        raise UsageError(
            f"{_named(point)} is a {type(exporter).__name__}, not a tuner.exporters.Exporter; correct or uninstall it"
        )
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", exporter.name):
        raise UsageError(f"{_named(point)}: {exporter.name!r} is no name of lower case, digits and dashes; rename it")
    return exporter


def _named(point: EntryPoint) -> str:
    package = point.dist.name if point.dist else "unknown package"
    return f"plugin {point.value!r} of {package} (group {GROUP})"
