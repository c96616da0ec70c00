"""The configurations that can be proposed: distinct, allowed, each a point for the surrogate.

Small spaces are listed in full, large ones are sampled; dead knobs do not tell two candidates apart.
"""

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from search_spaces import ResolvedSpace, Scalar
from tuner.search.names import TEMPERATURE

LIMIT = 4000
"""Largest space that is listed in full; of a larger one, as many points are drawn."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One configuration that may be launched."""

    params: dict[str, Scalar]
    key: tuple[str, Scalar]
    """Id of the serve config, and the temperature where that is searched."""


class Candidates:
    """All candidates of a space, in a fixed order.

    Args:
        space: knobs and rules.
        distributions: of the parameters, temperature included.
        seed: of the draw from a space that is too large to be listed.
    """

    def __init__(self, space: ResolvedSpace, distributions: Mapping[str, BaseDistribution], *, seed: int) -> None:
        self._space = space
        self._distributions = self.distributions = dict(distributions)
        found: dict[tuple[str, Scalar], Candidate] = {}
        seen = set()
        for params in self._combinations(seed):
            alive = self._alive(params)
            if alive in seen:
                continue
            seen.add(alive)
            candidate = self._candidate(params)
            if candidate is not None:
                found.setdefault(candidate.key, candidate)
        self.all: tuple[Candidate, ...] = tuple(found.values())
        self.points: NDArray[np.float64] = np.array([self.point(c.params) for c in self.all]).reshape(
            len(self.all), len(self._distributions)
        )

    @property
    def ordinal(self) -> NDArray[np.bool_]:
        """Which coordinates have an order; the others are only equal or different."""
        return np.array([not isinstance(d, CategoricalDistribution) for d in self._distributions.values()], dtype=bool)

    def point(self, params: Mapping[str, Scalar]) -> NDArray[np.float64]:
        """Coordinates: a range from 0 to 1 by the square root, so that small K lie apart; a choice by its number.

        A dead knob lies where the engine would have it: K at 0 without speculation.
        """
        knobs = {name: value for name, value in params.items() if name != TEMPERATURE}
        complete = self._space.complete(knobs)
        coordinates = []
        for name, distribution in self._distributions.items():
            value = params[name]
            alive = name == TEMPERATURE or self._space.knobs[name].is_alive(complete)
            if isinstance(distribution, CategoricalDistribution):
                default = None if name == TEMPERATURE else self._space.knobs[name].engine_default
                value = value if alive or default not in distribution.choices else default
                coordinates.append(float(distribution.choices.index(value)))
            elif isinstance(distribution, IntDistribution):
                number = value if alive and isinstance(value, int) else 0
                coordinates.append(math.sqrt(max(0, number) / distribution.high))
            else:
                assert isinstance(distribution, FloatDistribution)  # noqa: S101 - there is no other kind
                number_s = float(value) if isinstance(value, int | float) else distribution.low
                coordinates.append((number_s - distribution.low) / (distribution.high - distribution.low))
        return np.array(coordinates)

    def _alive(self, params: Mapping[str, Scalar]) -> tuple[tuple[str, Scalar], ...]:
        """What tells two combinations apart at little cost: most differ in dead knobs alone."""
        knobs = self._space.knobs
        return tuple((n, v) for n, v in params.items() if n == TEMPERATURE or knobs[n].is_alive(params))

    def _candidate(self, params: dict[str, Scalar]) -> Candidate | None:
        knobs = {name: value for name, value in params.items() if name != TEMPERATURE}
        complete = self._space.complete(knobs)
        if self._space.refusal(complete) is not None:
            return None
        return Candidate(params, (self._space.serve_config(knobs).id, params.get(TEMPERATURE)))

    def _combinations(self, seed: int) -> Iterator[dict[str, Scalar]]:
        values = [_values(distribution) for distribution in self._distributions.values()]
        names = tuple(self._distributions)
        if math.prod(len(each) for each in values) <= LIMIT:
            for combination in itertools.product(*values):
                yield dict(zip(names, combination, strict=True))
            return
        draw = random.Random(seed)  # noqa: S311 - a sample of the space, not a secret
        for _ in range(LIMIT):
            yield {name: draw.choice(each) for name, each in zip(names, values, strict=True)}


def _values(distribution: BaseDistribution) -> Sequence[Scalar]:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices
    if isinstance(distribution, IntDistribution):
        return range(distribution.low, distribution.high + 1, distribution.step)
    assert isinstance(distribution, FloatDistribution)  # noqa: S101 - there is no other kind
    step = distribution.step or (distribution.high - distribution.low) / 10
    count = round((distribution.high - distribution.low) / step)
    return [round(distribution.low + step * i, 6) for i in range(count + 1)]
