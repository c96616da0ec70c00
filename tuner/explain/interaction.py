"""Two settings, alone and together: whether they multiply, help or hinder each other.

A square is four configurations that differ in two settings only. If independent their gains multiply; the difference to
that is paired by block. Settings that each save a part of the time of their own (decoding, prompts) add what they save,
which is more than the product; that expectation stands beside it. Why they differ is the rules' business.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

from search_spaces import Scalar
from tuner.explain.intervals import ratio
from tuner.explain.observed import CACHING, DROP_DISABLED, SPECULATION, Arm, log_gains
from tuner.explain.records import Corner, Figure, Interaction
from tuner.objective import Objective

Square = tuple[Arm, Arm, Arm, Arm]


def interactions(
    arms: Sequence[Arm], baseline: Arm | None, objective: Objective, confidence: float
) -> list[Interaction]:
    """Every square of one condition, speculation x prefix caching first."""
    found = []
    for both in arms:
        reference = _reference(both, baseline)
        changed = [n for n, value in both.factors.items() if value != reference.get(n) and n != DROP_DISABLED]
        for pair in combinations(sorted(changed, key=_rank), 2):
            square = _square(both, pair, reference, arms)
            if square is not None and (row := _row(square, pair, reference, objective, confidence)):
                found.append(row)
    return sorted(found, key=lambda row: (not row.first.startswith(SPECULATION), not row.second.startswith(CACHING)))


def _reference(both: Arm, baseline: Arm | None) -> dict[str, Scalar]:
    """What each setting is without: no speculation, no caching, else as in the baseline."""
    named = {**(baseline.factors if baseline else {}), SPECULATION: None, CACHING: False}
    return {name: named.get(name) for name in both.factors}


def _rank(name: str) -> int:
    return [SPECULATION, CACHING].index(name) if name in (SPECULATION, CACHING) else 2


def _square(both: Arm, pair: tuple[str, ...], reference: dict[str, Scalar], arms: Iterable[Arm]) -> Square | None:
    first, second = pair
    arms = list(arms)
    wanted = [
        {**both.factors, first: reference[first], second: reference[second]},
        {**both.factors, second: reference[second]},
        {**both.factors, first: reference[first]},
    ]
    corners = [next((arm for arm in arms if _is(arm, factors)), None) for factors in wanted]
    neither, first_only, second_only = corners
    if neither is None or first_only is None or second_only is None:
        return None
    return neither, first_only, second_only, both


def _is(arm: Arm, wanted: dict[str, Scalar]) -> bool:
    """Whether the arm has these settings; the block drop counts only where there is a cache and a draft."""
    names = {*arm.factors, *wanted} - {DROP_DISABLED}
    if any(arm.factors.get(name) != wanted.get(name) for name in names):
        return False
    alive = arm.caching and arm.method is not None
    return not alive or arm.factors.get(DROP_DISABLED) == wanted.get(DROP_DISABLED, False)


def _row(
    square: Square, pair: tuple[str, ...], reference: dict[str, Scalar], objective: Objective, confidence: float
) -> Interaction | None:
    neither, first, second, both = square
    logs = [log_gains(arm, neither, objective) for arm in (first, second, both)]
    shared = [block for block in logs[0] if block in logs[1] and block in logs[2]]
    if not shared:
        return None
    gains = [ratio([one[block] for block in shared], confidence) for one in logs]
    difference = [logs[2][block] - logs[0][block] - logs[1][block] for block in shared]
    names = [_setting(name, both.factors[name], reference[name]) for name in pair]
    rest = {n: v for n, v in both.factors.items() if n not in pair and v not in (reference.get(n), False)}
    left = 1 / gains[0].value + 1 / gains[1].value - 1
    return Interaction(
        condition=both.condition,
        first=names[0],
        second=names[1],
        context=", ".join(_setting(name, value, reference.get(name)) for name, value in rest.items()),
        neither=_corner(neither, Figure(value=1.0, count=len(shared)), objective),
        first_only=_corner(first, gains[0], objective),
        second_only=_corner(second, gains[1], objective),
        both=_corner(both, gains[2], objective),
        expected_gain=gains[0].value * gains[1].value,
        difference=ratio(difference, confidence),
        additive_gain=1 / left if left > 0 else None,
    )


def _corner(arm: Arm, gain: Figure, objective: Objective) -> Corner:
    return Corner(
        label=arm.label,
        trials=arm.trials,
        value=arm.metrics.get(objective.metric, math.nan),
        gain=gain,
        acceptance_length=arm.metrics.get("acceptance_length"),
        hit_rate=arm.metrics.get("prefix_hit_rate"),
    )


def _setting(name: str, value: Scalar, reference: Scalar) -> str:
    if name == SPECULATION:
        return f"{SPECULATION} ({value})"
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name}={value}" if reference is None else f"{name}={value} instead of {reference}"
