"""Loads and their text form."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import Load, LoadError, parse_loads


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("recorded", [("recorded", 1)]),
        ("recorded*4", [("recorded", 4)]),
        ("recorded,0.5,2", [("recorded", 1), ("recorded", 0.5), ("recorded", 2)]),
        ("concurrency=1,8", [("concurrency", 1), ("concurrency", 8)]),
        ("rate=3.5", [("rate", 3.5)]),
        ("concurrency=1, rate=2", [("concurrency", 1), ("rate", 2)]),
        ("concurrency=4+think,8", [("concurrency", 4, None, True), ("concurrency", 8, None, True)]),
        ("rate=3.5:cv=2", [("rate", 3.5, 2.0)]),
        ("rate=1:cv=trace,4", [("rate", 1, "trace"), ("rate", 4, "trace")]),
    ],
)
def test_text_is_read(text: str, expected: list[tuple[Any, ...]]) -> None:
    assert tuple(Load(*parts) for parts in expected) == parse_loads(text)


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (Load("recorded", 1), "recorded"),
        (Load("recorded", 2), "recorded*2"),
        (Load("concurrency", 8), "concurrency=8"),
        (Load("rate", 3.5), "rate=3.5"),
    ],
)
def test_text_is_written(load: Load, expected: str) -> None:
    assert expected == str(load)


rates = st.floats(min_value=1e-6, max_value=1e6)
loads = st.one_of(
    st.builds(Load, st.just("recorded"), rates),
    st.builds(Load, st.just("rate"), rates, st.none() | st.just("trace") | st.floats(0, 1e3)),
    st.builds(Load, st.just("concurrency"), st.integers(1, 4096), think=st.booleans()),
)


@settings(deadline=None)
@given(loads)
def test_text_form_is_read_back_exactly(load: Load) -> None:
    assert (load,) == parse_loads(str(load))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "none of"),
        ("8", "none of"),
        ("burst=3", '"burst=3" is none of'),
        ("concurrency=", "not a number"),
        ("concurrency=many", '"many" is not a number'),
        ("concurrency=0", "above 0"),
        ("concurrency=-1", "above 0"),
        ("concurrency=1.5", "whole number"),
        ("rate=0", "above 0"),
        ("rate=inf", "above 0"),
        ("rate=nan", "above 0"),
        ("recorded*0", "above 0"),
        ("recorded*x", '"x" is not a number'),
        ("concurrency=8,8", "concurrency=8 comes twice"),
        ("concurrency=1,,2", "not a number"),
        ("recorded+think", "for concurrency=N only"),
        ("concurrency=2:cv=1", "for rate=R only"),
        ("rate=2:cv=-1", "at least 0"),
        ("rate=2:cv=nan", "at least 0"),
        ("rate=2:cv=much", '"much" is not a number'),
    ],
)
def test_a_bad_load_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(LoadError, match=reason.replace("*", r"\*")):
        parse_loads(text)


def test_only_concurrency_waits_for_the_server() -> None:
    assert [load.is_open_loop for load in parse_loads("recorded,concurrency=1,rate=1")] == [True, False, True]


def test_labels_of_different_loads_differ() -> None:
    every = parse_loads("recorded,recorded*2,rate=2,rate=2:cv=2,rate=2:cv=trace,concurrency=2,concurrency=2+think")
    assert [load.label for load in every] == ["x1", "x2", "r2", "r2cv2", "r2cv-trace", "c2", "c2think"]
