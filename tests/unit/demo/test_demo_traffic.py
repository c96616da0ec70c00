"""The committed sample traffic is what the script makes, and what its README says."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from demo.pair.corpus import is_held_out
from demo.pair.traffic import build_traffic

_FILE = Path(__file__).parents[3] / "workloads" / "samples" / "api_traffic.jsonl"


@pytest.fixture(scope="module")
def committed() -> list[dict[str, Any]]:
    return [json.loads(line) for line in _FILE.read_text(encoding="utf-8").splitlines()]


def _without_counts(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "recorded"}


def test_the_file_equals_what_the_script_makes(committed: list[dict[str, Any]]) -> None:
    assert build_traffic() == [_without_counts(line) for line in committed]


def test_each_route_has_eighty_requests(committed: list[dict[str, Any]]) -> None:
    assert Counter(code=80, support=80, story=80) == Counter(line["route"] for line in committed)


def test_times_start_at_zero_and_never_go_back(committed: list[dict[str, Any]]) -> None:
    times = [line["timestamp_s"] for line in committed]
    assert times[0] == 0
    assert times == sorted(times)


def test_every_prompt_is_held_out(committed: list[dict[str, Any]]) -> None:
    assert all(is_held_out(line["body"]["messages"][-1]["content"]) for line in committed)


def test_code_prompts_are_unique(committed: list[dict[str, Any]]) -> None:
    prompts = [line["body"]["messages"][-1]["content"] for line in committed if line["route"] == "code"]
    assert len(prompts) == len(set(prompts))


def test_support_requests_share_one_long_system_prompt(committed: list[dict[str, Any]]) -> None:
    support = [line for line in committed if line["route"] == "support"]
    assert len({line["body"]["messages"][0]["content"] for line in support}) == 1
    assert {"system"} == {line["body"]["messages"][0]["role"] for line in support}
    assert all(1600 <= line["recorded"]["prompt_tokens"] <= 2000 for line in support)


def test_a_later_turn_carries_the_earlier_ones(committed: list[dict[str, Any]]) -> None:
    turns: dict[str, list[dict[str, Any]]] = {}
    for line in committed:
        if "session" in line:
            turns.setdefault(line["session"], []).append(line)
    assert {2, 3} == {len(lines) for lines in turns.values()}
    for lines in turns.values():
        for before, after in pairwise(lines):
            history = before["body"]["messages"]
            assert history == after["body"]["messages"][: len(history)]


def test_counts_stay_within_max_tokens(committed: list[dict[str, Any]]) -> None:
    for line in committed:
        recorded, limit = line["recorded"], line["body"]["max_tokens"]
        assert 1 <= recorded["completion_tokens"] <= limit
        if recorded["finish_reason"] == "length":
            assert limit == recorded["completion_tokens"]
        assert recorded["prompt_tokens"] > 0
