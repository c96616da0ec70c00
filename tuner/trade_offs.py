"""One engine for several conditions: the compromise configuration, and a draft length for each batch size.

Both are made from what the search measured and are then measured themselves; neither is believed. Pure.
"""

import math
from collections.abc import Mapping, Sequence

from search_spaces import ResolvedSpace, Scalar
from search_spaces.schedules import schedule_text
from tuner.conditions import Condition
from tuner.predict import K_KNOB
from tuner.ranking import Beliefs, acceptable_gains
from tuner.records import TrialRecord
from tuner.rules import Rules

SCHEDULE_KNOB = "num_speculative_tokens_per_batch_size"
LARGEST_BATCH = 1024
"""Where the last step of a schedule ends; the engine clamps it to its own limit."""


def compromise(
    conditions: Sequence[str], records: Sequence[TrialRecord], rules: Rules, beliefs: Beliefs
) -> TrialRecord | None:
    """The trial whose largest regret over all conditions is smallest; None when none is acceptable under every one.

    Regret is how much faster the best of the search is under a condition. The baseline takes part: it may be the one.
    """
    gains = {key: acceptable_gains(key, records, rules, beliefs) for key in conditions}
    shared = set.intersection(*(set(found) for found in gains.values())) if gains else set()
    if not shared:
        return None
    best = {key: max(found.values()) for key, found in gains.items()}
    number = min(shared, key=lambda n: (max(best[key] - gains[key][n] for key in conditions), n))
    return next(record for record in records if record.plan.number == number)


def schedule(
    conditions: Sequence[Condition],
    records: Sequence[TrialRecord],
    rules: Rules,
    space: ResolvedSpace,
    beliefs: Beliefs,
) -> dict[str, Scalar] | None:
    """Values with a draft length for each batch size, from the winners at each concurrency.

    None where the release has no such key, fewer than two concurrencies are measured, or one length wins everywhere.
    """
    if SCHEDULE_KNOB not in space.facts.release.speculative_fields or K_KNOB not in space.knobs:
        return None
    winners = _winning_lengths(conditions, records, rules, beliefs)
    if len(winners) < 2 or len(set(winners.values())) < 2 or not max(winners.values()):
        return None
    keys = [c.key for c in conditions]
    shared = compromise(keys, [r for r in records if _length(r.values())], rules, beliefs)
    if shared is None:
        return None
    values = {**shared.values(), K_KNOB: max(winners.values()), SCHEDULE_KNOB: schedule_text(_steps(winners))}
    return values if space.refusal(values) is None else None


def _winning_lengths(
    conditions: Sequence[Condition], records: Sequence[TrialRecord], rules: Rules, beliefs: Beliefs
) -> dict[int, int]:
    """Concurrency -> the draft length that loses least over all conditions at it."""
    by_load: dict[int, list[str]] = {}
    for condition in conditions:
        if condition.load.kind == "concurrency":
            by_load.setdefault(int(condition.load.value), []).append(condition.key)
    winners = {}
    for concurrency, keys in by_load.items():
        best = compromise(keys, records, rules, beliefs)
        if best is not None:
            winners[concurrency] = _length(best.values())
    return winners


def _steps(winners: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Each length holds up to the geometric middle between its concurrency and the next; equal neighbours are one."""
    ordered = sorted(winners.items())
    steps: list[tuple[int, int, int]] = []
    first = 1
    for (concurrency, k), following in zip(ordered, [*ordered[1:], None], strict=True):
        last = LARGEST_BATCH if following is None else max(first, math.isqrt(concurrency * following[0]))
        if steps and steps[-1][2] == k:
            steps[-1] = (steps[-1][0], last, k)
        else:
            steps.append((first, last, k))
        first = last + 1
    return steps


def _length(values: Mapping[str, Scalar]) -> int:
    k = values.get(K_KNOB)
    return k if isinstance(k, int) and values.get("method") not in (None, "none") else 0
