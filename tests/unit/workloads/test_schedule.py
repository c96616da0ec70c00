"""When requests of an open loop are due."""

import itertools
import statistics
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import Load, LoadError, Recorded, Request
from workloads.schedule import schedule, think_times


def requests(*offsets_s: float | None) -> list[Request]:
    return [
        Request(f"r{line}", offset_s, "/v1/completions", {"prompt": "x"}, line=line)
        for line, offset_s in enumerate(offsets_s, start=1)
    ]


def test_recorded_time_starts_at_the_first_of_these_requests() -> None:
    assert list(schedule(requests(10.0, 10.5, 13.0), Load("recorded", 1))) == [0.0, 0.5, 3.0]


def test_a_speed_factor_divides_recorded_time() -> None:
    assert list(schedule(requests(10.0, 10.5, 13.0), Load("recorded", 2))) == [0.0, 0.25, 1.5]


def test_requests_out_of_order_keep_their_own_times() -> None:
    assert list(schedule(requests(7.0, 5.0, 6.0), Load("recorded", 1))) == [2.0, 0.0, 1.0]


def test_recorded_time_needs_timestamps() -> None:
    with pytest.raises(LoadError, match=r'"r2" \(line 2\) has no timestamp'):
        schedule(requests(1.0, None), Load("recorded", 1))


def test_a_closed_loop_has_no_schedule() -> None:
    with pytest.raises(LoadError, match="closed loop"):
        schedule(requests(1.0), Load("concurrency", 1))


@settings(deadline=None)
@given(st.floats(0.01, 1000), st.integers(0, 2**31), st.integers(1, 200))
def test_a_rate_gives_ordered_arrivals_from_zero_and_the_same_again(rate: float, seed: int, count: int) -> None:
    due_s = schedule(requests(*[None] * count), Load("rate", rate), seed)
    assert due_s == schedule(requests(*[None] * count), Load("rate", rate), seed)
    assert due_s[0] == 0.0
    assert all(earlier <= later for earlier, later in pairwise(due_s))


def test_seeds_give_different_arrivals() -> None:
    ten = requests(*[None] * 10)
    assert schedule(ten, Load("rate", 1), 1) != schedule(ten, Load("rate", 1), 2)


def test_gaps_of_a_rate_are_exponential_with_its_mean() -> None:
    due_s = schedule(requests(*[None] * 20_001), Load("rate", 50), 3)
    gaps_s = [later - earlier for earlier, later in pairwise(due_s)]
    mean_s = sum(gaps_s) / len(gaps_s)
    variance = sum((gap - mean_s) ** 2 for gap in gaps_s) / len(gaps_s)
    # 20,000 exponential gaps: the standard error of the mean is 0.7%, that of the variation about 1%.
    assert pytest.approx(1 / 50, rel=0.03) == mean_s
    assert pytest.approx(1.0, rel=0.05) == variance**0.5 / mean_s


@pytest.mark.parametrize("cv", [0.0, 0.5, 2.0])
def test_gaps_of_a_rate_have_the_variation_that_was_asked_for(cv: float) -> None:
    due_s = schedule(requests(*[None] * 40_001), Load("rate", 50, cv), 3)
    gaps_s = [later - earlier for earlier, later in pairwise(due_s)]
    # 40,000 gamma gaps of variation 2: the standard error of the mean is 1%, that of the variation about 2%.
    assert pytest.approx(1 / 50, rel=0.04) == statistics.fmean(gaps_s)
    assert pytest.approx(cv, rel=0.08, abs=1e-9) == statistics.pstdev(gaps_s) / statistics.fmean(gaps_s)


def test_the_trace_s_own_burstiness_is_kept_at_another_rate() -> None:
    # Gaps 1, 1, 1, 9 repeated: mean 3, variation sqrt(12) / 3.
    offsets_s = [0.0, *itertools.accumulate([1.0, 1.0, 1.0, 9.0] * 5_000)]
    due_s = schedule(requests(*offsets_s), Load("rate", 100, "trace"), 1)
    gaps_s = [later - earlier for earlier, later in pairwise(due_s)]
    assert pytest.approx(12**0.5 / 3, rel=0.08) == statistics.pstdev(gaps_s) / statistics.fmean(gaps_s)
    assert pytest.approx(0.01, rel=0.05) == statistics.fmean(gaps_s)


@pytest.mark.parametrize(("offsets_s", "reason"), [((None, None), "no timestamp"), ((1.0, 1.0, 1.0), "have none")])
def test_burstiness_of_a_trace_without_gaps_is_refused(offsets_s: tuple[float | None, ...], reason: str) -> None:
    with pytest.raises(LoadError, match=reason):
        schedule(requests(*offsets_s), Load("rate", 1, "trace"))


def test_think_times_are_what_is_left_of_a_gap_when_the_answer_is_taken_off() -> None:
    def turn(offset_s: float, duration_s: float | None) -> Request:
        return Request("r", offset_s, "/v1/completions", {"prompt": "x"}, recorded=Recorded(duration_s=duration_s))

    turns = [turn(0.0, 2.0), turn(5.0, 4.0), turn(7.0, None), turn(9.0, 1.0)]
    # 5 - 2; the answer lasted longer than the gap; not known.
    assert think_times(turns, Load("recorded", 1)) == [None, 3.0, 0.0, None]
    assert think_times(turns, Load("recorded", 2)) == [None, 1.5, 0.0, None]
    assert think_times(turns, Load("rate", 1)) == think_times(turns, Load("concurrency", 1)) == [None] * 4
    assert think_times(turns[:3], Load("concurrency", 1, think=True)) == [None, 3.0, 0.0]
    with pytest.raises(LoadError, match="is not known"):
        think_times(turns, Load("concurrency", 1, think=True))
