"""How long a step takes: pure functions of the batch and a calibration's constants.

One step runs one forward pass over the query tokens of all scheduled sequences. With B decoding sequences that
verify K drafts each, Q = B x (K + 1) query tokens, P prefill tokens and C tokens of context:

    step = (step_s + B per_sequence_s + curve(tile(Q)) + P per_prefill_token_s + C per_context_token_s) x graph factor
         + B per_speculating_sequence_s
         + passes x (draft_pass_s + B (K + 1) per_draft_token_s)     passes = 1, or K for autoregressive drafters

This is speedup(B, K) = AL(K) T_dec(B) / (T_verify(B (K + 1)) + T_draft(B, K) + T_sample), read from the other side.
It knows nothing of acceptance: how many tokens a step yields is `acceptance`.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from runners.simulated.calibration import Costs, Noise
from runners.simulated.hashing import normal, uniform

__all__ = ["BatchShape", "interpolate", "noise_factor", "step_seconds"]

AUTOREGRESSIVE = frozenset({"eagle", "eagle3", "mtp", "draft_model"})
WITHOUT_MODEL = frozenset({"ngram", "ngram_gpu", "suffix"})


@dataclass(frozen=True, slots=True)
class BatchShape:
    """What one step computes. `draft_tokens` is K; `method` the speculative method or None."""

    decoding: int
    verify_tokens: int
    prefill_tokens: int
    context_tokens: int
    method: str | None
    draft_tokens: int


def interpolate(curve: Sequence[tuple[float, float]], x: float, *, extrapolate: bool) -> float:
    """Piecewise linear interpolation; constant before the first point.

    Args:
        curve: points (x, y) in ascending order of x.
        x: where.
        extrapolate: after the last point, go on at the last slope instead of staying at the last value.
    """
    position = bisect_right(curve, x, key=lambda point: point[0])
    if position == 0:
        return curve[0][1]
    if position == len(curve):
        if not extrapolate or len(curve) == 1:
            return curve[-1][1]
        position -= 1
    (x0, y0), (x1, y1) = curve[position - 1], curve[position]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def step_seconds(costs: Costs, shape: BatchShape, *, graph_tokens: int | None) -> float:
    """Simulated seconds of one step, without noise.

    Args:
        costs: the calibration's constants.
        shape: what is computed.
        graph_tokens: largest query-token count that captured graphs cover; None means that every batch is covered.
    """
    seconds = costs.step_s + shape.decoding * costs.per_sequence_s
    if shape.verify_tokens:
        tiles = math.ceil(shape.verify_tokens / costs.verify_tile)
        seconds += interpolate(costs.verify_curve, tiles * costs.verify_tile, extrapolate=True)
    seconds += shape.prefill_tokens * costs.per_prefill_token_s + shape.context_tokens * costs.per_context_token_s
    if graph_tokens is not None and shape.verify_tokens > graph_tokens:
        seconds *= costs.eager_factor
    if shape.method is not None:
        seconds += shape.decoding * costs.per_speculating_sequence_s
    if shape.method is not None and shape.method not in WITHOUT_MODEL:
        passes = shape.draft_tokens if shape.method in AUTOREGRESSIVE else 1
        positions = shape.decoding if shape.method in AUTOREGRESSIVE else shape.decoding * (shape.draft_tokens + 1)
        seconds += passes * (costs.draft_pass_s + positions * costs.per_draft_token_s)
    return seconds


def noise_factor(noise: Noise, seed: int, step: int) -> float:
    """Factor on the time of step number `step`; a function of its arguments alone, so runs can be repeated."""
    exponent = 0.0
    if noise.launch_sigma:
        exponent += noise.launch_sigma * normal(seed, 1, 0)
    if noise.step_sigma:
        exponent += noise.step_sigma * normal(seed, 2, step)
    factor = math.exp(exponent)
    if noise.tail_share and uniform(seed, 3, step) < noise.tail_share:
        factor *= noise.tail_factor
    return factor
