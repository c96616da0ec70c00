"""Ways to search a table: the tuner's own, and what people do without it. Each launches configs until it is stopped.

All are measured alike: a launch is measured under every condition with the same noise, and every strategy that learns
may learn from all of them. What repeats a config pays for the launch, as it does outside of this bench.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from functools import partial

import optuna

from bench.grids.table import Table, distinct_values, key_of
from bench.grids.table_flow import Noise, TableFlow, look_up
from search_spaces import Scalar
from tuner.records import TrialPlan, TrialRecord
from tuner.search.observations import distributions_of

Watch = Callable[[TrialRecord], None]
Dies = Callable[[Mapping[str, Scalar]], bool]
Strategy = Callable[[Table, int, Noise, Watch, Dies], None]


class Launcher:
    """Launches configs of a table one after the other for strategies that are not the tuner's flow."""

    def __init__(self, table: Table, seed: int, noise: Noise, watch: Watch, dies: Dies) -> None:
        self._table, self._seed, self._noise, self._watch, self._dies = table, seed, noise, watch, dies
        self.records: list[TrialRecord] = []

    def launch(self, values: Mapping[str, Scalar]) -> TrialRecord:
        """Measures one config under every condition."""
        number = len(self.records)
        trial = TrialPlan(
            number=number,
            step=f"search/{number}",
            phase="search",
            asked_by=None,
            temperature=None,
            serve_config=self._table.space.serve_config(values),
            conditions=self._table.conditions,
        )
        record = look_up(self._table, trial, seed=self._seed, noise=self._noise, dies=self._dies)
        self.records.append(record)
        self._watch(record)
        return record


def ours(table: Table, seed: int, noise: Noise, watch: Watch, dies: Dies) -> None:
    """The study's own steps, up to the confirmation."""
    flow = TableFlow(table, seed=seed, noise=noise, watch=watch, dies=dies, trials=10_000, may_stop=False)

    async def search() -> None:
        await flow.measure_baseline()
        await flow.measure_starting_points()
        await flow.search()

    asyncio.run(search())


def tpe_defaults(table: Table, seed: int, noise: Noise, watch: Watch, dies: Dies) -> None:
    """Optuna's TPESampler as it comes, a study per condition, in turns, each told of every launch."""
    launcher = Launcher(table, seed, noise, watch, dies)
    distributions = distributions_of(table.space, None)
    studies = [
        optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed * 100 + i), direction="maximize")
        for i in range(len(table.conditions))
    ]
    while True:
        turn = len(launcher.records) % len(studies)
        trial = studies[turn].ask(distributions)
        record = launcher.launch(table.space.complete(trial.params))
        for index, (study, condition) in enumerate(zip(studies, table.conditions, strict=True)):
            measured = record.measurements.get(condition)
            state = optuna.trial.TrialState.COMPLETE if measured else optuna.trial.TrialState.FAIL
            value = measured.metrics["output_tok_s"] if measured else None
            if index == turn:
                study.tell(trial, value, state=state)
                continue
            study.add_trial(
                optuna.trial.create_trial(value=value, params=trial.params, distributions=distributions, state=state)
            )


def random_order(table: Table, seed: int, noise: Noise, watch: Watch, dies: Dies) -> None:
    """Every config once, in a random order."""
    launcher, configs = Launcher(table, seed, noise, watch, dies), list(distinct_values(table.space))
    random.Random(seed).shuffle(configs)
    for values in configs:
        launcher.launch(values)


def grid_order(table: Table, seed: int, noise: Noise, watch: Watch, dies: Dies) -> None:
    """Every config once, nested loops over the knobs; the seed decides which knob is outermost."""
    launcher, knobs = Launcher(table, seed, noise, watch, dies), list(table.space.tunable())
    random.Random(seed).shuffle(knobs)
    order = {name: {value: i for i, value in enumerate(k.values())} for name, k in table.space.tunable().items()}

    def place(values: Mapping[str, Scalar]) -> tuple[int, ...]:
        return tuple(order[name][values[name]] for name in knobs)

    for values in sorted(distinct_values(table.space), key=place):
        launcher.launch(values)


def coordinate_descent(table: Table, seed: int, noise: Noise, watch: Watch, dies: Dies) -> None:
    """One knob at a time from the recipe, as by hand: all its values, keep the best; a condition after the other.

    A config that was measured is not launched again. When no knob helps any more it starts over from a random config.
    """
    launcher, draw = Launcher(table, seed, noise, watch, dies), random.Random(seed)
    known: dict[str, TrialRecord] = {}

    def speed(values: Mapping[str, Scalar], condition: str) -> float:
        key = key_of(table.space, values)
        if key not in known:
            known[key] = launcher.launch(values)
        measured = known[key].measurements.get(condition)
        return measured.metrics["output_tok_s"] if measured else 0.0

    everything = list(distinct_values(table.space))
    start = {**table.space.baseline(), **(table.space.recipe() or {})}
    while len(known) < len(everything):
        for condition in table.conditions:
            _descend(table, partial(speed, condition=condition), dict(start), draw)
        start = dict(draw.choice(everything))


def _descend(
    table: Table, speed: Callable[[Mapping[str, Scalar]], float], values: dict[str, Scalar], draw: random.Random
) -> None:
    knobs, improved = list(table.space.tunable()), True
    while improved:
        improved, before = False, speed(values)
        draw.shuffle(knobs)
        for name in knobs:
            best = max(({**values, name: value} for value in table.space.tunable()[name].values()), key=speed)
            if speed(best) > before:
                values, before, improved = best, speed(best), True


STRATEGIES: dict[str, Strategy] = {
    "ours": ours,
    "tpe_defaults": tpe_defaults,
    "random": random_order,
    "grid_order": grid_order,
    "coordinate_descent": coordinate_descent,
}
