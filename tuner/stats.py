"""Intervals for a gain that was measured in paired blocks over interleaved rounds.

A candidate and the baseline replay the same blocks in every round, each round with a fresh engine of each. The log
ratio of one block in one round is one cell; blocks and rounds are crossed random effects. The interval is the
pigeonhole bootstrap (Owen, "The pigeonhole bootstrap", Annals of Applied Statistics 1(2), 2007): blocks and rounds
are resampled independently.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 4000


@dataclass(frozen=True, slots=True)
class Interval:
    """A gain as a ratio with the ends of its interval."""

    gain: float
    low: float
    high: float
    confidence: float
    pairs: int


def paired_gain(ratios: NDArray[np.float64], *, confidence: float, seed: int) -> Interval:
    """Interval for the geometric mean of paired ratios.

    Args:
        ratios: shape (rounds, blocks), better/worse ratios above 0; NaN marks a missing cell.
        confidence: level of the two-sided interval.
        seed: seed of the resampling, so that a recommendation can be reproduced.

    Raises:
        ValueError: no cell is present, or a ratio is not above 0.
    """
    present = np.isfinite(ratios)
    if not present.any() or (ratios[present] <= 0).any():
        raise ValueError("ratios must hold at least one positive number and nothing at or below 0")
    logs = np.where(present, np.log(np.where(present, ratios, 1.0)), 0.0)
    rounds, blocks = logs.shape
    mean = logs.sum() / present.sum()
    rng = np.random.default_rng(seed)
    row_weights = rng.multinomial(rounds, np.full(rounds, 1 / rounds), size=RESAMPLES)
    column_weights = rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=RESAMPLES)
    totals = np.einsum("sr,rb,sb->s", row_weights, logs, column_weights)
    counts = np.einsum("sr,rb,sb->s", row_weights, present.astype(float), column_weights)
    deviations = totals[counts > 0] / counts[counts > 0] - mean
    # Resampling n of n draws underestimates the spread by (n-1)/n; with two or three rounds that matters.
    deviations *= math.sqrt(_correction(rounds) * _correction(blocks))
    tail = (1 - confidence) / 2
    low, high = np.quantile(deviations, [tail, 1 - tail])
    # Basic (reflected) interval: an asymmetric resampling distribution widens the side that it should.
    return Interval(
        gain=math.exp(mean),
        low=math.exp(mean - high),
        high=math.exp(mean - low),
        confidence=confidence,
        pairs=int(present.sum()),
    )


def _correction(n: int) -> float:
    return n / (n - 1) if n > 1 else 1.0
