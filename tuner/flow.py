"""The steps of a study: which configuration is launched next, in which phase, under which name, and when it is enough.

How a step is run is the subclass's: study.py launches engines and writes files, the benches look a table up. What is
proposed is tuner/search, what is concluded is recommend.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces import ResolvedSpace, Scalar, ServeConfig
from tuner.budget import Budget
from tuner.conditions import Condition
from tuner.errors import NoEngineError
from tuner.objective import Objective, Slo
from tuner.predict import prediction_errors, recipe_method
from tuner.ranking import shortlist
from tuner.records import SEARCH_PHASES, Phase, TrialPlan, TrialRecord
from tuner.rules import Rules
from tuner.search.names import TEMPERATURE
from tuner.search.warm_start import Hint, starting_points
from tuner.trade_offs import compromise, schedule

if TYPE_CHECKING:
    from tuner.search.proposals import Search

# Gaps between measured draft lengths that are bisected before the surrogate is asked.
MOST_GAPS = 3
# Prefix caching that never hit anything under any condition is not worth the corners without it.
MIN_HIT_RATE = 0.02


@dataclass(frozen=True, slots=True)
class Task:
    """What a study decides about, and within which limits."""

    space: ResolvedSpace
    conditions: tuple[Condition, ...]
    baseline: ServeConfig
    objective: Objective
    slos: tuple[Slo, ...]
    temperature_range: tuple[float, float] | None
    rules: Rules
    trials: int
    rounds: int
    finalists: int
    seed: int
    budget_s: float | None
    hints: tuple[Hint, ...] = ()
    may_stop: bool = True
    """Whether the search ends when no launch is expected to pay any more."""


class Flow(ABC):
    """One study in progress: its steps, by name. A step that has a record is not run again.

    Args:
        task: what to decide.
        say: told what happens, one line each.
        begun: steps that an earlier run planned.
        records: steps that an earlier run finished.
    """

    def __init__(
        self,
        task: Task,
        say: Callable[[str], None],
        *,
        begun: dict[str, TrialPlan] | None = None,
        records: dict[str, TrialRecord] | None = None,
    ) -> None:
        self.task = task
        self._say = say
        self._begun = begun if begun is not None else {}
        self._records = records if records is not None else {}
        self._keys = tuple(condition.key for condition in task.conditions)

    @cached_property
    def _search(self) -> "Search":
        from tuner.search.proposals import Search  # imports Optuna

        task = self.task
        return Search(
            task.space,
            objective=task.objective,
            slos=task.slos,
            temperature_range=task.temperature_range,
            seed=task.seed,
            hints=task.hints,
        )

    @property
    def records(self) -> list[TrialRecord]:
        """Finished trials in order."""
        return list(self._records.values())

    @abstractmethod
    async def run(self, trial: TrialPlan) -> TrialRecord:
        """Launches and measures one trial."""

    @abstractmethod
    def why_no_baseline(self, record: TrialRecord) -> str:
        """One sentence on a baseline that cannot be measured."""

    def spent_s(self) -> float:
        """Seconds of the budget that are used up."""
        return sum(sum(record.seconds.values()) for record in self._records.values())

    def export_studies(self, path: Path) -> None:
        """Writes the conditions' Optuna studies to an SQLite file."""
        self._search.export_studies(path, self._keys, self.records)

    async def measure_baseline(self) -> None:
        """The configuration to beat.

        Raises:
            NoEngineError: it does not start or does not survive, so nothing can be compared with it.
        """
        record = await self._step("baseline", "baseline", self.task.baseline)
        if record.status != "measured":
            raise NoEngineError(self.why_no_baseline(record))
        invalid = [m for m in record.measurements.values() if not m.valid]
        if invalid:
            self._say(f"warning     the baseline's measurement of {invalid[0].condition} is invalid")

    async def measure_starting_points(self) -> None:
        """The vendor's recipe, what an earlier study liked, what is predicted, the corners, the space's own seeds."""
        space = self.task.space
        recipe = space.recipe()
        if recipe:
            await self._starting_point("recipe", "recipe", recipe)
        for index, values in enumerate(starting_points(self.task.hints, space)):
            await self._starting_point(f"seed/warm/{index}", "seed", values)
        for key in self._keys:
            step = f"seed/predicted/{key}"
            await self._starting_point(step, "seed", self._search.predicted(key, self.records))
        for index in range(MOST_GAPS):
            await self._starting_point(f"seed/gap/{index}", "seed", self._search.unexplored(self.records))
        caching_matters = self._caching_matters()
        for index, seed in enumerate(space.seeds):
            if caching_matters or seed.get("prefix_caching") is not False:
                await self._starting_point(f"seed/{index}", "seed", space.starting_point(seed))

    async def search(self) -> None:
        """Asks the conditions' studies until launches or time are used up, or nothing more is expected of them."""
        number = 0
        while not self._search_is_over():
            step = f"search/{number}"
            number += 1
            if step in self._records:
                continue
            if step in self._begun:
                await self._step(step, "search", self._begun[step].serve_config)
                continue
            proposal = self._search.next(self._keys, self.records)
            if proposal is None:
                self._say("search: every combination has been tried")
                break
            if self.task.may_stop and not self._search.pays(proposal, self.records):
                self._say(f"search: another launch is expected to gain {proposal.expected_gain:.1%}; it no longer pays")
                break
            values = dict(proposal.values)
            temperature = values.pop(TEMPERATURE, None)
            await self._step(
                step,
                "search",
                self.task.space.serve_config(values),
                asked_by=proposal.asked_by,
                temperature=float(temperature) if isinstance(temperature, int | float) else None,
            )
        await self._measure_schedule()

    async def confirm(self) -> None:
        """Finalists against the baseline on held-out blocks, in rounds, each round in the opposite order."""
        finalists = self._finalists()
        names = ", ".join(record.plan.serve_config.label() for record, _ in finalists)
        self._say(f"confirming  {names or 'nothing: no configuration did better than the baseline'}")
        entrants = [(self._records["baseline"], self._keys), *finalists]
        for number in range(self.task.rounds):
            order = entrants if number % 2 == 0 else entrants[::-1]
            for record, conditions in order:
                await self._step(
                    f"confirm/{number}/{record.plan.serve_config.id}/{record.plan.number}",
                    "confirm",
                    record.plan.serve_config,
                    temperature=record.plan.temperature,
                    conditions=conditions,
                )

    async def _starting_point(self, step: str, phase: Phase, values: dict[str, Scalar] | None) -> None:
        if self._search_is_over() and step not in self._begun:
            return
        if step in self._begun:
            await self._step(step, phase, self._begun[step].serve_config)
        elif values is not None:
            await self._launch_new(step, phase, values)

    async def _launch_new(self, step: str, phase: Phase, values: dict[str, Scalar]) -> None:
        reason = self.task.space.refusal(values)
        config = self.task.space.serve_config(values)
        if reason:
            self._say(f"{step}: refused before launch: {reason}")
        elif config.id not in {record.plan.serve_config.id for record in self._records.values()}:
            await self._step(step, phase, config)

    async def _measure_schedule(self) -> None:
        """A draft length for each batch size, made from the winners per concurrency; measured like any other."""
        step = "seed/schedule"
        if step in self._begun:
            await self._step(step, "seed", self._begun[step].serve_config)
            return
        if self._confirming() or self._budget().is_short(self.records, self.spent_s()):
            return
        values = schedule(self.task.conditions, self.records, self.task.rules, self.task.space, self._beliefs())
        if values is not None:
            await self._launch_new(step, "seed", values)

    async def _step(
        self,
        step: str,
        phase: Phase,
        config: ServeConfig,
        *,
        asked_by: str | None = None,
        temperature: float | None = None,
        conditions: Sequence[str] | None = None,
    ) -> TrialRecord:
        """The record of a step, run now unless an earlier run finished it."""
        if step in self._records:
            return self._records[step]
        trial = self._begun.get(step) or TrialPlan(
            number=len(self._begun),
            step=step,
            phase=phase,
            asked_by=asked_by,
            temperature=temperature,
            serve_config=config,
            conditions=tuple(conditions or self._keys),
        )
        self._begun[step] = trial
        record = await self.run(trial)
        self._say_prediction_errors(record)
        self._records[step] = record
        return record

    def _say_prediction_errors(self, record: TrialRecord) -> None:
        """How far off the prediction of a draft length was, now that it is measured."""
        method = recipe_method(self.task.space)
        if method is None:
            return
        errors = prediction_errors(record, self.records, method=method, objective=self.task.objective.metric)
        if errors:
            each = ", ".join(f"{error.relative:+.0%} ({error.condition})" for error in errors)
            self._say(f"predicted   K={errors[0].k}: {errors[0].metric} off by {each}")

    def _finalists(self) -> list[tuple[TrialRecord, tuple[str, ...]]]:
        """Distinct finalists with the conditions that each is a finalist for, in order of their trial."""
        beliefs = self._beliefs()
        chosen: dict[int, tuple[TrialRecord, tuple[str, ...]]] = {}
        for key in self._keys:
            for record in shortlist(key, self.records, self.task.rules, count=self.task.finalists, beliefs=beliefs):
                _, conditions = chosen.get(record.plan.number, (record, ()))
                chosen[record.plan.number] = (record, (*conditions, key))
        shared = compromise(self._keys, self.records, self.task.rules, beliefs)
        if shared is not None and len(self._keys) > 1:
            chosen[shared.plan.number] = (shared, self._keys)
        return [chosen[number] for number in sorted(chosen)]

    def _beliefs(self) -> dict[str, dict[int, float]]:
        return {key: self._search.believed(key, self.records) for key in self._keys}

    def _caching_matters(self) -> bool:
        rates = [
            measurement.metrics.get("prefix_hit_rate", 1.0)
            for record in self.records
            if record.effective().get("prefix_caching", True) is not False
            for measurement in record.measurements.values()
        ]
        return not rates or max(rates) >= MIN_HIT_RATE

    def _confirming(self) -> bool:
        return any(plan.phase == "confirm" for plan in self._begun.values())

    def _budget(self) -> Budget:
        task = self.task
        return Budget(task.budget_s, rounds=task.rounds, finalists=task.finalists, conditions=len(task.conditions))

    def _search_is_over(self) -> bool:
        """Once the confirmation has begun, a resumed study must not add to the search that chose the finalists."""
        searched = sum(record.plan.phase in SEARCH_PHASES for record in self._records.values())
        over = self._confirming() or searched >= self.task.trials
        return over or self._budget().is_short(self.records, self.spent_s())
