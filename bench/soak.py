"""A study of 300 simulated trials: does the tuner grow, and what does it cost beside the engines?

    .venv/bin/python -m bench.soak                   # 300 trials with MLflow on SQLite, about 20 minutes
    .venv/bin/python -m bench.soak --trials 30

The whole of `tune` runs, with engines, replays, search, MLflow, confirmation and report; only the rule that ends a
search which no longer pays is switched off. Memory is what the process has for itself (USS), read as each trial ends:
the median of the five trials around the 20th against that of the last five. The share is the one that every study
prints, "tuner": wall clock that was neither engine start, warm-up, replay nor engine stop. It depends on how long these
are, and simulated ones are much shorter than real ones, so milliseconds per trial are printed too, of wall clock and of
CPU, early and late. Exits with 1 when the growth is not below 20 MB or the share not below 2%.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.integration.study_desk import Desk, environment, line, write_workload
from tuner.records import TrialRecord
from tuner.store import Store

GROWTH_LIMIT_MB = 20.0
SHARE_LIMIT = 0.02
FROM_TRIAL = 20
AROUND = 2
STUDY = "soak"
REQUESTS = 24
# 16 draft lengths or none, prefix caching, and two knobs of the batch: more combinations than trials.
SPACE = """\
name: soak
extends: dflash
knobs:
  kv_block_size: {remove: true}
  max_num_seqs: {choices: [16, 32, 64, 128]}
  max_num_batched_tokens: {choices: [2048, 4096, 8192]}
seeds: []
"""
ENDLESS = """\
import sys
from tuner.search import proposals
proposals.MIN_OBSERVATIONS = 10**9
from tuner.cli import main
sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """The tuner's process as a trial ended."""

    trials: int
    uss_mb: float
    cpu_s: float
    at_s: float


def main() -> int:
    """Runs the study and judges it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        samples, said, store = soak(Path(directory), options.trials)
        return report(samples, said, store)


def soak(directory: Path, trials: int) -> tuple[list[Sample], str, Store]:
    """Runs the study; how it was at the end of each trial, and what it printed."""
    desk, out = Desk(directory).lay_out(), directory / "runs"
    desk.space.write_text(SPACE, encoding="utf-8")
    write_workload(desk.workload, [line(n, "code") for n in range(REQUESTS)])
    words = desk.options(STUDY, out, trials=str(trials), rounds="2", requests="12", blocks="3")
    log = directory / "log"
    with log.open("wb") as file:
        process = psutil.Popen(
            [sys.executable, "-c", ENDLESS, *words], stdout=file, stderr=subprocess.STDOUT, env=environment()
        )
        samples = watch(process, out / STUDY / "trials")
    said = log.read_text(encoding="utf-8")
    if process.wait() != 0:
        raise SystemExit(f"the study ended with {process.returncode}:\n{said[-2000:]}")
    return samples, said, Store.open(out, STUDY)


def watch(process: psutil.Popen, trials: Path) -> list[Sample]:
    """A sample whenever another trial has ended, until the process ends."""
    samples: list[Sample] = []
    while process.poll() is None:
        ended = sum(1 for _ in trials.glob("*/trial.json")) if trials.is_dir() else 0
        if ended > (samples[-1].trials if samples else 0):
            try:
                cpu = process.cpu_times()
                uss_mb = process.memory_full_info().uss / 1e6
            except psutil.NoSuchProcess:
                break
            samples.append(Sample(ended, uss_mb, cpu.user + cpu.system, time.monotonic()))
            if ended % 10 == 0:
                print(f"trial {ended:4d}: USS {uss_mb:6.1f} MB, CPU {samples[-1].cpu_s:6.1f} s", flush=True)
        time.sleep(0.1)
    return samples


def report(samples: Sequence[Sample], said: str, store: Store) -> int:
    """Prints the figures; 0 when they are as they must be."""
    searched = [s for s in samples if s.trials <= len(store.records()) - 4]
    early, late = around(searched, FROM_TRIAL), around(searched, searched[-1].trials)
    growth_mb = late - early
    printed = re.search(r"^time +(\d+) s: .*tuner (\d+) s \(([\d.]+)%\)", said, re.MULTILINE)
    if printed is None:
        raise SystemExit(f"the study did not print where its time went:\n{said[-2000:]}")
    share = float(printed[3]) / 100
    records = store.records()
    activities_s = sum(sum(record.seconds.values()) for record in records) / len(records)
    print(f"trials         {len(records)}, {sum(r.status == 'measured' for r in records)} of them measured")
    print(
        f"memory         USS {early:.1f} MB around trial {FROM_TRIAL}, {late:.1f} MB at trial {searched[-1].trials}: "
        f"{growth_mb:+.1f} MB (limit {GROWTH_LIMIT_MB:.0f})"
    )
    print(f"time           {printed[1]} s, of a trial {activities_s:.2f} s in start, warm-up, replay and stop")
    print(f"tuner's share  {share:.1%} (limit {SHARE_LIMIT:.0%})")
    for first, last in ((FROM_TRIAL, FROM_TRIAL + 30), (searched[-1].trials - 30, searched[-1].trials)):
        print(f"trials {first:3d} to {last:3d}: {per_trial(searched, records, first, last)}")
    return 0 if growth_mb < GROWTH_LIMIT_MB and share < SHARE_LIMIT else 1


def around(samples: Sequence[Sample], trial: int) -> float:
    """Median memory of the trials nearest to one."""
    nearest = sorted(samples, key=lambda s: abs(s.trials - trial))[: 2 * AROUND + 1]
    return statistics.median(s.uss_mb for s in nearest)


def per_trial(samples: Sequence[Sample], records: Sequence[TrialRecord], first: int, last: int) -> str:
    """Wall clock outside of the named activities, and CPU, per trial between two."""
    by_trial = {s.trials: s for s in samples}
    begin = by_trial[min(by_trial, key=lambda n: abs(n - first))]
    end = by_trial[min(by_trial, key=lambda n: abs(n - last))]
    count = end.trials - begin.trials
    named_s = sum(sum(record.seconds.values()) for record in records[begin.trials : end.trials])
    own_s = max(0.0, end.at_s - begin.at_s - named_s)
    own_ms, cpu_ms = own_s / count * 1000, (end.cpu_s - begin.cpu_s) / count * 1000
    return f"{own_ms:.0f} ms of wall clock outside of engines and replays, {cpu_ms:.0f} ms of CPU a trial"


if __name__ == "__main__":
    sys.exit(main())
