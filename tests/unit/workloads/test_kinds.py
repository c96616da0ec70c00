"""Kinds of requests that are found without a label (`--profile-by auto`)."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import Profile, Recorded, Request, Workload, read_workload, split_profiles
from workloads.clustering import FEWEST_SESSIONS, MOST_KINDS
from workloads.columns import is_code

SAMPLE = Path(__file__).parents[3] / "workloads" / "samples" / "api_traffic.jsonl"


def workload(requests: list[Request]) -> Workload:
    return Workload("w", Path("w.jsonl"), "native", "sha256:0", tuple(requests))


def parts(requests: list[Request]) -> dict[str, set[str]]:
    return {profile.name: {r.id for r in profile.requests} for profile in split_profiles(workload(requests), "auto")}


def request(number: int, prompt: str, output: int, session: str | None = None, **body: Any) -> Request:
    message = {"messages": [{"role": "user", "content": prompt}], **body}
    recorded = Recorded(completion_tokens=output)
    return Request(f"r{number}", None, "/v1/chat/completions", message, session=session, recorded=recorded, line=number)


def prose(source: random.Random, words: int) -> str:
    return " ".join(source.choice(("river", "stone", "lantern", "quiet", "harbour", "walks")) for _ in range(words))


@st.composite
def traffic(draw: st.DrawFn) -> list[Request]:
    """Sessions of a few kinds, mixed; kinds may be too small or too alike to be told apart."""
    source = random.Random(draw(st.integers(0, 10_000)))  # noqa: S311 - test data
    kinds = draw(st.lists(st.tuples(st.integers(5, 400), st.sampled_from([0.0, 0.7, None])), min_size=1, max_size=8))
    requests: list[Request] = []
    for kind, (words, temperature) in enumerate(kinds):
        for session in range(draw(st.integers(3, 20))):
            body = {} if temperature is None else {"temperature": temperature}
            for _ in range(source.randint(1, 3)):
                text = prose(source, max(1, round(source.gauss(words, words / 8))))
                requests.append(request(len(requests), text, source.randint(50, 70), f"{kind}-{session}", **body))
    return requests


def test_the_three_kinds_of_the_sample_are_found_without_their_routes() -> None:
    requests = read_workload(SAMPLE).requests
    profiles = split_profiles(workload([*requests]), "auto")
    routes = {profile.name: Counter(request.route for request in profile.requests) for profile in profiles}
    assert sorted(map(dict, routes.values()), key=str) == [{"code": 80}, {"story": 80}, {"support": 80}]
    by_route = {next(iter(counts)): name for name, counts in routes.items()}
    assert by_route["support"].startswith("long-shared-prompt")
    assert "greedy" in by_route["support"]
    assert by_route["story"] == "short-prompt-sampled"
    assert by_route["code"] == "short-prompt-code-greedy"
    assert all(profile.because for profile in profiles)


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_homogeneous_traffic_is_one_profile(count: int) -> None:
    source = random.Random(count)  # noqa: S311 - test data
    split = 0
    for _ in range(10):
        requests = [
            request(n, prose(source, 1 + round(source.lognormvariate(4, 0.8))), 1 + round(source.lognormvariate(5, 1)))
            for n in range(count)
        ]
        split += list(parts(requests)) != ["all"]
    # Chance takes a few small samples apart; see SEPARATION.
    assert split <= 1


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(traffic(), st.randoms(use_true_random=False))
def test_kinds_depend_on_the_requests_and_not_on_their_order(requests: list[Request], source: random.Random) -> None:
    shuffled = [*requests]
    source.shuffle(shuffled)
    assert parts(requests) == parts(shuffled)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(traffic())
def test_kinds_are_few_large_enough_whole_sessions_and_explained(requests: list[Request]) -> None:
    profiles = split_profiles(workload(requests), "auto")
    assert Counter(r.id for r in requests) == Counter(r.id for profile in profiles for r in profile.requests)
    assert len(profiles) <= MOST_KINDS
    assert (
        len({profile.name for profile in profiles}) == len({profile.because for profile in profiles}) == len(profiles)
    )
    places: dict[str | None, set[str]] = {}
    for profile in profiles:
        assert len(profiles) == 1 or len(profile.sessions()) >= FEWEST_SESSIONS
        for each in profile.requests:
            places.setdefault(each.session, set()).add(profile.name)
    assert all(len(names) == 1 for names in places.values())


def test_plainly_different_kinds_are_found() -> None:
    source = random.Random(1)  # noqa: S311 - test data
    system = prose(source, 2000)
    made: dict[str, list[Request]] = {
        "long-shared-prompt": [request(n, f"{system} {prose(source, 20)}", 40) for n in range(30)],
        "structured": [
            request(100 + n, prose(source, 20), 40, response_format={"type": "json_object"}) for n in range(30)
        ],
        "code": [request(200 + n, f"def walk_{n}(river_id):\n    return {n};", 40) for n in range(30)],
        "long-output": [request(300 + n, prose(source, 20), source.randint(600, 900)) for n in range(30)],
    }
    found = parts([r for group in made.values() for r in group])
    for word, group in made.items():
        assert [name for name, members in found.items() if members == {r.id for r in group} and word in name], word


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Write a function total_message_capacity that adds up the capacity of all messages.", True),
        ("def f(x):\n    return x\n", True),
        ("SELECT name FROM users WHERE age >= 3;", True),
        ("What does Array.prototype.flatMap() do?", True),
        ("Tell a story about a fearless diver and a curtain.", False),
        ("Is the lamp dimmable? It costs 48 euros, I was told (by a friend); please check.", False),
        ("", False),
    ],
)
def test_code_is_told_from_prose(text: str, code: bool) -> None:
    assert is_code(text) is code


def test_a_profile_keeps_its_reasons_when_it_is_divided() -> None:
    profile = Profile("p", tuple(request(n, "x", 1) for n in range(4)), ("temperature 0",))
    assert {part.because for part in profile.split(0.5)} == {("temperature 0",)}
