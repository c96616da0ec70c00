"""The interval keeps its word: it contains the truth as often as it says, and claims nothing where there is nothing."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from tuner.stats import Interval, paired_gain


def gain(ratios: object, confidence: float = 0.95) -> Interval:
    return paired_gain(np.asarray(ratios, dtype=np.float64), confidence=confidence)


def test_identical_measurements_have_no_gain_and_no_doubt() -> None:
    interval = gain(np.ones((3, 4)))
    assert (interval.gain, interval.low, interval.high, interval.pairs) == (1.0, 1.0, 1.0, 12)


def test_a_gain_without_noise_is_found_exactly() -> None:
    interval = gain(np.full((2, 3), 1.8))
    assert [pytest.approx(1.8)] * 3 == [interval.gain, interval.low, interval.high]


def test_the_gain_is_the_geometric_mean_so_that_halving_and_doubling_cancel() -> None:
    assert gain([[2.0, 0.5], [0.5, 2.0]]).gain == pytest.approx(1.0)


def test_a_known_case_worked_by_hand() -> None:
    # Two rounds, one block: t(0.975, 1) = 12.706 times the standard error of two logs, |0.2 - 0.1| / 2.
    interval = gain(np.exp([[0.1], [0.2]]))
    assert (interval.gain, interval.low, interval.high) == pytest.approx(
        (math.exp(0.15), math.exp(0.15 - 12.7062 * 0.05), math.exp(0.15 + 12.7062 * 0.05)), rel=1e-4
    )


def test_the_inverse_ratio_mirrors_the_interval() -> None:
    ratios = np.exp(np.random.default_rng(0).normal(0.1, 0.05, (3, 4)))
    one, other = gain(ratios), gain(1 / ratios)
    assert (one.gain, one.low, one.high) == pytest.approx((1 / other.gain, 1 / other.high, 1 / other.low))


def test_more_confidence_is_a_wider_interval() -> None:
    ratios = np.exp(np.random.default_rng(0).normal(0.1, 0.05, (3, 4)))
    narrow, wide = gain(ratios, 0.9), gain(ratios, 0.99)
    assert wide.low < narrow.low < narrow.gain < narrow.high < wide.high


def test_a_missing_cell_pulls_the_gain_nowhere() -> None:
    # Block effects are large; leaving out the cell of a fast block must not look like a slower configuration.
    ratios = np.exp(np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0], [0.0, 1.0, np.nan]]))
    interval = gain(ratios)
    assert interval.gain == pytest.approx(math.e, rel=1e-3)
    assert interval.pairs == 8


def test_a_round_without_any_cell_does_not_count() -> None:
    ratios = np.array([[1.1, 1.2], [1.2, 1.3], [np.nan, np.nan]])
    assert gain(ratios) == gain(ratios[:2])


@pytest.mark.parametrize("ratios", [[[1.5, 1.6, 1.7]], [[1.5, 1.5], [np.nan, np.nan]], [[np.nan, np.nan]] * 2])
def test_one_round_is_no_interval(ratios: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="at least two rounds"):
        gain(ratios)


@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_a_ratio_that_is_not_positive_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        gain([[1.0, bad], [1.0, 1.0]])


def crossed(
    rng: np.random.Generator, shape: tuple[int, int], *, launch: float, block: float, cell: float
) -> NDArray[np.float64]:
    """Log ratios of no effect: standard deviations of launches, blocks and single cells."""
    rounds, blocks = shape
    launches = rng.normal(0, launch, (rounds, 1))
    return np.asarray(launches + rng.normal(0, block, (1, blocks)) + rng.normal(0, cell, shape))


NOISE = {
    "launches differ": (0.02, 0.0, 0.005),
    "blocks differ": (0.0, 0.05, 0.005),
    "cells differ": (0.0, 0.0, 0.02),
    "all differ": (0.02, 0.03, 0.02),
}


@pytest.mark.parametrize("rounds", [2, 3])
@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE.keys())
def test_an_interval_of_95_percent_covers_and_claims_no_effect_that_is_not_there(
    rounds: int, noise: tuple[float, float, float]
) -> None:
    launch, block, cell = noise
    rng = np.random.default_rng(rounds)
    repeats, truth = 2000, 1.3
    covered = claimed = 0
    for _ in range(repeats):
        ratios = np.exp(crossed(rng, (rounds, 4), launch=launch, block=block, cell=cell))
        no_effect, effect = gain(ratios), gain(ratios * truth)
        claimed += no_effect.low > 1
        covered += effect.low <= truth <= effect.high
    assert covered / repeats >= 0.93
    assert claimed / repeats <= 0.05


def test_three_rounds_see_a_gain_of_a_quarter_through_launch_noise() -> None:
    rng = np.random.default_rng(0)
    found = [gain(1.25 * np.exp(crossed(rng, (3, 4), launch=0.02, block=0.03, cell=0.02))).low > 1 for _ in range(300)]
    assert np.mean(found) >= 0.95
