"""Who is confirmed: the search's configurations under one condition, ranked by what is believed of them. Pure.

The best of many noisy measurements is the luckiest as often as the best. So they are ranked by the surrogate's mean at
each, which its neighbours have pulled to where they are, not by their own measurement.
"""

import math
from collections.abc import Mapping, Sequence

from tuner.records import SEARCH_PHASES, TrialRecord
from tuner.rules import Rules, meets_slos, objective_value

Beliefs = Mapping[str, Mapping[int, float]]
"""Condition -> trial number -> log value, better upwards; a trial that is missing is taken as it was measured."""
# Log units; nearer than this, nobody can tell, and the configuration that changes less is preferred.
CLOSE_CALL = 0.01


def acceptable_gains(
    condition: str, records: Sequence[TrialRecord], rules: Rules, beliefs: Beliefs
) -> dict[int, float]:
    """Trial number -> log value of each measured configuration that meets every SLO, the baseline included."""
    sign = 1.0 if rules.objective.direction == "maximize" else -1.0
    believed = beliefs.get(condition, {})
    gains = {}
    for record in records:
        value = objective_value(record, condition, rules)
        if record.plan.phase not in SEARCH_PHASES or value is None:
            continue
        if meets_slos(record.measurements[condition], rules):
            gains[record.plan.number] = believed.get(record.plan.number, sign * math.log(value))
    return gains


def shortlist(
    condition: str, records: Sequence[TrialRecord], rules: Rules, *, count: int, beliefs: Beliefs | None = None
) -> list[TrialRecord]:
    """The best few of the search that beat the baseline and meet every SLO, best first.

    Close calls go to the configuration that sets fewer knobs: easier to keep, and no worse as far as one can tell.
    """
    gains = acceptable_gains(condition, records, rules, beliefs or {})
    baseline = next((r for r in records if r.plan.phase == "baseline"), None)
    base = gains.pop(baseline.plan.number, -math.inf) if baseline else -math.inf
    by_number = {record.plan.number: record for record in records}
    ranked = {number: gain for number, gain in gains.items() if gain > base}
    chosen: list[TrialRecord] = []
    while ranked and len(chosen) < count:
        best = max(ranked.values())
        close = [number for number, gain in ranked.items() if gain >= best - CLOSE_CALL]
        pick = min(close, key=lambda n: (len(by_number[n].plan.serve_config.identity), -ranked[n], n))
        chosen.append(by_number[pick])
        del ranked[pick]
    return chosen
