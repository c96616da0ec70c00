"""Whether the four top-level packages are really ours: another distribution may ship one of the same name."""

from importlib import metadata, util

PACKAGES = ("tuner", "search_spaces", "workloads", "runners")
DISTRIBUTION = "dflash-tuner"


def intruder() -> str | None:
    """One sentence naming what shadows us, or None when all is well. Costs a few milliseconds."""
    for package in PACKAGES:
        spec = util.find_spec(package)
        if spec is None or spec.origin is None:
            return (
                f"the package {package!r} is damaged (another package that ships it was removed?); "
                f"run `pip install --force-reinstall --no-deps {DISTRIBUTION}`"
            )
    owners = _owners()
    for package in PACKAGES:
        others = owners.get(package, set()) - {DISTRIBUTION}
        if others:
            return (
                f"{' and '.join(sorted(others))} also installs a top-level package {package!r} into this environment; "
                f"install {DISTRIBUTION} into one of its own (pipx install {DISTRIBUTION})"
            )
    return None


def _owners() -> dict[str, set[str]]:
    """Which distributions ship our packages, by their recorded files."""
    owners: dict[str, set[str]] = {}
    for distribution in metadata.distributions():
        name = (distribution.name or "").lower().replace("_", "-")
        text = distribution.read_text("RECORD") or ""
        for package in PACKAGES:
            if f"\n{package}/__init__.py," in f"\n{text}":
                owners.setdefault(package, set()).add(name)
    return owners
