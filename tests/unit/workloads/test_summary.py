"""Profiles in numbers."""

from typing import Any

import pytest

from workloads import Profile, Recorded, Request
from workloads.summary import prompt_chars


def chat(line: int, offset_s: float | None = None, recorded: Recorded | None = None, **body: Any) -> Request:
    message = {"messages": [{"role": "user", "content": "x" * line}]}
    return Request(
        f"r{line}", offset_s, "/v1/chat/completions", {**message, **body}, recorded=recorded, line=line, session="s"
    )


def test_counts_and_sampling() -> None:
    summary = Profile(
        "p",
        (
            chat(1, temperature=0.8, model="b", n=2),
            chat(2, temperature=0.8, model="a", tools=[{}]),
            chat(3, response_format={"type": "json_object"}),
            Request("r4", None, "/v1/completions", {"prompt": "abcd", "temperature": 0}, line=4),
        ),
    ).summary()
    assert (summary.name, summary.requests, summary.sessions, summary.turns_per_session) == ("p", 4, 2, 2.0)
    assert summary.temperatures == ((0.8, 2), (None, 1), (0, 1))
    assert (summary.models, summary.endpoints) == (("a", "b"), ("/v1/chat/completions", "/v1/completions"))
    assert (summary.structured_output, summary.tools, summary.several_choices) == (1, 1, 1)
    assert (
        summary.prompt_tokens,
        summary.completion_tokens,
        summary.max_tokens,
        summary.duration_s,
    ) == (None, None, None, None)


def test_quantiles_are_values_that_occur() -> None:
    quantiles = Profile("p", tuple(chat(line) for line in range(1, 101))).summary().prompt_chars
    assert quantiles is not None
    assert (
        quantiles.count,
        quantiles.mean,
        quantiles.minimum,
        quantiles.p50,
        quantiles.p90,
        quantiles.p99,
        quantiles.maximum,
    ) == (100, 50.5, 1, 50, 90, 99, 100)


def test_recorded_counts_are_of_the_requests_that_have_them() -> None:
    summary = Profile("p", (chat(1, recorded=Recorded(prompt_tokens=10)), chat(2), chat(3, max_tokens=7))).summary()
    assert summary.prompt_tokens is not None
    assert summary.max_tokens is not None
    assert (
        summary.prompt_tokens.count,
        summary.prompt_tokens.p50,
        summary.max_tokens.count,
        summary.max_tokens.p50,
    ) == (1, 10, 1, 7)


def test_even_arrivals() -> None:
    summary = Profile("p", (chat(1, 2.0), chat(2, 2.5), chat(3, 3.0))).summary()
    assert (summary.duration_s, summary.arrival_rate, summary.arrival_cv) == (1.0, 2.0, 0.0)


def test_bursty_arrivals_have_a_variation_above_one() -> None:
    burst = [0.0] * 5 + [10.0] * 5
    cv = Profile("p", tuple(chat(line, time_s) for line, time_s in enumerate(burst, 1))).summary().arrival_cv
    assert cv is not None
    # Eight gaps of 0 and one of 10: standard deviation over mean is sqrt(8).
    assert pytest.approx(8**0.5) == cv


@pytest.mark.parametrize("times_s", [(3.0,), (3.0, 3.0)])
def test_arrivals_without_any_time_between_have_no_rate(times_s: tuple[float, ...]) -> None:
    summary = Profile("p", tuple(chat(line, time_s) for line, time_s in enumerate(times_s, 1))).summary()
    assert (summary.duration_s, summary.arrival_rate, summary.arrival_cv) == (0.0, None, None)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"prompt": "abc"}, 3),
        ({"prompt": ["ab", "c"]}, 3),
        ({"prompt": [1, 2, 3]}, 0),
        ({"messages": [{"role": "user", "content": "ab"}, {"role": "assistant", "content": None}]}, 2),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "ab"}, {"type": "image_url"}]}]}, 2),
    ],
)
def test_characters_of_a_prompt(body: dict[str, Any], expected: int) -> None:
    assert expected == prompt_chars(body)


def test_no_prompt_text_gets_into_a_summary() -> None:
    request = Request("r1", 0.0, "/v1/completions", {"prompt": "hunter2"}, line=1)
    assert "hunter2" not in Profile("p", (request,)).summary().model_dump_json()
