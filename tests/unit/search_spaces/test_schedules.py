"""Values that are lists for the engine are one text for a search, and nothing malformed gets through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.schedules import parse_integers, parse_schedule, schedule_text


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40), st.integers(0, 31)), min_size=1, max_size=6))
def test_a_schedule_survives_being_written(parts: list[tuple[int, int, int]]) -> None:
    steps: list[tuple[int, int, int]] = []
    for gap, width, k in parts:
        first = steps[-1][1] + 1 + gap if steps else 1
        steps.append((first, first + width, k))
    assert [list(step) for step in steps] == parse_schedule(schedule_text(steps))


@pytest.mark.parametrize("text", ["", "1-8", "2-8:7", "0-8:7", "1-8:7,8-9:3", "1-8:7,20-10:3", "1-8:-1", "1-8:7;9-9:1"])
def test_a_malformed_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"schedule|ascend"):
        parse_schedule(text)


def test_capture_sizes_are_a_rising_list() -> None:
    assert parse_integers("1,2,4,8") == [1, 2, 4, 8]
    for text in ("", "1,,2", "2,1", "1,1", "0,1", "a"):
        with pytest.raises(ValueError, match=r"list of integers|larger than"):
            parse_integers(text)
