"""What a recommendation must respect, and what a measurement must meet to be one. Pure."""

import math
from dataclasses import dataclass

from tuner.objective import Objective, Slo
from tuner.records import Measurement, TrialRecord


@dataclass(frozen=True, slots=True)
class Rules:
    """What a recommendation must respect."""

    objective: Objective
    slos: tuple[Slo, ...]
    confidence: float
    temperature_searched: bool


def objective_value(record: TrialRecord | None, condition: str, rules: Rules) -> float | None:
    """The objective as it was measured; None where it was not, or not validly."""
    measurement = record.measurements.get(condition) if record else None
    if measurement is None or not measurement.valid:
        return None
    value = measurement.metrics.get(rules.objective.metric)
    return None if value is None or math.isnan(value) or value <= 0 else value


def meets_slos(measurement: Measurement | None, rules: Rules) -> bool:
    """Whether every SLO held."""
    return measurement is not None and all(slo.violation(measurement.metrics) <= 0 for slo in rules.slos)
