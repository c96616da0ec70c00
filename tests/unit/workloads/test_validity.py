"""When the client's own figures say that a measurement is not of the load that was asked for."""

from array import array
from dataclasses import replace

import pytest

from workloads import Distribution, Load, ReplayMetrics, RequestOutcome, client_problems, summarise
from workloads.replay import ReplayResult


def metrics(**changes: object) -> ReplayMetrics:
    nothing = ReplayResult((), 10.0, Load("concurrency", 8), 0.0, array("d"), array("d"), 0.0)
    sound = replace(summarise(nothing), requests=100, completed=100, sent=100, in_flight_mean=8.0)
    return replace(sound, **changes)  # type: ignore[arg-type]


def late(p99_s: float) -> Distribution:
    return Distribution(100, 0.0, 0.0, 0.0, p99_s, p99_s)


@pytest.mark.parametrize(
    ("changes", "load", "problem"),
    [
        ({}, "concurrency", None),
        ({"failed": 1, "errors": {"timeout": 1}}, "concurrency", None),
        ({"failed": 2, "errors": {"timeout": 2}}, "concurrency", "2 of 100 requests failed (timeout x2)"),
        ({"loop_lag_s": late(0.06)}, "concurrency", "starved"),
        ({"send_lag_s": late(0.06)}, "concurrency", None),
        ({"send_lag_s": late(0.06)}, "rate", "sent late: 60 ms"),
        ({"client_cpu_share": 0.95}, "concurrency", "saturated: 95%"),
        ({"client_cpu_share": 0.95, "duration_s": 0.5}, "concurrency", None),
        ({"in_flight_mean": 7.0}, "concurrency", "7.00 requests were in flight"),
        ({"in_flight_mean": 7.0}, "rate", None),
        ({"in_flight_mean": 3.0}, "think", None),
    ],
)
def test_a_load_that_was_not_as_asked_has_a_reason(changes: dict[str, object], load: str, problem: str | None) -> None:
    loads = {
        "concurrency": Load("concurrency", 8),
        "rate": Load("rate", 5),
        "think": Load("concurrency", 8, think=True),
    }
    outcomes: list[RequestOutcome] = []
    problems = client_problems(metrics(**changes), loads[load], outcomes)
    assert [text for text in problems if problem and problem in text] == problems
    assert bool(problems) == (problem is not None)
