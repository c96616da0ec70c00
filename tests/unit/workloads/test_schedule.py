"""When requests of an open loop are due."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import Load, LoadError, Request
from workloads.schedule import schedule


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
