"""The speed model: what a step costs with and without speculation, and the speedup that follows.

A step's time is the time from first to last token of all requests over the steps that they took: the drafts that the
engine counted, or without speculation the tokens. With B requests running, K draft tokens each, and AL tokens a step:

    T(B, K) = T_target(B) + draft + verify x B x K          (least squares of the relative error, neither below 0)
    speedup = AL x T_target(B) / T(B, K)

Two formulas from papers stand beside it. Leviathan, Kalman, Matias (arXiv 2211.17192, theorem 3.8) is for a draft that
runs once per token and for verification that costs nothing; E / (1 + c) is the same for a draft that is one pass.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.explain.intervals import ratio
from tuner.explain.observed import Arm, without_speculation
from tuner.explain.records import BestLength, Figure, SpeedModel, SpeedPoint

ASSUMPTIONS = (
    "prefills of other requests between two tokens count as step time",
    "T(B, K) = T_target(B) + draft + verify x B x K: verification is linear in the added tokens",
    "E / (1 + c): one draft pass per step and free verification (true for a block drafter while memory-bound)",
    "Leviathan: K draft passes per step, free verification, the same acceptance at every position",
)


@dataclass(frozen=True, slots=True)
class _Pair:
    """A speculating arm and what it is compared with."""

    arm: Arm
    plain: Arm
    step_s: float
    target_s: float
    length: float

    @property
    def added_tokens(self) -> float:
        return self.arm.running * self.arm.k


@dataclass(frozen=True, slots=True)
class _Fit:
    """Draft pass and verification per token; None where they cannot be told apart."""

    draft_s: float | None
    verify_s: float | None
    error: float | None

    def step_s(self, target_s: float, added_tokens: float) -> float | None:
        if self.draft_s is None or self.verify_s is None:
            return None
        return target_s + self.draft_s + self.verify_s * added_tokens


def speed_models(arms: Sequence[Arm], confidence: float) -> tuple[list[SpeedModel], list[BestLength]]:
    """Models by profile, temperature and method, and for each load the K that the curve implies.

    Args:
        arms: of all conditions.
        confidence: level of the intervals.
    """
    models, lengths = [], []
    for pairs in _grouped(arms):
        fit = _fitted(pairs)
        first = pairs[0].arm
        steps = {f"{p.plain.running:.3g}": p.target_s for p in sorted(pairs, key=lambda p: p.plain.running)}
        models.append(
            SpeedModel(
                profile=first.profile,
                temperature=first.temperature,
                method=first.method or "",
                target_step_s=steps,
                draft_s=fit.draft_s,
                verify_s_per_token=fit.verify_s,
                error=fit.error,
                assumptions=ASSUMPTIONS,
                points=tuple(_point(pair, fit, confidence) for pair in pairs),
            )
        )
        for condition in dict.fromkeys(pair.arm.condition for pair in pairs):
            lengths += _best_length([pair for pair in pairs if pair.arm.condition == condition], fit)
    return models, lengths


def constant_acceptance(length: float, k: int) -> float | None:
    """The a with (1 - a^(K+1)) / (1 - a) = length; None where no a below 1 gives it."""
    if not 1 <= length < k + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        total = sum(middle**i for i in range(k + 1))
        low, high = (middle, high) if total < length else (low, middle)
    return (low + high) / 2


def _grouped(arms: Sequence[Arm]) -> Iterable[list[_Pair]]:
    groups: dict[tuple[str, float | None, str], list[_Pair]] = {}
    for arm in arms:
        mates = [other for other in arms if other.condition == arm.condition]
        plain = (
            without_speculation(arm, mates)
            if arm.method and "num_speculative_tokens_per_batch_size" not in (arm.speculative)
            else None
        )
        own, target = _steps(arm), _steps(plain) if plain else None
        if plain is None or own is None or target is None:
            continue
        pair = _Pair(arm=arm, plain=plain, step_s=own[0], target_s=target[0], length=own[1])
        groups.setdefault((arm.profile, arm.temperature, arm.method or ""), []).append(pair)
    return groups.values()


def _steps(arm: Arm) -> tuple[float, float] | None:
    """Seconds of a step, and tokens per step and request; the end of an answer cuts its last draft."""
    found = [arm.metrics.get(n) for n in ("requests", "e2e_mean_s", "ttft_mean_s", "completion_tokens")]
    requests, e2e_s, ttft_s, tokens = (value or 0.0 for value in found)
    after_first = tokens - requests
    steps = arm.metrics.get("drafts", 0.0) if arm.method else after_first
    if steps <= 0 or after_first <= 0 or e2e_s <= ttft_s:
        return None
    return requests * (e2e_s - ttft_s) / steps, after_first / steps


def _fitted(pairs: Sequence[_Pair]) -> _Fit:
    added = np.array([pair.added_tokens for pair in pairs])
    if len(pairs) < 2 or added.max() < 1.2 * added.min():
        return _Fit(None, None, None)
    from scipy.optimize import nnls

    steps = np.array([pair.step_s for pair in pairs])
    excess = np.array([pair.step_s - pair.target_s for pair in pairs])
    (draft_s, verify_s), _ = nnls(np.stack([np.ones_like(added), added], axis=1) / steps[:, None], excess / steps)
    predicted = np.array([pair.target_s for pair in pairs]) + draft_s + verify_s * added
    error = float(np.sqrt(np.mean((predicted / steps - 1) ** 2)))
    return _Fit(float(draft_s), float(verify_s), error)


def _point(pair: _Pair, fit: _Fit, confidence: float) -> SpeedPoint:
    arm, length = pair.arm, pair.length
    step_s = fit.step_s(pair.target_s, pair.added_tokens) or pair.step_s
    added_s = fit.draft_s if fit.draft_s is not None else max(0.0, pair.step_s - pair.target_s)
    cost = added_s / pair.target_s
    constant = constant_acceptance(length, arm.k)
    # The formula charges a pass K times: what the same draft would cost if it drafted token by token.
    total = None if constant is None else sum(constant**i for i in range(arm.k + 1))
    return SpeedPoint(
        condition=arm.condition,
        trial=arm.trials[0],
        k=arm.k,
        batch=arm.running,
        target_step_s=pair.target_s,
        step_s=pair.step_s,
        draft_s=fit.draft_s,
        verify_s=None if fit.verify_s is None else fit.verify_s * pair.added_tokens,
        acceptance_length=length,
        cost_ratio=cost,
        predicted=length * pair.target_s / step_s,
        one_pass=length / (1 + cost),
        leviathan=None if total is None else total / (arm.k * cost + 1),
        measured=_speedup(arm, pair.plain, confidence),
    )


def _speedup(arm: Arm, plain: Arm, confidence: float) -> Figure:
    """TPOT without over with speculation, by block where blocks have it."""
    ours, theirs = arm.block_values("tpot_mean_s"), plain.block_values("tpot_mean_s")
    logs = [math.log(theirs[block] / ours[block]) for block in ours if block in theirs]
    return ratio(logs or [math.log(plain.metrics["tpot_mean_s"] / arm.metrics["tpot_mean_s"])], confidence)


def _best_length(pairs: Sequence[_Pair], fit: _Fit) -> list[BestLength]:
    """K implied by the longest curve of one condition against K measured best; needs two measured K and the model."""
    measured: dict[int, float] = {0: 1.0}
    for pair in pairs:
        speedup = pair.plain.metrics["tpot_mean_s"] / pair.arm.metrics["tpot_mean_s"]
        measured[pair.arm.k] = max(speedup, measured.get(pair.arm.k, 0.0))
    longest = max(pairs, key=lambda pair: (len(pair.arm.curve), -pair.arm.trials[0]))
    if len(measured) < 3 or fit.draft_s is None or not longest.arm.curve:
        return []
    predicted: dict[int, float] = {0: 1.0}
    for k in range(1, len(longest.arm.curve) + 1):
        length = 1 + sum(longest.arm.curve[:k])
        step_s = fit.step_s(longest.target_s, longest.arm.running * k)
        predicted[k] = length * longest.target_s / step_s if step_s else math.nan
    return [
        BestLength(
            condition=longest.arm.condition,
            concurrency=longest.arm.in_flight,
            curve_of_k=longest.arm.k,
            predicted=predicted,
            implied_k=max(predicted, key=lambda k: predicted[k]),
            measured=dict(sorted(measured.items())),
            best_k=max(measured, key=lambda k: measured[k]),
        )
    ]
