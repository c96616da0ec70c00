"""What an earlier study on the same model suggests: where to look first, never what is true.

Another workload, another release, another host: the old figures are not measurements of this study. Only ratios to the
old baseline are read; the best old configurations are measured again, and the others count as very noisy observations
that a single launch of this study outweighs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces import ResolvedSpace, Scalar
from tuner.objective import Objective
from tuner.records import TrialRecord

NOISE = 0.25
"""Standard deviation of an old log gain as a guess of the new one; a launch of this study has about 0.02."""
RE_MEASURED = 2
"""Old configurations that are launched again, best first."""


@dataclass(frozen=True, slots=True)
class Hint:
    """One configuration of an earlier study."""

    values: dict[str, Scalar]
    temperature: float | None
    log_gains: dict[str, float]
    """By condition of the old study: log(how many times better than the old baseline)."""

    def log_gain(self, condition: str) -> float:
        """Of the condition of that name, else the mean over all."""
        known = self.log_gains.get(condition)
        return known if known is not None else sum(self.log_gains.values()) / len(self.log_gains)


def read_hints(records: Sequence[TrialRecord], objective: Objective) -> tuple[Hint, ...]:
    """Hints from an earlier study's records, best first; empty where its baseline was not measured."""
    baseline = next((r for r in records if r.plan.phase == "baseline" and r.status == "measured"), None)
    if baseline is None:
        return ()
    hints = []
    for record in records:
        if record is baseline or record.plan.phase == "confirm":
            continue
        gains = {}
        for condition, measurement in record.measurements.items():
            base = baseline.measurements.get(condition)
            value = measurement.metrics.get(objective.metric, math.nan) if measurement.valid else math.nan
            without = base.metrics.get(objective.metric, math.nan) if base and base.valid else math.nan
            if value > 0 and without > 0:
                gains[condition] = math.log(objective.gain(value, without))
        if gains:
            hints.append(Hint(record.values(), record.plan.temperature, gains))
    return tuple(sorted(hints, key=lambda hint: -max(hint.log_gains.values())))


def starting_points(hints: Sequence[Hint], space: ResolvedSpace) -> list[dict[str, Scalar]]:
    """The best old configurations that this space has and allows, without repetition."""
    points: dict[str, dict[str, Scalar]] = {}
    for hint in hints:
        point = inside(hint.values, space)
        if point is not None and len(points) < RE_MEASURED and max(hint.log_gains.values()) > 0:
            points.setdefault(space.serve_config(point).id, point)
    return list(points.values())


def inside(values: Mapping[str, Scalar], space: ResolvedSpace) -> dict[str, Scalar] | None:
    """Old values as values of this space; None when a knob has no such value here or a rule refuses them."""
    kept: dict[str, Scalar] = {}
    for name, value in values.items():
        knob = space.knobs.get(name)
        if knob is None:
            continue
        if knob.is_alive(values) and value != knob.engine_default and value not in knob.values():
            return None
        kept[name] = value
    complete = space.complete(kept)
    return None if space.refusal(complete) else complete
