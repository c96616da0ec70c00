"""A study whose engine is a table: the tuner's own flow, search, racing and decision, with measurements looked up.

Noise is added as real engines have it: a factor per launch, one per condition on a launch, one per block; some blocks
are hit by a stall. Every draw is a function of the seed and the trial's number.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bench.grids.table import Cell, Table, key_of
from search_spaces import Scalar, ServeConfig
from tuner.breakdown import ENGINE_START, REPLAY
from tuner.conditions import Condition
from tuner.flow import Flow, Task
from tuner.objective import parse_objective
from tuner.records import BlockValue, Failure, Measurement, TrialPlan, TrialRecord
from tuner.rules import Rules
from workloads import Load

Part = Literal["search", "held_out"]
DIED = Failure(kind="oom_kv", message="planted: no memory for the KV cache", infrastructure=False)


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations of log factors, and stalls. Defaults: a quiet GPU host's 1 to 3 percent."""

    launch: float = 0.015
    cell: float = 0.010
    block: float = 0.020
    stall_share: float = 0.0
    stall_factor: float = 0.7


QUIET = Noise(0.0, 0.0, 0.0)
USUAL = Noise()
STALLING = Noise(stall_share=0.03)
"""Heavy tails, for the table with stalls."""


def noise_of(table: Table) -> Noise:
    """What is real for a table."""
    return STALLING if table.name == "stairs" else USUAL


class TableFlow(Flow):
    """A study on a table.

    Args:
        table: the ground truth.
        seed: of the search and of the noise.
        noise: added to each measurement.
        dies: configs whose engine does not start.
        watch: called with every record.
        baseline, trials, rounds, finalists, may_stop: as in Task.
    """

    def __init__(
        self,
        table: Table,
        *,
        seed: int,
        noise: Noise,
        dies: Callable[[Mapping[str, Scalar]], bool] = lambda _: False,
        watch: Callable[[TrialRecord], None] = lambda _: None,
        baseline: ServeConfig | None = None,
        trials: int = 40,
        may_stop: bool = True,
        rounds: int = 3,
        finalists: int = 2,
    ) -> None:
        space = table.space
        objective = parse_objective("throughput")
        task = Task(
            space=space,
            conditions=tuple(condition_of(key) for key in table.conditions),
            baseline=baseline or space.serve_config(space.baseline()),
            objective=objective,
            slos=(),
            temperature_range=None,
            rules=Rules(objective, (), 0.95, temperature_searched=False),
            trials=trials,
            rounds=rounds,
            finalists=finalists,
            seed=seed,
            budget_s=None,
            may_stop=may_stop,
        )
        super().__init__(task, lambda _: None)
        self.table = table
        self._seed, self._noise, self._dies, self._watch = seed, noise, dies, watch

    def why_no_baseline(self, record: TrialRecord) -> str:
        """The table has every baseline."""
        return f"no baseline in table {self.table.name}: {record.failure}"

    async def run(self, trial: TrialPlan) -> TrialRecord:
        """Looks the trial up and adds noise."""
        record = look_up(self.table, trial, seed=self._seed, noise=self._noise, dies=self._dies)
        self._watch(record)
        return record


def look_up(
    table: Table,
    trial: TrialPlan,
    *,
    seed: int,
    noise: Noise,
    dies: Callable[[Mapping[str, Scalar]], bool] = lambda _: False,
) -> TrialRecord:
    """The record of a trial."""
    values = trial.serve_config.values
    seconds = {ENGINE_START: table.start_s}
    measured: dict[str, Measurement] = {}
    # A schedule of draft lengths is made by the study and is in no table.
    dead = dies(values) or key_of(table.space, values) not in table.cells
    if not dead:
        rng = np.random.default_rng([seed, trial.number])
        launch = rng.normal(0.0, noise.launch)
        for key in trial.conditions:
            cell = table.cell(values, key)
            part: Part = "held_out" if trial.phase == "confirm" else "search"
            measured[key] = _measurement(key, part, cell, _factors(rng, launch, len(cell.block_tok_s), noise))
            seconds[REPLAY] = seconds.get(REPLAY, 0.0) + cell.replay_s
    return TrialRecord(
        plan=trial,
        status="rejected" if dead else "measured",
        failure=DIED if dead else None,
        engine_version="0.32.0+table",
        seconds=seconds,
        measurements=measured,
    )


def condition_of(key: str) -> Condition:
    """`code/c8` or `support/t0.8/c1`."""
    parts = key.split("/")
    temperature = next((float(part[1:]) for part in parts[1:] if part.startswith("t")), None)
    return Condition(key, parts[0], temperature, Load("concurrency", float(parts[-1][1:])))


def _factors(rng: np.random.Generator, launch: float, blocks: int, noise: Noise) -> list[float]:
    """One factor for each block."""
    logs = launch + rng.normal(0.0, noise.cell) + rng.normal(0.0, noise.block, blocks)
    stalled = rng.random(blocks) < noise.stall_share
    return [float(f) for f in np.exp(logs) * np.where(stalled, noise.stall_factor, 1.0)]


def _measurement(condition: str, part: Part, cell: Cell, factors: list[float]) -> Measurement:
    """The cell times the factors; the blocks' geometric mean is the table's throughput where there is no noise."""
    total = math.exp(sum(map(math.log, factors)) / len(factors))
    centre = math.exp(sum(map(math.log, cell.block_tok_s)) / len(cell.block_tok_s))
    value = cell.metrics["output_tok_s"]
    slower = {name: cell.metrics[name] / total for name in ("tpot_mean_s", "ttft_mean_s")}
    blocks = [
        BlockValue(block=i, metrics={"output_tok_s": own / centre * value * factor})
        for i, (own, factor) in enumerate(zip(cell.block_tok_s, factors, strict=True))
    ]
    return Measurement.model_construct(
        condition=condition,
        part=part,
        temperature=None,
        load="concurrency=1",
        started_at="2026-01-01T00:00:00+00:00",
        replay_s=cell.replay_s,
        attempts=1,
        problems=(),
        metrics={**cell.metrics, **slower, "output_tok_s": value * total},
        blocks=tuple(blocks),
        greedy_outputs={},
    )
