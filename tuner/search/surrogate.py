"""A Gaussian process over configurations: what is expected of one that was not launched, and how unsure that is.

It models log(value), better upwards, as prior + the deviation from it. The kernel is a product over knobs, Matern 3/2
where values have an order and a constant drop where they are only different; scales are chosen by marginal likelihood
from a few values per knob, one knob after the other (Rasmussen and Williams, Gaussian Processes for Machine Learning,
2006, sections 2.2, 2.7, 4.2 and 5.4.1). Ten to forty launches are all there is: no more can be learned from them.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Array = NDArray[np.float64]

ORDINAL_SCALES = (0.1, 0.4, 1.2, 4.0)
CATEGORICAL_SCALES = (0.001, 0.03, 0.3, 2.0)
"""How fast likeness falls: with the distance of an ordered knob, and once a choice differs. First guess: the second."""
ROUGHNESS = 0.02
"""Share of the variance of an ordered knob that even the next value does not share: real curves are jagged."""
AMPLITUDES = (0.03, 0.1, 0.3)
"""Standard deviation of what the prior does not explain, in log units."""
SWEEPS = 2
LEVEL, SLOPE = 0.05, 0.3
"""Standard deviations of a common shift, and of the factor by which the prediction is off."""
PULL = 0.15
"""Log likelihood that one step away from a scale's first guess has to be worth."""


@dataclass(frozen=True, slots=True)
class Belief:
    """Mean and standard deviation of log value at each point."""

    mean: Array
    deviation: Array


class Surrogate:
    """Fitted to what was measured under one condition.

    Args:
        points: measured configurations, one row each (candidates.py).
        values: log values, better upwards.
        prior: the prediction's log gain at those points.
        ordinal: which columns have an order.
        noise: standard deviation of a repeated measurement in log units; a scalar or one for each point.
    """

    def __init__(
        self, points: Array, values: Array, prior: Array, *, ordinal: NDArray[np.bool_], noise: float | Array
    ) -> None:
        self._points = points
        self._prior = prior
        self._ordinal = ordinal
        self._noise = np.broadcast_to(np.asarray(noise, dtype=np.float64), values.shape)
        self._offset = float(np.mean(values - prior))
        self._deviations = values - prior - self._offset
        self._distances = _distances(points, points, ordinal)
        self._scales = np.where(ordinal, ORDINAL_SCALES[1], CATEGORICAL_SCALES[1])
        self._amplitude = AMPLITUDES[1]
        with _linear_algebra().limit(limits=1, user_api="blas"):
            self._choose_scales()
            kernel = self._kernel(self._correlation(points), self._amplitude, prior, prior)
            self._factor = np.linalg.cholesky(self._with_noise(kernel))
        half = solve_triangular(self._factor, self._deviations)
        self._weights = solve_triangular(self._factor, half, transposed=True)

    def believe(self, points: Array, prior: Array) -> Belief:
        """The posterior at other points."""
        cross = self._kernel(self._correlation(points), self._amplitude, prior, self._prior)
        mean = prior + self._offset + cross @ self._weights
        projected = solve_triangular(self._factor, cross.T)
        variance = self._amplitude**2 + LEVEL**2 + SLOPE**2 * prior**2 - np.sum(projected**2, axis=0)
        return Belief(mean, np.sqrt(np.maximum(variance, 1e-12)))

    def _correlation(self, points: Array) -> Array:
        distances = _distances(points, self._points, self._ordinal)
        columns = zip(distances, self._scales, self._ordinal, strict=True)
        correlation: Array = np.prod([_share(d, scale, ordered=bool(o)) for d, scale, o in columns], axis=0)
        return correlation

    def _choose_scales(self) -> None:
        if len(self._deviations) < 3:
            return
        # One knob's share of the kernel, for each scale that it may have; the kernel is their product.
        options = [ORDINAL_SCALES if ordered else CATEGORICAL_SCALES for ordered in self._ordinal]
        shares = [
            [_share(distance, scale, ordered=bool(ordered)) for scale in scales]
            for distance, scales, ordered in zip(self._distances, options, self._ordinal, strict=True)
        ]
        chosen = [1] * len(options)
        best = -math.inf
        for _ in range(SWEEPS):
            for column, scales in enumerate(options):
                others = np.prod([shares[c][chosen[c]] for c in range(len(options)) if c != column], axis=0)
                for choice in range(len(scales)):
                    before, chosen[column] = chosen[column], choice
                    found = self._likelihood(others * shares[column][choice], chosen, self._amplitude)
                    if found > best + 1e-9:
                        best = found
                    else:
                        chosen[column] = before
            correlation = np.prod([share[choice] for share, choice in zip(shares, chosen, strict=True)], axis=0)
            for amplitude in AMPLITUDES:
                found = self._likelihood(correlation, chosen, amplitude)
                if found > best + 1e-9:
                    best, self._amplitude = found, amplitude
        self._scales = np.array([scales[choice] for scales, choice in zip(options, chosen, strict=True)])

    def _likelihood(self, correlation: Array, chosen: list[int], amplitude: float) -> float:
        """Log marginal likelihood, with a mild pull to the first guess of every scale."""
        factor = np.linalg.cholesky(self._with_noise(self._kernel(correlation, amplitude, self._prior, self._prior)))
        fit = solve_triangular(factor, self._deviations)
        away = sum((choice - 1) ** 2 for choice in chosen) + math.log(amplitude / AMPLITUDES[1]) ** 2
        return -0.5 * float(fit @ fit) - float(np.log(np.diag(factor)).sum()) - PULL * away

    def _with_noise(self, kernel: Array) -> Array:
        return kernel + np.diag(self._noise**2 + 1e-8)

    def _kernel(self, correlation: Array, amplitude: float, left: Array, right: Array) -> Array:
        # A free level, and a prediction that may be off in proportion.
        return amplitude**2 * correlation + LEVEL**2 + SLOPE**2 * np.outer(left, right)


