"""The fault drill: every fault put into a real study of simulated engines, and what was left, lost or misnamed.

    .venv/bin/python -m bench.drill                 # all faults, and 50 kills of the tuner at random moments
    .venv/bin/python -m bench.drill --only hung_with_health_200   # some of them
    .venv/bin/python -m bench.drill --kills 3

A fault hits the second trial of a study (the recipe), or the tuner itself. After each: no process of the study lives,
no port of a launch is open, every measurement that was complete is there once and unchanged, the study is finished or
resumable, and the reason in the record is the true one. Exits with 1 when anything is not so.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.drill_faults import FAULTS, Fault
from bench.drill_kills import kill_at_random_moments
from bench.drill_studies import DrillStudy
from tests.integration.study_desk import Desk

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one fault; ``lost`` and ``wrong`` must be 0 and ``left`` empty."""

    fault: str
    injected: int
    survived: int
    lost: int
    wrong: int
    left: tuple[str, ...]
    note: str
    seconds: float

    @property
    def good(self) -> bool:
        """Whether it is as it must be."""
        return self.survived == self.injected and not self.lost and not self.wrong and not self.left


def main(words: Sequence[str] | None = None) -> int:
    """Runs the drill and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [*(fault.name for fault in FAULTS), "signals"]
    parser.add_argument("--only", nargs="*", choices=names, help="names of faults; all by default")
    parser.add_argument("--kills", type=int, default=50, help="signals to the tuner at random moments")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the table here")
    parser.add_argument("--keep", action="store_true", help="keep the studies of faults that went wrong")
    options = parser.parse_args(words)
    chosen = [fault for fault in FAULTS if not options.only or fault.name in options.only]
    with tempfile.TemporaryDirectory(prefix="drill-") as directory:
        rows = run_faults(chosen, Path(directory), keep=options.keep)
        if not options.only or "signals" in options.only:
            rows.append(run_kills(Path(directory) / "kills", options.kills, options.seed))
    print_table(rows)
    if options.json:
        table = [{name: getattr(row, name) for name in Row.__dataclass_fields__} for row in rows]
        options.json.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row.good for row in rows) else 1


def run_faults(faults: Sequence[Fault], directory: Path, *, keep: bool = False) -> list[Row]:
    """One study per fault."""
    desk = Desk(_made(directory / "desk")).lay_out()
    rows = []
    for fault in faults:
        began = time.monotonic()
        study = DrillStudy(desk, _made(directory / fault.name), fault)
        with study.place():
            note, survived = study.run()
            kind = study.kind_of_fault()
            wrong = kind not in fault.expected
            lost, left = study.lost(), study.left()
            row = Row(fault.name, 1, int(survived), lost, int(wrong), left, note or kind, time.monotonic() - began)
            if keep and not row.good:
                shutil.copytree(study.directory, Path(tempfile.mkdtemp(prefix=f"drill-{fault.name}-")) / "study")
        rows.append(row)
        print(format_row(row), flush=True)
    return rows


def run_kills(directory: Path, count: int, seed: int) -> Row:
    """Signals to the tuner."""
    began = time.monotonic()
    desk = Desk(_made(directory / "desk")).lay_out()
    result = kill_at_random_moments(desk, directory, count=count, seed=seed)
    row = Row(
        "signals", count, result.survived, result.lost, result.wrong, result.left, result.note, time.monotonic() - began
    )
    print(format_row(row), flush=True)
    return row


def format_row(row: Row) -> str:
    """A line of the table."""
    verdict = "ok" if row.good else "WRONG"
    left = f" left: {', '.join(row.left)}" if row.left else ""
    return (
        f"{row.fault:26s} {row.injected:8d} {row.survived:8d} {row.lost:4d} {row.wrong:11d}  {verdict:5s} "
        f"{row.seconds:5.0f} s  {row.note}{left}"
    )


def print_table(rows: Sequence[Row]) -> None:
    """All rows again, with their sums."""
    print(f"\n{'fault':26s} injected survived lost wrong class")
    for row in rows:
        print(format_row(row))
    injected, survived = sum(row.injected for row in rows), sum(row.survived for row in rows)
    lost, wrong = sum(row.lost for row in rows), sum(row.wrong for row in rows)
    print(f"{'all':26s} {injected:8d} {survived:8d} {lost:4d} {wrong:11d}")


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


if __name__ == "__main__":
    sys.exit(main())
