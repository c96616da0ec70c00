"""How good are the answers? Whole simulated studies, from the baseline to the recommendation, against the truth.

    make bench-decision                                       # 200 studies and as many where nothing is to be gained
    .venv/bin/python bench/decision/run.py --studies 40

Prints, and exits with 1 where a bar is missed: the true regret of a recommendation is at most 2% in 95% of the answers;
where no config is truly better than the baseline, a gain is claimed in at most 5% of the studies; the stated 95%
intervals hold the true gain in at least 93%. Noise is what real engines show, see bench/grids/table_flow.py.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import optuna

from bench.grids.table import Table, key_of
from bench.grids.table_flow import TableFlow, noise_of
from bench.grids.tables import TABLES, load_table
from search_spaces import ServeConfig
from tuner.predict import prediction_errors
from tuner.recommend import recommend

NEAR = 0.02


@dataclass(frozen=True, slots=True)
class Answer:
    """One recommendation against the truth."""

    table: str
    condition: str
    regret: float
    claimed: bool
    covered: bool | None
    """Whether the interval of the best candidate holds its true gain; None where none is stated."""


@dataclass(frozen=True, slots=True)
class Finished:
    """One study."""

    answers: tuple[Answer, ...]
    launches: int
    prediction_errors: tuple[float, ...]


def study(table: Table, seed: int, *, baseline: ServeConfig | None = None) -> Finished:
    """Runs a whole study with the tuner's own steps."""
    flow = TableFlow(table, seed=seed, noise=noise_of(table), baseline=baseline)

    async def steps() -> None:
        await flow.measure_baseline()
        await flow.measure_starting_points()
        await flow.search()
        await flow.confirm()

    asyncio.run(steps())
    answers = []
    for condition in flow.task.conditions:
        answer = recommend(condition, flow.records, flow.task.rules)
        mine = table.value(key_of(table.space, answer.serve_config.values), condition.key)
        base = table.value(key_of(table.space, answer.baseline.values), condition.key)
        effect = answer.effect
        answers.append(
            Answer(
                table=table.name,
                condition=condition.key,
                regret=1.0 - mine / table.best(condition.key),
                claimed=answer.verdict == "change",
                covered=None if effect is None else effect.low <= mine / base <= effect.high,
            )
        )
    records = flow.records
    errors = [
        error
        for index, record in enumerate(records)
        for error in prediction_errors(record, records[:index], method="dflash", objective="output_tok_s")
    ]
    return Finished(tuple(answers), len(flow.records), tuple(e.relative for e in errors))


def flat(table: Table) -> Table:
    """The table with nothing to be gained: every config is as fast as the baseline, or slower."""
    base = table.cells[key_of(table.space, table.space.baseline())]
    cells = {
        key: {
            condition: base[condition]
            if cell.metrics["output_tok_s"] > base[condition].metrics["output_tok_s"]
            else cell
            for condition, cell in row.items()
        }
        for key, row in table.cells.items()
    }
    return replace(table, cells=cells)


def share(flags: Sequence[bool]) -> float:
    """Share of true ones."""
    return sum(flags) / len(flags) if flags else 1.0


def report(found: Sequence[Finished], nothing: Sequence[Finished]) -> bool:
    """Prints the three bars."""
    answers = [answer for one in found for answer in one.answers]
    print(f"\n{'table':12} {'answers':>8} {'regret p50':>11} {'p95':>7} {'within 2%':>10} {'covered':>8}")
    for name in dict.fromkeys(answer.table for answer in answers):
        row(name, [answer for answer in answers if answer.table == name])
    row("all", answers)
    near = share([answer.regret <= NEAR for answer in answers])
    covered = share([answer.covered for answer in answers if answer.covered is not None])
    false_alarms = share([any(answer.claimed for answer in one.answers) for one in nothing])
    per_answer = share([answer.claimed for one in nothing for answer in one.answers])
    errors = [abs(error) for one in found for error in one.prediction_errors]
    print(f"launches per study, confirmation included: {statistics.median(one.launches for one in found):.0f} (median)")
    print(f"prediction of a new K: off by {statistics.median(errors):.1%} (median), {max(errors):.0%} at most")
    bars = [
        (near >= 0.95, f"true regret at most 2% in {near:.1%} of {len(answers)} answers (bar 95%)"),
        (covered >= 0.93, f"95% intervals hold the truth in {covered:.1%} (bar 93%)"),
        (
            per_answer <= 0.05,
            f"a gain that is none is claimed in {per_answer:.1%} of answers (bar 5%), {false_alarms:.1%} of studies",
        ),
    ]
    for good, text in bars:
        print(f"{'holds ' if good else 'MISSED'} {text}")
    return all(good for good, _ in bars)


def row(name: str, answers: Sequence[Answer]) -> None:
    """One line of the table."""
    regrets = sorted(answer.regret for answer in answers)
    covered = share([answer.covered for answer in answers if answer.covered is not None])
    near = share([regret <= NEAR for regret in regrets])
    tail = regrets[min(len(regrets) - 1, round(0.95 * len(regrets)))]
    print(f"{name:12} {len(answers):8} {statistics.median(regrets):11.2%} {tail:7.2%} {near:10.1%} {covered:8.1%}")


def main() -> int:
    """Runs the studies."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    tables = [table for name in arguments.tables if (table := load_table(name)) is not None]
    begun_s = time.monotonic()
    found = [study(tables[seed % len(tables)], 1000 + seed) for seed in range(arguments.studies)]
    flats = [flat(table) for table in tables]
    nothing = [study(flats[seed % len(flats)], 5000 + seed) for seed in range(arguments.studies)]
    good = report(found, nothing)
    print(f"{time.monotonic() - begun_s:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