@cache
def _linear_algebra() -> "ThreadpoolController":
    """The libraries behind numpy and scipy, for telling them to use one thread.

    Threads that wait for each other over matrices of a few hundred rows cost up to twenty times the CPU time, more on a
    busy host (`bench/soak.py`).
    """
    import scipy.linalg  # noqa: F401 - loads its own library, which is to be told too
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def expected_improvement(belief: Belief, incumbent: float) -> Array:
    """Expected gain in log units over the incumbent (Jones, Schonlau and Welch 1998, equation 15)."""
    from scipy.special import ndtr  # scipy.stats would cost a second to import

    z = (belief.mean - incumbent) / belief.deviation
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    improvement: Array = (belief.mean - incumbent) * ndtr(z) + belief.deviation * density
    return improvement


def _distances(left: Array, right: Array, ordinal: NDArray[np.bool_]) -> Array:
    """Shape (columns, left, right)."""
    difference = np.abs(left.T[:, :, None] - right.T[:, None, :])
    return np.where(ordinal[:, None, None], difference, difference > 0)


def _share(distance: Array, scale: float, *, ordered: bool) -> Array:
    """One knob's factor of the kernel."""
    if not ordered:
        share: Array = np.exp(-scale * distance)
        return share
    scaled = math.sqrt(3.0) * scale * distance
    smooth: Array = (1.0 - ROUGHNESS) * (1.0 + scaled) * np.exp(-scaled) + ROUGHNESS * (distance == 0)
    return smooth


def solve_triangular(factor: NDArray[np.floating[Any]], right: Array, *, transposed: bool = False) -> Array:
    """factor^-1 right for a lower triangle, or of its transpose."""
    from scipy.linalg import solve_triangular as solve  # a tenth of a second that `tune --help` need not pay

    solved: Array = solve(factor, right, lower=True, trans=1 if transposed else 0, check_finite=False)
    return solved
