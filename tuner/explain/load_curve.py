"""Throughput and latency over the load, where speculation stops paying, and where the engine is full."""

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from tuner.explain.intervals import around
from tuner.explain.observed import Arm
from tuner.explain.records import LoadCurve, LoadPoint, LoadSeries

ALTERNATIVES = 4
# Throughput that rises by less than this per doubling of the load has stopped rising, as far as noise of 1 to 3% tells.
FLAT = 0.05


def load_curves(
    arms: Sequence[Arm], *, baseline: str | None, recommended: Mapping[str, Collection[str]], confidence: float
) -> list[LoadCurve]:
    """One curve for each profile and temperature that was measured at two loads or more.

    Args:
        arms: of all conditions.
        baseline: id of the baseline's configuration.
        recommended: ids of recommended configurations by profile.
        confidence: level of the intervals.
    """
    groups: dict[tuple[str, float | None], list[Arm]] = {}
    for arm in arms:
        groups.setdefault((arm.profile, arm.temperature), []).append(arm)
    curves = []
    for (profile, temperature), found in groups.items():
        if len({arm.condition for arm in found}) < 2:
            continue
        series = _series(found, baseline, recommended.get(profile, ()), confidence)
        crossover, wins = _crossover(found)
        curves.append(
            LoadCurve(
                profile=profile, temperature=temperature, series=series, crossover=crossover, speculation_wins=wins
            )
        )
    return curves


def _series(
    arms: Sequence[Arm], baseline: str | None, recommended: Collection[str], confidence: float
) -> tuple[LoadSeries, ...]:
    by_config: dict[str, list[Arm]] = {}
    for arm in arms:
        by_config.setdefault(arm.config.id, []).append(arm)
    special = [key for key in by_config if key == baseline or key in recommended]
    others = sorted((key for key in by_config if key not in special), key=lambda key: -_best(by_config[key], arms))
    rows = [
        _one(
            by_config[key],
            "baseline" if key == baseline else "recommendation" if key in recommended else "alternative",
            confidence,
        )
        for key in [*special, *others[:ALTERNATIVES]]
    ]
    order = ["baseline", "recommendation", "alternative"]
    return tuple(sorted(rows, key=lambda row: order.index(row.role)))


def _best(own: Sequence[Arm], arms: Sequence[Arm]) -> float:
    """The share of the best throughput that a configuration reaches at the load that suits it most."""
    shares = []
    for arm in own:
        rivals = [_tok_s(other) for other in arms if other.condition == arm.condition]
        shares.append(_tok_s(arm) / max(rivals) if max(rivals) > 0 else 0.0)
    return max(shares)


def _one(arms: Sequence[Arm], role: str, confidence: float) -> LoadSeries:
    points = sorted((_point(arm, confidence) for arm in arms), key=lambda point: point.concurrency)
    return LoadSeries.model_validate(
        {
            "label": arms[0].label,
            "role": role,
            "speculates": arms[0].method is not None,
            "trials": sorted({number for arm in arms for number in arm.trials}),
            "points": points,
            "saturation": _saturation(points),
        }
    )


def _point(arm: Arm, confidence: float) -> LoadPoint:
    metrics = arm.metrics
    return LoadPoint(
        concurrency=arm.concurrency,
        load=str(arm.load),
        condition=arm.condition,
        output_tok_s=around(_tok_s(arm), list(arm.block_values("output_tok_s").values()), confidence),
        ttft_s=metrics.get("ttft_p50_s"),
        tpot_s=metrics.get("tpot_p50_s"),
        e2e_s=metrics.get("e2e_p50_s"),
        goodput_rate=metrics.get("goodput_rate"),
        goodput_share=metrics.get("goodput_share"),
    )


def _saturation(points: Sequence[LoadPoint]) -> float | None:
    """The load from which on every further step rises by less than FLAT per doubling."""
    found = None
    for here, there in pairwise(points):
        doublings = math.log2(there.concurrency / here.concurrency) if there.concurrency > here.concurrency else 0.0
        rise = there.output_tok_s.value / here.output_tok_s.value - 1 if here.output_tok_s.value > 0 else math.inf
        flat = doublings > 0 and rise / doublings < FLAT
        found = (found or here.concurrency) if flat else None
    return found


def _crossover(arms: Sequence[Arm]) -> tuple[float | None, str]:
    """Where the best speculating arm falls below the best other one; between two loads by interpolation."""
    ratios: list[tuple[float, float]] = []
    for condition in dict.fromkeys(arm.condition for arm in arms):
        own = [arm for arm in arms if arm.condition == condition]
        best = {
            flag: max((_tok_s(a) for a in own if (a.method is not None) == flag), default=0.0) for flag in (True, False)
        }
        if min(best.values()) > 0:
            ratios.append((own[0].concurrency, math.log(best[True] / best[False])))
    ratios.sort()
    if len(ratios) < 2:
        return None, "unknown"
    if all(log > 0 for _, log in ratios):
        return None, "everywhere"
    if all(log <= 0 for _, log in ratios):
        return None, "nowhere"
    crossings = [
        math.exp(math.log(x0) + (math.log(x1) - math.log(x0)) * y0 / (y0 - y1))
        for (x0, y0), (x1, y1) in pairwise(ratios)
        if y0 > 0 >= y1
    ]
    # Of several crossings the last counts: above it speculation loses for good.
    return (crossings[-1], "below") if crossings and ratios[-1][1] <= 0 else (None, "unknown")


def _tok_s(arm: Arm) -> float:
    return arm.metrics.get("output_tok_s", 0.0)
