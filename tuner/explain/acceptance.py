"""What the draft achieved: rate, length, the curve by position, and what was drafted in vain."""

from collections.abc import Sequence

from tuner.explain.intervals import acceptance_length
from tuner.explain.observed import Arm
from tuner.explain.records import Acceptance, Figure


def acceptances(arms: Sequence[Arm], confidence: float) -> list[Acceptance]:
    """One row for each speculating configuration, by K."""
    rows = [row for arm in arms if arm.method is not None and (row := _row(arm, confidence))]
    return sorted(rows, key=lambda row: (row.method, row.k, row.label))


def _row(arm: Arm, confidence: float) -> Acceptance | None:
    metrics = arm.metrics
    curve, drafts = arm.curve, round(metrics.get("drafts", 0))
    if not curve or not drafts:
        return None
    length = acceptance_length(curve, drafts, confidence)
    drafted = round(metrics.get("draft_tokens", drafts * arm.k))
    accepted = round(metrics.get("accepted_tokens", drafts * (length.value - 1)))
    scale = drafts / max(1, drafted)
    return Acceptance(
        condition=arm.condition,
        profile=arm.profile,
        temperature=arm.temperature,
        load=str(arm.load),
        concurrency=arm.in_flight,
        trial=arm.trials[0],
        label=arm.label,
        method=arm.method or "",
        k=arm.k,
        rate=Figure(
            value=accepted / max(1, drafted),
            low=((length.low or 1) - 1) * scale,
            high=min(1.0, ((length.high or 1) - 1) * scale),
            count=drafts,
        ),
        length=length,
        curve=curve,
        drafts=drafts,
        drafted_tokens=drafted,
        wasted_tokens=drafted - accepted,
    )
