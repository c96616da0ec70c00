"""What the engine counted while a replay ran, as flat metrics under their names in docs/metrics.md. Pure."""

from runners import EngineMetrics


def counter_metrics(counters: EngineMetrics) -> dict[str, float]:
    """Speculation and prefix cache; what the engine does not have is absent."""
    values: dict[str, float | None] = {
        "acceptance_rate": counters.acceptance_rate,
        "acceptance_length": counters.acceptance_length,
        "draft_tokens": counters.draft_tokens or None,
        "accepted_tokens": counters.accepted_tokens if counters.draft_tokens else None,
        "prefix_hit_rate": counters.prefix_hit_rate,
        "prefix_hit_tokens": counters.prefix_hits if counters.prefix_queries else None,
        "preemptions": counters.preemptions,
        "drafts": counters.drafts or None,
    }
    for position, share in enumerate(counters.position_acceptance, start=1):
        values[f"accepted_at_{position:02d}"] = share
    return {name: float(value) for name, value in values.items() if value is not None}
