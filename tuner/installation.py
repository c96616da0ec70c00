"""Whether the four top-level packages are really ours: another distribution may ship one of the same name.

Both pip and uv let two distributions write the same file without a word, so the first sign would be a strange import
error in the middle of a study. The check costs a millisecond; only when it fails are all distributions searched for
the culprit.
"""

import base64
import hashlib
from importlib import metadata, util
from pathlib import Path

PACKAGES = ("tuner", "search_spaces", "workloads", "runners")
DISTRIBUTION = "dflash-tuner"


def intruder() -> str | None:
    """One sentence naming what shadows or damaged us, or None when all is well."""
    origins = {name: spec.origin if (spec := util.find_spec(name)) else None for name in PACKAGES}
    roots = {name: Path(origin).parents[1] for name, origin in origins.items() if origin}
    recorded = _recorded_hashes()
    for name in PACKAGES:
        origin = origins[name]
        if origin is None or roots[name] != roots.get("tuner") or _is_foreign(name, Path(origin), recorded):
            return _sentence(name, origin)
    return None


def _recorded_hashes() -> dict[str, str]:
    """Hashes that our own installation recorded for the packages' `__init__.py`; empty for an editable install."""
    try:
        record = metadata.distribution(DISTRIBUTION).read_text("RECORD") or ""
    except metadata.PackageNotFoundError:
        return {}
    rows = (line.split(",") for line in record.splitlines() if "/__init__.py,sha256=" in line)
    return {row[0].removesuffix("/__init__.py"): row[1].removeprefix("sha256=") for row in rows}


def _is_foreign(name: str, origin: Path, recorded: dict[str, str]) -> bool:
    digest = base64.urlsafe_b64encode(hashlib.sha256(origin.read_bytes()).digest()).rstrip(b"=").decode()
    return recorded.get(name, digest) != digest


def _sentence(name: str, origin: str | None) -> str:
    owners = sorted(
        distribution.name
        for distribution in metadata.distributions()
        if distribution.name != DISTRIBUTION
        and f"\n{name}/__init__.py," in f"\n{distribution.read_text('RECORD') or ''}"
    )
    if owners:
        return (
            f"{' and '.join(owners)} also installs a top-level package {name!r} into this environment; "
            f"install {DISTRIBUTION} into an environment of its own, for example with `pipx install {DISTRIBUTION}`"
        )
    place = f"comes from {origin}" if origin else "is damaged (was another package that ships it removed?)"
    return f"the package {name!r} {place}; run `pip install --force-reinstall --no-deps {DISTRIBUTION}`"
