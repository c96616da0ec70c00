"""How many drafted tokens the target accepts: pure functions of the request, its position and the calibration.

A kind of traffic has conditional acceptances a_1..a_K at temperature 0 (position k given that 1..k-1 were
accepted). They are scaled by fit(K) of the draft, the method, temperature (1 - slope T), context and caching, and
clipped to 0..1. The token at output position i has one hidden uniform u_i, a hash of the request's seed and i; a
draft at position k that proposes it is accepted when u_i < a_k. Every output position is tested at most once, so
the u_i are independent and

    acceptance length AL(K) = 1 + a_1 + a_1 a_2 + ... + a_1 ... a_K.

Text never depends on any of this: greedy output is the same with and without speculation.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from runners.simulated.calibration import Draft, Kind
from runners.simulated.costs import interpolate
from runners.simulated.hashing import normal, uniform

__all__ = ["Speculation", "accepted_tokens", "conditional_curve", "expected_length"]

_FACTOR_STREAM, _TOKEN_STREAM = 7, 11
_PROBABILISTIC_RELIEF = 0.6
"""Share of the temperature loss that remains with draft_sample_method=probabilistic."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """The speculative configuration as far as acceptance depends on it."""

    method: str
    draft_tokens: int
    """K, num_speculative_tokens."""
    block_size: int
    """Trained draft block size; K above block_size - 1 ruins acceptance."""
    probabilistic: bool = False


def conditional_curve(
    kind: Kind, draft: Draft, speculation: Speculation, *, temperature: float, seed: int, cached_share: float = 0.0
) -> tuple[float, ...]:
    """Conditional acceptance of positions 1..K for one request, at an empty context.

    Args:
        kind: the kind of traffic.
        draft: the calibration's draft constants.
        speculation: method, K and how drafts are sampled.
        temperature: of the request.
        seed: of the request.
        cached_share: share of the prompt that came from the prefix cache (0..1).
    """
    slope = kind.temperature_slope * (_PROBABILISTIC_RELIEF if speculation.probabilistic else 1.0)
    factor = max(0.0, 1.0 - slope * temperature)
    factor *= interpolate(draft.fit, speculation.draft_tokens, extrapolate=False)
    factor *= draft.method_factors.get(speculation.method, 0.8)
    factor *= 1.0 - cached_share * (1.0 - kind.cached_factor)
    if speculation.method in ("dflash", "dspark") and speculation.draft_tokens > speculation.block_size - 1:
        factor *= draft.over_block_factor
    if kind.request_spread:
        factor *= 1.0 + kind.request_spread * normal(seed, _FACTOR_STREAM)
    last = len(kind.conditional) - 1
    return tuple(
        min(1.0, max(0.0, kind.conditional[min(position, last)] * factor))
        for position in range(speculation.draft_tokens)
    )


def accepted_tokens(
    curve: tuple[float, ...], *, seed: int, position: int, drafts: int, context_factor: float = 1.0
) -> int:
    """Number of accepted drafts (0..drafts) of the verify step that starts at an output position.

    Args:
        curve: conditional acceptances of the request.
        seed: of the request.
        position: index of the first output token that the step yields.
        drafts: how many drafts are verified; at most len(curve).
        context_factor: factor on every value, for acceptance that falls with context.
    """
    for index in range(drafts):
        if uniform(seed, _TOKEN_STREAM, position + index) >= curve[index] * context_factor:
            return index
    return drafts


def expected_length(curve: tuple[float, ...]) -> float:
    """Acceptance length that a curve yields on average: 1 + sum of its running products."""
    products: Iterable[float] = accumulate(curve, mul)
    return 1.0 + sum(products)
