"""The metrics of a replay as one flat mapping of names with units, as artifacts and trackers take them."""

from workloads.metrics import ReplayMetrics

DISTRIBUTIONS = ("ttft_s", "tpot_s", "chunk_gap_s", "e2e_s", "e2e_scheduled_s", "send_lag_s", "loop_lag_s")
STATISTICS = ("mean", "p50", "p90", "p99")


def flat_metrics(metrics: ReplayMetrics) -> dict[str, float]:
    """Each metric under its name in docs/metrics.md; what was not measured is absent."""
    values: dict[str, float | None] = {
        "output_tok_s": metrics.output_tok_s,
        "request_rate": metrics.request_rate,
        "requests": metrics.requests,
        "failed": metrics.failed,
        "prompt_tokens": metrics.prompt_tokens,
        "completion_tokens": metrics.completion_tokens,
        "cached_tokens": metrics.cached_tokens,
        "tokens_per_chunk": metrics.tokens_per_chunk,
        "goodput_share": metrics.goodput_share,
        "goodput_rate": metrics.goodput_rate,
        "in_flight_mean": metrics.in_flight_mean,
        "client_cpu_share": metrics.client_cpu_share,
    }
    for name in DISTRIBUTIONS:
        distribution = getattr(metrics, name)
        if distribution is not None:
            for statistic in STATISTICS:
                values[f"{name.removesuffix('_s')}_{statistic}_s"] = getattr(distribution, statistic)
    return {name: float(value) for name, value in values.items() if value is not None}
