"""From trial records to Optuna trials: what one condition's study is told about each launch.

A configuration's failure is a violated constraint with the worst value seen, so that a crash teaches and never wins;
the infrastructure's failures, invalid measurements and the confirmation are not told.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from search_spaces import ResolvedSpace, Scalar
from tuner.objective import Objective, Slo
from tuner.records import TrialRecord
from tuner.search.names import LAUNCH, TEMPERATURE


def distributions_of(
    space: ResolvedSpace, temperature_range: tuple[float, float] | None
) -> dict[str, BaseDistribution]:
    """Optuna's view of the tunable knobs, and of the temperature when it is searched."""
    distributions: dict[str, BaseDistribution] = {}
    for name, knob in space.tunable().items():
        if knob.choices is not None:
            distributions[name] = CategoricalDistribution(knob.choices)
        elif isinstance(knob.high, int) and knob.low is not None:
            distributions[name] = IntDistribution(knob.low, knob.high, step=knob.step)
    if temperature_range:
        distributions[TEMPERATURE] = FloatDistribution(*temperature_range, step=0.1)
    return distributions


def middle(distribution: BaseDistribution) -> Scalar:
    """The value that stands for a dead knob."""
    if isinstance(distribution, IntDistribution | FloatDistribution):
        steps = round((distribution.high - distribution.low) / (distribution.step or 1)) // 2
        return distribution.low + steps * (distribution.step or 1)
    assert isinstance(distribution, CategoricalDistribution)  # noqa: S101 - distributions_of makes no other kind
    return distribution.choices[len(distribution.choices) // 2]


@dataclass(frozen=True, slots=True)
class Observations:
    """How records become Optuna trials."""

    space: ResolvedSpace
    distributions: dict[str, BaseDistribution]
    objective: Objective
    slos: tuple[Slo, ...]

    def trial(
        self, condition: str, record: TrialRecord, records: Sequence[TrialRecord]
    ) -> optuna.trial.FrozenTrial | None:
        """A trial as one condition sees it; None when it teaches nothing about the configuration."""
        # What was measured belongs to the values in effect; where those lie outside the space, to the ones asked for.
        params = self.params(record.effective(), record.plan.temperature)
        params = params or self.params(record.values(), record.plan.temperature)
        if record.status == "failed" or record.plan.phase == "confirm" or params is None:
            return None
        measurement = record.measurements.get(condition)
        constraints = {LAUNCH: -1.0 if measurement else 1.0}
        value = math.nan
        if measurement is not None:
            if not measurement.valid:
                return None
            value = measurement.metrics.get(self.objective.metric, math.nan)
            constraints |= {slo.name: slo.violation(measurement.metrics) for slo in self.slos}
        elif record.status == "measured":
            return None  # this condition was left out on purpose, not for a fault
        else:
            constraints |= dict.fromkeys((slo.name for slo in self.slos), 1.0)
        if math.isnan(value):
            value = self.worst(condition, records)
        return optuna.trial.create_trial(
            value=value,
            params=params,
            distributions=self.distributions,
            constraints=constraints,
            user_attrs={"trial": record.plan.number, "phase": record.plan.phase, "config": record.plan.serve_config.id},
        )

    def params(self, values: Mapping[str, Scalar], temperature: float | None) -> dict[str, Scalar] | None:
        """Knob values as Optuna parameters; None when they lie outside the space (a user's own baseline may)."""
        params: dict[str, Scalar] = {}
        for name, distribution in self.distributions.items():
            value = values.get(name) if name != TEMPERATURE else temperature
            if value is None and (name == TEMPERATURE or not self.space.knobs[name].is_alive(values)):
                # A dead knob, or a temperature as recorded: any value would do, so take the middle.
                value = middle(distribution)
            try:
                inside = distribution._contains(distribution.to_internal_repr(value))  # noqa: SLF001 - Optuna has no public test for membership
            except ValueError:
                inside = False
            if not inside:
                return None
            params[name] = value
        return params

    def worst(self, condition: str, records: Sequence[TrialRecord]) -> float:
        """The worst value seen, so that a crash never wins whatever the direction."""
        seen = [
            r.measurements[condition].metrics[self.objective.metric]
            for r in records
            if condition in r.measurements and self.objective.metric in r.measurements[condition].metrics
        ]
        if not seen:
            return 0.0 if self.objective.direction == "maximize" else 1e9
        return min(seen) if self.objective.direction == "maximize" else max(seen)
