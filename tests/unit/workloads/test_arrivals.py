"""Arrivals, how many requests are in work at once, and conversations."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import Recorded, Request
from workloads.arrivals import arrivals, concurrency
from workloads.columns import Columns
from workloads.conversations import Conversations, conversations

times = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=30).map(sorted)


@settings(max_examples=60, deadline=None)
@given(times)
def test_the_peak_is_the_most_requests_at_any_moment(intervals: list[tuple[int, int]]) -> None:
    found = concurrency(*(np.array(column, dtype=np.float64) for column in zip(*intervals, strict=True)))
    moments = [sum(start <= moment < start + length for start, length in intervals) for moment in range(71)]
    assert found is not None
    assert found.peak == max(1, *moments)
    assert found.mean <= found.peak


def test_little_s_law_holds_for_a_long_recording() -> None:
    source = random.Random(1)  # noqa: S311 - test data
    starts_s = np.cumsum([source.expovariate(2) for _ in range(5000)])
    durations_s = np.array([source.expovariate(1 / 3) for _ in range(5000)])
    found = concurrency(starts_s, durations_s)
    assert found is not None
    assert found.mean_by_little == pytest.approx(found.mean, rel=0.02)
    assert found.mean == pytest.approx(6, rel=0.1)


def test_only_known_durations_are_counted_and_little_s_law_extends_them_to_all() -> None:
    found = concurrency(np.arange(11.0), np.array([2.0, *[np.nan] * 10]))
    assert found is not None
    assert (found.known, found.peak, found.mean, found.mean_by_little) == (1, 1, 1.0, 2.0)
    assert concurrency(np.arange(3.0), np.full(3, np.nan)) is None


def test_a_poisson_process_varies_by_one_and_bursts_by_more() -> None:
    source = random.Random(2)  # noqa: S311 - test data
    poisson = arrivals(np.cumsum([source.expovariate(5) for _ in range(20_000)]))
    bursts = arrivals(np.cumsum([source.gammavariate(1 / 9, 9 / 5) for _ in range(20_000)]))
    assert poisson is not None
    assert bursts is not None
    assert poisson.rate == pytest.approx(5, rel=0.03)
    assert poisson.gap_cv == pytest.approx(1, rel=0.05)
    assert bursts.gap_cv == pytest.approx(3, rel=0.1)
    assert [window.window_s for window in poisson.windows] == [1, 10, 60]
    assert all(window.dispersion == pytest.approx(1, rel=0.3) for window in poisson.windows)
    assert bursts.windows[1].dispersion > 5
    assert bursts.windows[0].peak_to_mean > 2 * poisson.windows[0].peak_to_mean


def test_the_busiest_window_is_the_busiest() -> None:
    found = arrivals(np.array([0.0, *[5.5] * 10, *range(6, 21)]))
    assert found is not None
    (window,) = found.windows
    assert (window.window_s, window.peak_rate) == (1, 10.0)


@pytest.mark.parametrize("times_s", [[3.0], [3.0, 3.0]])
def test_arrivals_without_any_time_between_have_no_rate(times_s: list[float]) -> None:
    found = arrivals(np.array(times_s))
    assert found is not None
    assert (found.span_s, found.rate, found.gap_cv, found.windows) == (0.0, None, None, ())


def test_there_are_no_arrivals_without_times() -> None:
    assert arrivals(np.array([np.nan, np.nan])) is None


def talk(*turns: tuple[str | None, float, float | None]) -> Conversations:
    """Conversations of (session, arrival, duration)."""
    columns = Columns()
    for line, (session, offset_s, duration_s) in enumerate(turns):
        recorded = Recorded(duration_s=duration_s)
        columns.add(
            Request(f"r{line}", offset_s, "/v1/completions", {"prompt": "x"}, session=session, recorded=recorded)
        )
    return conversations(columns.numbers())


def test_people_think_from_the_end_of_a_turn_to_the_next() -> None:
    found = talk(("a", 0, 2), ("b", 1, 1), ("a", 5, 1), (None, 6, 1), ("b", 9, 1), ("a", 10, 1), ("c", 11, 1))
    assert (found.sessions, found.without_session, found.one_request, found.overlapping) == (4, 1, 1, 0)
    assert found.turns is not None
    assert (found.turns.maximum, found.turns.mean) == (3, 7 / 4)
    assert found.think_s is not None
    assert (found.think_s.count, found.think_s.minimum, found.think_s.maximum) == (3, 3, 7)


def test_turns_that_overlap_are_counted_and_nobody_thinks_backwards() -> None:
    found = talk(("a", 0, 4), ("a", 1, 1), ("a", 5, None), ("a", 6, 1))
    assert found.overlapping == 1
    assert found.think_s is not None
    assert (found.think_s.count, found.think_s.mean) == (1, 3)
    assert found.between_turns_s is not None
    assert found.between_turns_s.count == 3
