"""Exporters of installed packages: entry points of the group `dflash_tuner.exporters`."""

import re
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from tuner.errors import UsageError
from tuner.exporters.exporter import Exporter

GROUP = "dflash_tuner.exporters"


def with_plugins(built_in: Iterable[Exporter], found: Iterable[EntryPoint] | None = None) -> dict[str, Exporter]:
    """Ours by name, then those of packages in the order of their names.

    Raises:
        UsageError: a plugin cannot be loaded, is no Exporter, or has a name that is taken.
    """
    table = {exporter.name: exporter for exporter in built_in}
    plugins = entry_points(group=GROUP) if found is None else found
    for point in sorted(plugins, key=lambda one: one.name):
        exporter = _load(point)
        if exporter.name in table:
            raise UsageError(f"{_named(point)}: the exporter {exporter.name!r} exists already; rename or uninstall it")
        table[exporter.name] = exporter
    return table


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
