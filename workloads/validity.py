"""Whether a replay was the load that was asked for, as far as the client can tell. Pure.

A measurement of which this is not true is invalid, not bad: its figures are about the client, or another load. What
the engine says of the same load is the tuner's to compare (docs/adr/0006).
"""

from collections.abc import Iterable
from typing import Final

from workloads.load import Load
from workloads.metrics import ReplayMetrics
from workloads.outcome import RequestOutcome

MAX_LAG_S: Final = 0.05
"""Lateness (p99) behind which the client, not the engine, is what was measured."""

MAX_CPU_SHARE: Final = 0.9
MIN_CPU_WINDOW_S: Final = 1.0
"""In a shorter replay, CPU time says more about its start than about its load."""

MIN_LOAD_SHARE: Final = 0.9
MAX_FAILED_SHARE: Final = 0.01


def client_problems(metrics: ReplayMetrics, load: Load, outcomes: Iterable[RequestOutcome]) -> list[str]:
    """Why the numbers may not be used; each a sentence with the figure."""
    problems = []
    if metrics.failed > MAX_FAILED_SHARE * metrics.requests:
        classes = ", ".join(f"{name} x{count}" for name, count in metrics.errors.items())
        detail = next((o.error_detail for o in outcomes if o.error_detail), None)
        problems.append(
            f"{metrics.failed} of {metrics.requests} requests failed ({classes}{f': {detail}' if detail else ''})"
        )
    if metrics.loop_lag_s and metrics.loop_lag_s.p99 > MAX_LAG_S:
        problems.append(f"the client was starved: its event loop was {metrics.loop_lag_s.p99 * 1000:.0f} ms late (p99)")
    if metrics.duration_s >= MIN_CPU_WINDOW_S and metrics.client_cpu_share > MAX_CPU_SHARE:
        problems.append(
            f"the client was saturated: {metrics.client_cpu_share:.0%} of a core; use more --client-processes"
        )
    if load.is_open_loop and metrics.send_lag_s and metrics.send_lag_s.p99 > MAX_LAG_S:
        problems.append(f"the client sent late: {metrics.send_lag_s.p99 * 1000:.0f} ms after the schedule (p99)")
    # Sessions that think keep their places, so that fewer requests than places are in flight.
    asked = load.value if load.kind == "concurrency" and not load.think else None
    if asked and metrics.in_flight_mean is not None and metrics.in_flight_mean < MIN_LOAD_SHARE * asked:
        problems.append(f"{metrics.in_flight_mean:.2f} requests were in flight on average, the load asks for {asked:g}")
    return problems
