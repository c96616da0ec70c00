"""Formats of installed packages: entry points of the group `dflash_tuner.workload_formats`."""

import functools
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points

from workloads.errors import WorkloadFormatError
from workloads.formats.format import Format

GROUP = "dflash_tuner.workload_formats"


class Formats(Mapping[str, Format]):
    """Formats by name: ours in their order, then those of packages, tried last so that they take no file from ours.

    Packages are asked on first use, not on import: they import this one.
    """

    def __init__(self, built_in: Iterable[Format], found: Iterable[EntryPoint] | None = None) -> None:
        self._built_in = tuple(built_in)
        self._found = found

    @functools.cached_property
    def _table(self) -> dict[str, Format]:
        """All of them.

        Raises:
            WorkloadFormatError: a plugin cannot be loaded, is no Format, or has a name that is taken.
        """
        table = {known.name: known for known in self._built_in}
        plugins = entry_points(group=GROUP) if self._found is None else self._found
        for point in sorted(plugins, key=lambda one: one.name):
            added = _load(point)
            if added.name in table:
                raise WorkloadFormatError(
                    f"{_named(point)}: the format {added.name!r} exists already; rename or uninstall it"
                )
            table[added.name] = added
        return table

    def __getitem__(self, name: str) -> Format:
        return self._table[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def _load(point: EntryPoint) -> Format:
    try:
        added = point.load()
    except Exception as error:  # a plugin's import may fail in any way
        raise WorkloadFormatError(f"{_named(point)} cannot be loaded ({error}); repair or uninstall it") from error
    lacking = [name for name in ("name", "framings", "recognises", "times", "requests") if not hasattr(added, name)]
    if lacking:
        raise WorkloadFormatError(
            f"{_named(point)} is no Format, it lacks {', '.join(lacking)}; correct or uninstall it"
        )
    format_: Format = added
    return format_


def _named(point: EntryPoint) -> str:
    package = point.dist.name if point.dist else "unknown package"
    return f"plugin {point.value!r} of {package} (group {GROUP})"
