"""Signatures of a draft that does not fit: too long, too little accepted, wrong when sampled, outputs changed.

A function looks at one condition and says what it saw, or None. Names and remedies are in `rules.py`.
"""

from collections.abc import Callable, Iterable

from tuner.explain.case import Case, Evidence
from tuner.explain.observed import Arm

SHORT_LENGTH = 2.2
LITTLE_GAIN = 1.3
TEMPERATURE_LOSS = 0.65
"""Published drafts lose 7 to 32% of their length between temperature 0 and 1 (z-lab/dflash, README of January 2026)."""
NO_LENGTH = 1.2


def longer_drafts_accept_less(case: Case) -> Evidence | None:
    """Acceptance length falls with K: K exceeds what the draft was trained for."""
    rows = sorted((a for a in case.speculating if a.metrics.get("acceptance_length")), key=lambda arm: arm.k)
    for short in rows:
        for long in reversed(rows):
            lengths = short.metrics["acceptance_length"], long.metrics["acceptance_length"]
            same = short.method == long.method and short.caching == long.caching
            if same and short.k < long.k and lengths[1] < 0.9 * lengths[0]:
                return Evidence(
                    f"K={long.k} yields {lengths[1]:.2f} tokens per step, K={short.k} {lengths[0]:.2f}: a longer "
                    "draft should never yield less",
                    (*short.trials, *long.trials),
                )
    return None


def acceptance_limits(case: Case) -> Evidence | None:
    """At the lightest load the best speculation gains little, and acceptance is what holds it back."""
    points = [point for point in case.speed if point.cost_ratio < 1]
    best = max(points, key=lambda point: point.measured.value, default=None)
    if best is None or not case.is_lightest:
        return None
    if best.measured.value >= LITTLE_GAIN or best.acceptance_length >= SHORT_LENGTH:
        return None
    wanted = min(best.k + 1.0, 2 * best.acceptance_length)
    return Evidence(
        f"the best speculation (K={best.k}) yields {best.acceptance_length:.2f} tokens per step and runs "
        f"{best.measured.value:.2f}x as fast; with {wanted:.2f} tokens per step the same costs would give "
        f"{best.predicted * wanted / best.acceptance_length:.2f}x",
        (best.trial,),
    )


def acceptance_falls_with_temperature(case: Case) -> Evidence | None:
    """The same configuration accepts much less at a higher temperature."""
    return _temperature_loss(case, lambda length: length >= NO_LENGTH)


def nothing_accepted_above_zero(case: Case) -> Evidence | None:
    """Greedy drafts are accepted and sampled ones are not at all: the sampler is broken, not the draft."""
    return _temperature_loss(case, lambda length: length < NO_LENGTH)


def outputs_changed(case: Case) -> Evidence | None:
    """Greedy outputs under speculation are not those of the engine without it."""
    plain = [arm for arm in case.arms if arm.method is None and _outputs(arm)]
    if not plain:
        return None
    usual = max((_identical(one, plain[0]) for one in plain[1:]), default=1.0)
    for arm in case.speculating:
        share = _identical(arm, plain[0]) if _outputs(arm) else 1.0
        if share < 0.5 * usual:
            return Evidence(
                f"{share:.0%} of the greedy outputs of {arm.label} are those without speculation, "
                f"which repeats {usual:.0%} of its own",
                (*arm.trials, *plain[0].trials),
            )
    return None


def _temperature_loss(case: Case, judged: Callable[[float], bool]) -> Evidence | None:
    for hot in case.speculating:
        if hot.temperature is None:
            continue
        cold = [
            arm
            for arm in case.profile_arms
            if arm.config.id == hot.config.id
            and arm.temperature is not None
            and arm.temperature < hot.temperature
            and str(arm.load) == str(hot.load)
        ]
        lengths = [arm.metrics.get("acceptance_length", 0.0) for arm in cold]
        length = hot.metrics.get("acceptance_length")
        if length and lengths and length < TEMPERATURE_LOSS * max(lengths) and judged(length):
            best = cold[lengths.index(max(lengths))]
            return Evidence(
                f"{hot.label} yields {length:.2f} tokens per step at temperature {hot.temperature:g} and "
                f"{max(lengths):.2f} at {best.temperature:g}",
                tuple(dict.fromkeys((*hot.trials, *best.trials))),
            )
    return None


def _outputs(arm: Arm) -> dict[str, str]:
    return {k: v for m in arm.measurements for k, v in m.greedy_outputs.items()}


def _identical(one: Arm, other: Arm) -> float:
    ours, theirs = _outputs(one), _outputs(other)
    shared: Iterable[str] = [key for key in ours if key in theirs]
    same = [ours[key] == theirs[key] for key in shared]
    return sum(same) / len(same) if same else 1.0
