"""Intervals for a gain that was measured in paired blocks over interleaved rounds.

A candidate and the baseline replay the same blocks in every round, each round with a fresh engine of each. The log
ratio of one block in one round is one cell; rounds (launches) and blocks are crossed random effects. The variance of
the mean comes from the mean squares of rounds, blocks and cells, its degrees of freedom from Satterthwaite's formula
(Satterthwaite, "An approximate distribution of estimates of variance components", Biometrics Bulletin 2(6), 1946).
Not a bootstrap: resampling two or three rounds cannot see how little two or three rounds say (measured: an interval
meant for 95% covered 74% to 85% where launches differ more than blocks).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FILL_ITERATIONS = 50


@dataclass(frozen=True, slots=True)
class Interval:
    """A gain as a ratio with the ends of its interval."""

    gain: float
    low: float
    high: float
    confidence: float
    pairs: int


def paired_gain(ratios: NDArray[np.float64], *, confidence: float) -> Interval:
    """Interval for the geometric mean of paired ratios.

    Args:
        ratios: shape (rounds, blocks), better/worse ratios above 0; NaN marks a missing cell.
        confidence: level of the two-sided interval.

    Raises:
        ValueError: fewer than two rounds are present, or a ratio is not above 0.
    """
    known = np.isfinite(ratios)
    cells = ratios[known.any(axis=1)][:, known.any(axis=0)]
    present = np.isfinite(cells)
    if len(cells) < 2:
        raise ValueError(f"an interval needs at least two rounds, because launches differ; there are {len(cells)}")
    if (cells[present] <= 0).any():
        raise ValueError("ratios must be above 0")
    logs = _filled(np.log(np.where(present, cells, 1.0)), present)
    mean = float(logs.mean())
    half = _half_width(logs, int((~present).sum()), confidence)
    return Interval(
        gain=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        confidence=confidence,
        pairs=int(present.sum()),
    )


def _half_width(logs: NDArray[np.float64], missing: int, confidence: float) -> float:
    from scipy.special import stdtrit  # scipy.stats would cost a second to import

    rounds, blocks = logs.shape
    mean, row_means, column_means = logs.mean(), logs.mean(axis=1), logs.mean(axis=0)
    residuals = logs - row_means[:, None] - column_means[None, :] + mean
    free = max(1, (rounds - 1) * (blocks - 1) - missing)
    ms_rounds = float(blocks * ((row_means - mean) ** 2).sum() / (rounds - 1))
    ms_blocks = float(rounds * ((column_means - mean) ** 2).sum() / max(1, blocks - 1))
    ms_cells = float((residuals**2).sum() / free)
    # Never below what either effect alone shows: the subtraction may cancel more than there is.
    combined = max(ms_rounds + ms_blocks - ms_cells, ms_rounds, ms_blocks)
    if combined <= 0:
        return 0.0
    spread = ms_rounds**2 / (rounds - 1) + ms_blocks**2 / max(1, blocks - 1) + ms_cells**2 / free
    freedom = max(1.0, combined**2 / spread)
    return float(stdtrit(freedom, (1 + confidence) / 2)) * math.sqrt(combined / logs.size)


def _filled(logs: NDArray[np.float64], present: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Missing cells get what rounds and blocks alone would make them, so that they pull the mean nowhere."""
    filled = np.where(present, logs, logs[present].mean())
    for _ in range(0 if present.all() else FILL_ITERATIONS):
        expected = filled.mean(axis=1)[:, None] + filled.mean(axis=0)[None, :] - filled.mean()
        filled = np.where(present, logs, expected)
    return filled
