"""The search: the only module that knows Optuna.

Every condition has its own Optuna study; they take turns to propose, and every launch is told to all of them. The
trial records are the truth: before each proposal a study is made afresh from them, with a sampler seeded by the
study's seed and the number of trials. So a resumed search proposes exactly what the undisturbed one would have, and
no half-told trial can be left behind. `export_studies` writes the same studies to a database for Optuna's own tools.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from search_spaces import ResolvedSpace, Scalar
from tuner.objective import Objective, Slo
from tuner.records import TrialRecord

TEMPERATURE = "temperature"
MAX_PROPOSALS = 200
# Random proposals before the model takes over. Baseline, recipe and seeds come first and count as observations too.
STARTUP_TRIALS = 8


class Search:
    """Proposes knob values for one study of the tuner."""

    def __init__(
        self,
        space: ResolvedSpace,
        *,
        objective: Objective,
        slos: tuple[Slo, ...],
        temperature_range: tuple[float, float] | None,
        seed: int,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        self._objective = objective
        self._slos = slos
        self._seed = seed
        self.distributions = _distributions(space, temperature_range)

    def propose(self, condition: str, records: list[TrialRecord]) -> dict[str, Scalar] | None:
        """Values that no finished trial has tried, proposed by one condition's study.

        Returns:
            Knob values (and `temperature` when it is searched), or None when nothing new could be found.
        """
        study = self._study(condition, records, storage=None)
        tried = {(r.plan.serve_config.id, r.plan.temperature) for r in records}
        for _ in range(MAX_PROPOSALS):
            trial = study.ask(fixed_distributions=self.distributions)
            values = dict(trial.params)
            knobs = {name: value for name, value in values.items() if name != TEMPERATURE}
            refused = self._space.refusal(self._space.complete(knobs))
            new = (self._space.serve_config(knobs).id, values.get(TEMPERATURE)) not in tried
            if refused is None and new:
                return values
            self._tell_unlaunched(study, trial, condition, records, knobs, refused=refused is not None)
        return None

    def export_studies(self, path: Path, conditions: Iterable[str], records: list[TrialRecord]) -> None:
        """Writes one Optuna study per condition to an SQLite file; trials already there are left alone."""
        storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
        try:
            for condition in conditions:
                self._study(condition, records, storage=storage)
        finally:
            storage.engine.dispose()

    def _study(
        self, condition: str, records: list[TrialRecord], *, storage: optuna.storages.RDBStorage | None
    ) -> optuna.Study:
        sampler = optuna.samplers.TPESampler(
            seed=_derived_seed(self._seed, condition, len(records)),
            n_startup_trials=STARTUP_TRIALS,
            constant_liar=False,
        )
        study = optuna.create_study(
            study_name=condition,
            storage=storage,
            sampler=sampler,
            direction=self._objective.direction,
            load_if_exists=True,
        )
        told = {trial.user_attrs.get("trial") for trial in study.trials}
        for record in records:
            if record.plan.number not in told and (frozen := self._observation(condition, record, records)):
                study.add_trial(frozen)
        return study

    def _observation(
        self, condition: str, record: TrialRecord, records: list[TrialRecord]
    ) -> optuna.trial.FrozenTrial | None:
        """A trial as one condition sees it; None when it teaches nothing about the configuration."""
        # What was measured belongs to the values in effect; where those lie outside the space, to the ones asked for.
        params = self._params(record.effective(), record.plan.temperature)
        params = params or self._params(record.values(), record.plan.temperature)
        if record.status == "failed" or record.plan.phase == "confirm" or params is None:
            return None
        measurement = record.measurements.get(condition)
        constraints = {"launch": -1.0 if measurement else 1.0}
        if measurement is not None:
            if not measurement.valid:
                return None
            value = measurement.metrics.get(self._objective.metric, math.nan)
            constraints |= {slo.name: slo.violation(measurement.metrics) for slo in self._slos}
        else:
            value = math.nan
            constraints |= dict.fromkeys((slo.name for slo in self._slos), 1.0)
        if math.isnan(value):
            value = self._worst(condition, records)
        return optuna.trial.create_trial(
            value=value,
            params=params,
            distributions=self.distributions,
            constraints=constraints,
            user_attrs={"trial": record.plan.number, "phase": record.plan.phase, "config": record.plan.serve_config.id},
        )

    def _params(self, values: Mapping[str, Scalar], temperature: float | None) -> dict[str, Scalar] | None:
        """Knob values as Optuna parameters; None when they lie outside the space (a user's own baseline may)."""
        params: dict[str, Scalar] = {}
        for name, distribution in self.distributions.items():
            value = values.get(name) if name != TEMPERATURE else temperature
            if value is None and (name == TEMPERATURE or not self._space.knobs[name].is_alive(values)):
                # A dead knob, or a temperature as recorded: any value would do, so take the middle.
                value = _middle(distribution)
            try:
                inside = distribution._contains(distribution.to_internal_repr(value))  # noqa: SLF001 - Optuna has no public test for membership
            except ValueError:
                inside = False
            if not inside:
                return None
            params[name] = value
        return params

    def _tell_unlaunched(
        self,
        study: optuna.Study,
        trial: optuna.Trial,
        condition: str,
        records: list[TrialRecord],
        knobs: Mapping[str, Scalar],
        *,
        refused: bool,
    ) -> None:
        """A refused proposal teaches by a violated constraint, a repeated one by the value that is already known."""
        same = (self._space.serve_config(knobs).id, trial.params.get(TEMPERATURE))
        known = next(
            (
                r
                for r in records
                if (r.plan.serve_config.id, r.plan.temperature) == same and condition in r.measurements
            ),
            None,
        )
        value = known.measurements[condition].metrics.get(self._objective.metric) if known and not refused else None
        trial.set_constraint("launch", 1.0 if refused or value is None else -1.0)
        for slo in self._slos:
            metrics = known.measurements[condition].metrics if known else {}
            trial.set_constraint(slo.name, slo.violation(metrics))
        study.tell(trial, self._worst(condition, records) if value is None else value)

    def _worst(self, condition: str, records: list[TrialRecord]) -> float:
        """The worst value seen, so that a crash never wins whatever the direction."""
        seen = [
            r.measurements[condition].metrics[self._objective.metric]
            for r in records
            if condition in r.measurements and self._objective.metric in r.measurements[condition].metrics
        ]
        if not seen:
            return 0.0 if self._objective.direction == "maximize" else 1e9
        return min(seen) if self._objective.direction == "maximize" else max(seen)


def _distributions(space: ResolvedSpace, temperature_range: tuple[float, float] | None) -> dict[str, BaseDistribution]:
    distributions: dict[str, BaseDistribution] = {}
    for name, knob in space.tunable().items():
        if knob.choices is not None:
            distributions[name] = CategoricalDistribution(knob.choices)
        elif isinstance(knob.high, int) and knob.low is not None:
            distributions[name] = IntDistribution(knob.low, knob.high, step=knob.step)
    if temperature_range:
        distributions[TEMPERATURE] = FloatDistribution(*temperature_range, step=0.1)
    return distributions


def _middle(distribution: BaseDistribution) -> Scalar:
    if isinstance(distribution, IntDistribution | FloatDistribution):
        steps = round((distribution.high - distribution.low) / (distribution.step or 1)) // 2
        return distribution.low + steps * (distribution.step or 1)
    assert isinstance(distribution, CategoricalDistribution)  # noqa: S101 - _distributions makes no other kind
    return distribution.choices[len(distribution.choices) // 2]


def _derived_seed(seed: int, condition: str, count: int) -> int:
    digest = hashlib.sha256(f"{seed}/{condition}/{count}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
