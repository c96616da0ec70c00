"""How many launches, and engine-hours, until the best config found is within 2% of the true best, for each strategy.

    make bench-search                                                    # 30 seeds on every table, minutes on one core
    .venv/bin/python bench/search/run.py --seeds 5 --tables cliff stairs

Found means: for every condition of the table, a config was launched whose true throughput is within 2% of the best of
the whole table. Exits with 1 when a bar is missed: ours at most a third of the launches of Optuna's TPE defaults at the
median, and no more than random at the 90th percentile, on every table; with 40% of the configs dying at start, at most
1.5 times the launches that it takes without.
"""

import argparse
import contextlib
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

import optuna

from bench.grids.table import Table, key_of
from bench.grids.table_flow import noise_of
from bench.grids.tables import TABLES, load_table
from bench.search.strategies import STRATEGIES, Dies
from search_spaces import Scalar
from tuner.records import TrialRecord

NEAR = 0.98
CAP = 200
"""Launches after which a search is given up; it counts as that many."""
DYING = 0.4
DRILL_SEEDS_SALT = "drill"


class FoundError(Exception):
    """The search is over: found, or given up."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One search."""

    launches: int
    hours: float
    found: bool


def search_once(strategy: str, table: Table, seed: int, dies: Dies = lambda _: False) -> Outcome:
    """Runs a strategy until every condition's best is found."""
    best = {c: max(table.value(k, c) for k in table.cells if not dies(json_values(table, k))) for c in table.conditions}
    missing, launches, seconds = set(table.conditions), 0, 0.0

    def watch(record: TrialRecord) -> None:
        nonlocal launches, seconds
        launches += 1
        seconds += sum(record.seconds.values())
        key = key_of(table.space, record.values())
        for condition in list(missing) if record.measurements else ():
            if table.value(key, condition) >= NEAR * best[condition]:
                missing.discard(condition)
        if not missing or launches >= CAP:
            raise FoundError

    with contextlib.suppress(FoundError):
        STRATEGIES[strategy](table, seed, noise_of(table), watch, dies)
    return Outcome(launches if not missing else CAP, seconds / 3600, not missing)


def json_values(table: Table, key: str) -> dict[str, Scalar]:
    """Complete knob values of a table's key."""
    return table.space.complete(json.loads(key))


def planted_deaths(table: Table, seed: int) -> Dies:
    """About 40% of the configs die at start: three values of knobs always, and what else it takes by chance."""
    baseline = key_of(table.space, table.space.baseline())
    pairs = {("kv_block_size", (64, 256)[seed % 2]), ("max_num_seqs", (8, 16)[seed // 2 % 2])}

    def dies(values: Mapping[str, Scalar]) -> bool:
        key = key_of(table.space, values)
        if key == baseline:
            return False
        blamed = sum((name, values.get(name)) in pairs for name, _ in pairs)
        draw = int.from_bytes(hashlib.sha256(f"{DRILL_SEEDS_SALT}/{seed}/{key}".encode()).digest()[:4], "big") / 2**32
        return draw < (0.05, 0.65, 0.95)[blamed]

    return dies


def report(table: Table, outcomes: Mapping[str, list[Outcome]]) -> bool:
    """Prints a table's rows; whether the bars hold."""
    print(f"\n{table.name}: {len(table.cells)} configs, {len(table.conditions)} conditions")
    print(f"  {'strategy':20} {'launches p50':>12} {'p90':>6} {'engine-hours p50':>17} {'found':>7}")
    for name, runs in outcomes.items():
        launches = [run.launches for run in runs]
        hours, found = statistics.median(run.hours for run in runs), sum(run.found for run in runs)
        print(
            f"  {name:20} {statistics.median(launches):12.1f} {p90(launches):6.0f} {hours:17.2f} {found:4}/{len(runs)}"
        )
    mine, tpe, chance = (outcomes[name] for name in ("ours", "tpe_defaults", "random"))
    share = median(mine) / median(tpe)
    tail = p90([run.launches for run in mine]), p90([run.launches for run in chance])
    good = share <= 1 / 3 and tail[0] <= tail[1]
    print(
        f"  ours / TPE defaults {share:.2f} (bar 0.33), p90 {tail[0]:.0f} against random's {tail[1]:.0f}: {word(good)}"
    )
    return good


def drill(table: Table, seeds: int, alone: list[Outcome]) -> bool:
    """The failure drill on one table: against the same table where nothing dies."""
    dead = [planted_deaths(table, seed) for seed in range(seeds)]
    share = statistics.mean(sum(d(json_values(table, k)) for k in table.cells) / len(table.cells) for d in dead)
    with_deaths = [search_once("ours", table, seed, dead[seed]) for seed in range(seeds)]
    ratio = median(with_deaths) / median(alone)
    print(
        f"  failure drill: {share:.0%} die at start, {median(with_deaths):.0f} launches where {median(alone):.0f} are "
        f"needed without: {ratio:.2f} (bar 1.50): {word(ratio <= 1.5)}"
    )
    return ratio <= 1.5


def median(runs: list[Outcome]) -> float:
    """Median launches."""
    return statistics.median(run.launches for run in runs)


def p90(values: list[int]) -> float:
    """90th percentile, the nearest observed value above."""
    return sorted(values)[min(len(values) - 1, round(0.9 * len(values)))]


def word(good: bool) -> str:
    """A verdict."""
    return "holds" if good else "MISSED"


def main() -> int:
    """Runs every strategy on every table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    parser.add_argument("--no-drill", action="store_true")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    good, begun_s = True, time.monotonic()
    for name in arguments.tables:
        table = load_table(name)
        if table is None:
            print(f"\n{name}: not measured yet, skipped")
            continue
        outcomes = {s: [search_once(s, table, seed) for seed in range(arguments.seeds)] for s in arguments.strategies}
        good = report(table, outcomes) and good
        if not arguments.no_drill:
            good = drill(table, arguments.seeds, outcomes["ours"]) and good
        print(f"  after {time.monotonic() - begun_s:.0f} s", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
