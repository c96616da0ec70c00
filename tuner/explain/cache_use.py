"""Cached prompt tokens of configurations with speculation against the ideal, in KV blocks.

The ideal is the same configuration without speculation, which never loses a block; where that was not measured, with
the block drop off. Same requests, same load, so what differs is what speculation did to the cache.
"""

import math
from collections.abc import Sequence

from search_spaces import SearchSpaceError, load_release
from tuner.explain.observed import DROP_DISABLED, SPECULATION, Arm
from tuner.explain.records import CacheUse


def cache_use(arms: Sequence[Arm]) -> list[CacheUse]:
    """One row for each speculating configuration with caching that has an ideal to compare with."""
    rows = []
    for arm in arms:
        ideal = ideal_of(arm, arms)
        if ideal is None or arm.cached_tokens is None or ideal.cached_tokens is None:
            continue
        block = arm.metrics.get("kv_block_tokens")
        requests = max(1, round(arm.metrics.get("requests", 1)))
        lost = ideal.cached_tokens - arm.cached_tokens
        rows.append(
            CacheUse(
                condition=arm.condition,
                label=arm.label,
                trial=arm.trials[0],
                ideal_label=ideal.label,
                kv_block_tokens=round(block) if block else None,
                cached_tokens=arm.cached_tokens,
                ideal_tokens=ideal.cached_tokens,
                requests=requests,
                lost_blocks_per_request=lost / block / requests if block else None,
                drops=drops_block(arm),
            )
        )
    return rows


def ideal_of(arm: Arm, arms: Sequence[Arm]) -> Arm | None:
    """Whose hits the arm would have if speculation cost it none."""
    if arm.method is None or not arm.caching:
        return None
    own = {n: v for n, v in arm.factors.items() if n not in (SPECULATION, DROP_DISABLED)}
    for other in arms:
        theirs = {n: v for n, v in other.factors.items() if n not in (SPECULATION, DROP_DISABLED)}
        if other.method is None and theirs == own:
            return other
    return drop_off_twin(arm, arms)


def drop_off_twin(arm: Arm, arms: Sequence[Arm]) -> Arm | None:
    """The same configuration with the block drop off."""
    if arm.factors.get(DROP_DISABLED) is not False:
        return None
    wanted = {**arm.factors, DROP_DISABLED: True}
    return next((other for other in arms if other.factors == wanted), None)


def drops_block(arm: Arm) -> bool | None:
    """Whether release and flags say that a hit loses its last block; None when the release is not known."""
    try:
        release, _ = load_release(arm.version)
    except SearchSpaceError:
        return None
    return arm.method in release.block_drop.methods and not arm.speculative.get("disable_eagle_block_drop", False)


def recompute_cost_s(arms: Sequence[Arm]) -> float | None:
    """Engine seconds that one prompt token costs to compute: time with caching off minus on, over the tokens saved.

    From the pair that saved most. A measurement's time at full load is requests x mean E2E / requests in flight, so it
    counts what the tokens cost everybody, whatever the load. None without such a pair.
    """
    best: tuple[float, float] | None = None
    for on in arms:
        off = next((arm for arm in arms if _caching_off_twin(on, arm)), None)
        saved = (on.cached_tokens or 0.0) - (off.cached_tokens or 0.0) if off else 0.0
        busy = [busy_s(arm) for arm in (off, on)] if off else []
        if saved <= 0 or len(busy) != 2 or busy[0] is None or busy[1] is None or busy[0] <= busy[1]:
            continue
        if best is None or saved > best[0]:
            best = (saved, (busy[0] - busy[1]) / saved)
    return best[1] if best else None


def busy_s(arm: Arm) -> float | None:
    """Seconds that the measurement would take at its full load throughout."""
    e2e_s, requests, width = (arm.metrics.get(n) for n in ("e2e_mean_s", "requests", "in_flight_mean"))
    return requests * e2e_s / width if e2e_s and requests and width and not math.isnan(e2e_s) else None


def _caching_off_twin(on: Arm, other: Arm) -> bool:
    if not on.caching or other.caching or (other.method is None) != (on.method is None):
        return False
    ours, theirs = (
        {n: v for n, v in a.factors.items() if n not in ("prefix caching", DROP_DISABLED)} for a in (on, other)
    )
    return ours == theirs
