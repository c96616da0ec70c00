"""What goes out for a recorded request."""

from typing import Any

import orjson
import pytest

from workloads import Request, Target, WorkloadError
from workloads.wire import Overrides, sampling_seed, wire_body

EXTRAS: dict[str, Any] = {
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "tool_choice": "auto",
    "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}},
    "chat_template_kwargs": {"enable_thinking": False},
    "logprobs": True,
    "n": 2,
    "stop": ["\n", "é"],
    "logit_bias": {"7": -100},
    "top_p": 0.95,
}


def sent(body: dict[str, Any], overrides: Overrides | None = None) -> dict[str, Any]:
    request = Request("r1", None, "/v1/chat/completions", body)
    parsed: dict[str, Any] = orjson.loads(wire_body(request, "served", overrides or Overrides()))
    return parsed


def test_fields_that_a_replay_does_not_control_go_out_as_recorded() -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "seed": 1, **EXTRAS}
    assert body == {name: value for name, value in sent(body).items() if name in body}


def test_only_model_and_streaming_are_added_to_a_greedy_request() -> None:
    body = {"prompt": "x", "temperature": 0}
    expected = {
        **body,
        "model": "served",
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    assert expected == sent(body)


def test_recorded_model_and_streaming_are_replaced() -> None:
    out = sent({"prompt": "x", "model": "gpt", "stream": False, "stream_options": {"include_usage": False}})
    assert (out["model"], out["stream"], out["stream_options"]["include_usage"]) == ("served", True, True)


@pytest.mark.parametrize(("recorded", "override", "expected"), [(0.7, None, 0.7), (0.7, 0.0, 0.0), (None, 0.3, 0.3)])
def test_temperature_is_replaced_only_when_asked(
    recorded: float | None, override: float | None, expected: float
) -> None:
    body = {"prompt": "x"} if recorded is None else {"prompt": "x", "temperature": recorded}
    assert expected == sent(body, Overrides(temperature=override))["temperature"]


def test_an_absent_temperature_stays_absent() -> None:
    assert "temperature" not in sent({"prompt": "x"})


def test_a_cache_salt_is_sent_only_when_given() -> None:
    assert "cache_salt" not in sent({"prompt": "x"})
    assert sent({"prompt": "x"}, Overrides(cache_salt="m1"))["cache_salt"] == "m1"


@pytest.mark.parametrize(
    ("body", "overrides", "expected"),
    [
        ({"temperature": 0.8}, Overrides(seed=3), sampling_seed(3, "r1")),
        ({}, Overrides(seed=3), sampling_seed(3, "r1")),
        ({"temperature": 0.8, "seed": 9}, Overrides(seed=3), 9),
        ({"temperature": 0}, Overrides(seed=3), None),
        ({"temperature": 0.8}, Overrides(seed=3, temperature=0.0), None),
        ({"temperature": 0}, Overrides(seed=3, temperature=0.5), sampling_seed(3, "r1")),
        ({"temperature": 0.8}, Overrides(seed=None), None),
    ],
)
def test_a_seed_is_given_where_sampling_needs_one(
    body: dict[str, Any], overrides: Overrides, expected: int | None
) -> None:
    assert expected == sent({"prompt": "x", **body}, overrides).get("seed")


def test_seeds_differ_by_request_and_replay_and_fit_31_bits() -> None:
    seeds = {sampling_seed(seed, name) for seed in range(10) for name in "abcdefghij"}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_the_recorded_body_is_not_changed() -> None:
    body = {"prompt": "x", "model": "gpt"}
    sent(body, Overrides(temperature=1.0, cache_salt="s"))
    assert body == {"prompt": "x", "model": "gpt"}


@pytest.mark.parametrize(
    ("url", "key", "reason"),
    [
        ("http://user:hunter2@host", "", "user name"),
        ("http://host", "hunter2\r\nX: y", "characters that no HTTP header takes"),
        ("http://host", "hunter2 ", "characters that no HTTP header takes"),
        ("http://host", "hunter2é", "characters that no HTTP header takes"),
    ],
)
def test_a_key_or_url_that_cannot_be_sent_is_refused_without_being_shown(url: str, key: str, reason: str) -> None:
    with pytest.raises(WorkloadError, match=reason) as refused:
        Target(url, key, "m")
    assert "hunter2" not in str(refused.value)


def test_a_base_url_without_a_scheme_is_refused() -> None:
    with pytest.raises(WorkloadError, match='the base URL is "localhost:8000"; it must start with http'):
        Target("localhost:8000", "", "m")
