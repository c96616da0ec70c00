"""Which tables there are and where they come from."""

from dataclasses import dataclass
from pathlib import Path

from bench.grids.real import read_real
from bench.grids.table import HERE, Table, read_table


@dataclass(frozen=True, slots=True)
class Source:
    """A table's file and what an engine start of it takes."""

    path: Path
    start_s: float


TABLES = {
    "default": Source(HERE / "default.csv.gz", 60.0),
    "cpu-demo": Source(HERE / "cpu-demo.csv.gz", 68.0),
    "published": Source(HERE / "published.csv.gz", 240.0),
    "stairs": Source(HERE / "stairs.csv.gz", 95.0),
    "fading": Source(HERE / "fading.csv.gz", 88.0),
    "cliff": Source(HERE / "cliff.csv.gz", 98.0),
    "real_cpu": Source(HERE / "real_cpu.csv.gz", 28.0),
}


def load_table(name: str) -> Table | None:
    """A table by name; None for the real one where it was not measured yet."""
    source = TABLES[name]
    if name == "real_cpu":
        return read_real(source.path, start_s=source.start_s) if source.path.is_file() else None
    return read_table(source.path, start_s=source.start_s)
