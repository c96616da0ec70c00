"""Intervals for ratios over paired blocks, and for acceptance. Pure.

A search measures a configuration in one launch, so the interval is over its blocks: how sure the ratio is for these two
launches. It says nothing about how launches differ; the confirmation's interval (stats.py) does.
"""

import math
from collections.abc import Sequence

from tuner.explain.records import Figure


def ratio(logs: Sequence[float], confidence: float) -> Figure:
    """Geometric mean of ratios, given their logarithms, with Student's interval over blocks.

    Raises:
        ValueError: there are none.
    """
    if not logs:
        raise ValueError("a ratio needs at least one pair of blocks")
    mean = sum(logs) / len(logs)
    if len(logs) < 2:
        return Figure(value=math.exp(mean), count=len(logs))
    variance = sum((one - mean) ** 2 for one in logs) / (len(logs) - 1)
    half = _student(confidence, len(logs) - 1) * math.sqrt(variance / len(logs))
    return Figure(value=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half), count=len(logs))


def around(value: float, parts: Sequence[float], confidence: float) -> Figure:
    """A value with the interval that the spread of its parts (blocks) gives it."""
    usable = [part for part in parts if part > 0]
    if len(usable) < 2 or value <= 0:
        return Figure(value=value, count=max(1, len(usable)))
    spread = ratio([math.log(part) for part in usable], confidence)
    low, high = (spread.low or spread.value), (spread.high or spread.value)
    return Figure(value=value, low=value * low / spread.value, high=value * high / spread.value, count=len(usable))


def acceptance_length(curve: Sequence[float], drafts: int, confidence: float) -> Figure:
    """Tokens per verification step from p_1..p_K, drafts taken as independent.

    The accepted number N of a draft has P(N >= k) = p_k, so E[N] = sum p_k and E[N^2] = sum (2k - 1) p_k.
    """
    mean = sum(curve)
    square = sum((2 * k - 1) * p for k, p in enumerate(curve, start=1))
    half = _normal(confidence) * math.sqrt(max(0.0, square - mean**2) / max(1, drafts))
    return Figure(value=1 + mean, low=max(1.0, 1 + mean - half), high=1 + mean + half, count=drafts)


def _student(confidence: float, freedom: int) -> float:
    from scipy.special import stdtrit  # scipy.stats would cost a second to import

    return float(stdtrit(freedom, (1 + confidence) / 2))


def _normal(confidence: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf((1 + confidence) / 2)
