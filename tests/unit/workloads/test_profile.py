"""Profiles, their held-out part and their blocks."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import Profile, ProfileError, Recorded, Request, Workload, split_profiles


def request(line: int, **fields: object) -> Request:
    body: dict[str, object] = {
        "prompt": "x",
        "max_tokens": fields.pop("max_tokens", 10),
        "model": fields.pop("model", "m"),
    }
    return Request(f"r{line}", None, "/v1/completions", body, line=line, **fields)  # type: ignore[arg-type] # test shorthand


def workload(*requests: Request) -> Workload:
    return Workload("w", Path("w.jsonl"), "native", "sha256:0", tuple(requests))


def ids(requests: tuple[Request, ...]) -> list[str]:
    return [request.id for request in requests]


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Sessions interleaved as they come, with uneven work."""
    labels = draw(st.lists(st.one_of(st.none(), st.sampled_from("abcdefgh")), min_size=1, max_size=40))
    work = draw(st.lists(st.integers(1, 500), min_size=len(labels), max_size=len(labels)))
    return Profile(
        "p",
        tuple(
            request(line, session=session, max_tokens=tokens)
            for line, (session, tokens) in enumerate(zip(labels, work, strict=True), start=1)
        ),
    )


def test_profiles_by_route_are_in_order_of_appearance() -> None:
    parts = split_profiles(workload(request(1, route="b"), request(2, route="a"), request(3, route="b")), "route")
    assert [(part.name, ids(part.requests)) for part in parts] == [("b", ["r1", "r3"]), ("a", ["r2"])]


def test_profiles_by_model_tag_and_session() -> None:
    traffic = workload(
        request(1, model="x", session="s", tags={"team": "t1"}), request(2, model="y", session="s", tags={"team": "t2"})
    )
    assert [part.name for part in split_profiles(traffic, "model")] == ["x", "y"]
    assert [part.name for part in split_profiles(traffic, "tag:team")] == ["t1", "t2"]
    assert [part.name for part in split_profiles(traffic, "session")] == ["s"]
    assert [part.name for part in split_profiles(traffic, "none")] == ["all"]


def test_requests_without_the_label_are_one_profile() -> None:
    parts = split_profiles(workload(request(1, route="a"), request(2), request(3)), "route")
    assert [(part.name, len(part.requests)) for part in parts] == [("a", 1), ("other", 2)]


def test_traffic_without_any_route_is_one_profile() -> None:
    assert [part.name for part in split_profiles(workload(request(1), request(2)), "route")] == ["all"]


def test_names_are_safe_and_stay_different() -> None:
    labels = ["../etc", "a/b", "a b", "A-B", "..", "漢", "other", None]
    parts = split_profiles(workload(*(request(i, route=label) for i, label in enumerate(labels, start=1))), "route")
    names = [part.name for part in parts]
    assert names == ["etc", "a-b", "a-b-2", "A-B-3", "profile", "profile-2", "other", "other-2"]
    assert len({name.lower() for name in names}) == len(names)


@pytest.mark.parametrize(
    ("by", "reason"), [("colour", "route, session, model, none, auto or tag:KEY"), ("tag:", "tag:KEY")]
)
def test_an_unknown_division_is_refused(by: str, reason: str) -> None:
    with pytest.raises(ProfileError, match=reason):
        split_profiles(workload(request(1)), by)


def test_a_tag_that_no_request_has_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ProfileError, match='no request has the tag "x"; the tags are: team'):
        split_profiles(workload(request(1, tags={"team": "a"})), "tag:x")


def test_sessions_keep_their_turns_in_file_order() -> None:
    profile = Profile("p", (request(1, session="a"), request(2), request(3, session="b"), request(4, session="a")))
    assert [ids(session) for session in profile.sessions()] == [["r1", "r4"], ["r2"], ["r3"]]


def test_a_session_named_like_a_request_is_not_confused_with_it() -> None:
    profile = Profile("p", (request(1, session="r2"), request(2)))
    assert [ids(session) for session in profile.sessions()] == [["r1"], ["r2"]]


@settings(max_examples=150, deadline=None)
@given(profiles(), st.integers(1, 12))
def test_blocks_are_a_partition_with_whole_sessions(profile: Profile, count: int) -> None:
    blocks = profile.blocks(count)
    assert Counter(ids(profile.requests)) == Counter(r.id for block in blocks for r in block.requests)
    assert min(count, len(profile.sessions())) == len(blocks)
    assert list(range(len(blocks))) == [block.index for block in blocks]
    assert all(block.requests for block in blocks)
    places: dict[str, set[int]] = {}
    for block in blocks:
        assert sorted(block.requests, key=lambda r: r.line) == list(block.requests)
        for each in block.requests:
            if each.session is not None:
                places.setdefault(each.session, set()).add(block.index)
    assert all(len(indices) == 1 for indices in places.values())


@settings(max_examples=150, deadline=None)
@given(profiles(), st.integers(1, 12))
def test_each_cut_is_within_half_a_session_of_its_share_unless_blocks_would_be_empty(
    profile: Profile, count: int
) -> None:
    blocks = profile.blocks(count)
    work = [sum(r.max_tokens or 0 for r in block.requests) for block in blocks]
    sessions = profile.sessions()
    largest = max(sum(r.max_tokens or 0 for r in session) for session in sessions)
    share = sum(work) / len(blocks)
    # A block of several sessions has its cuts at most half a session away on either side.
    for block, amount in zip(blocks, work, strict=True):
        if len({r.session or r.id for r in block.requests}) > 1:
            assert amount <= share + largest


def test_blocks_balance_estimated_work() -> None:
    sizes = [100, 100, 100, 100, 20, 20, 20, 20, 20, 300]
    profile = Profile("p", tuple(request(line, max_tokens=size) for line, size in enumerate(sizes, start=1)))
    assert [sum(r.max_tokens or 0 for r in block.requests) for block in profile.blocks(3)] == [300, 200, 300]


def test_recorded_output_counts_more_than_its_limit_for_the_work() -> None:
    recorded = [Recorded(completion_tokens=tokens) for tokens in (90, 10, 10, 90)]
    profile = Profile("p", tuple(request(i, max_tokens=100, recorded=r) for i, r in enumerate(recorded, start=1)))
    assert [ids(block.requests) for block in profile.blocks(2)] == [["r1", "r2"], ["r3", "r4"]]


def test_no_blocks_are_refused() -> None:
    with pytest.raises(ProfileError, match="at least 1"):
        Profile("p", (request(1),)).blocks(0)


@settings(max_examples=150, deadline=None)
@given(profiles(), st.floats(0.01, 0.99), st.integers(0, 1000))
def test_the_split_is_a_partition_by_session(profile: Profile, share: float, seed: int) -> None:
    if len(profile.sessions()) < 2:
        return
    search, held_out = profile.split(share, seed)
    assert Counter(ids(profile.requests)) == Counter(ids(search.requests) + ids(held_out.requests))
    assert search.requests
    assert held_out.requests
    assert not {s[0].session for s in search.sessions() if s[0].session} & {
        s[0].session for s in held_out.sessions() if s[0].session
    }
    for part in (search, held_out):
        assert sorted(part.requests, key=lambda r: r.line) == list(part.requests)


@settings(max_examples=150, deadline=None)
@given(profiles(), st.floats(0.01, 0.99), st.integers(0, 1000))
def test_the_share_held_out_is_within_one_session_of_the_asked_and_the_same_for_a_seed(
    profile: Profile, share: float, seed: int
) -> None:
    sizes = [len(turns) for turns in profile.sessions()]
    if len(sizes) < 2:
        return
    held_out = profile.split(share, seed)[1]
    assert abs(len(held_out.requests) - share * sum(sizes)) <= max(sizes)
    assert ids(held_out.requests) == ids(profile.split(share, seed)[1].requests)


def test_the_share_held_out_is_of_requests() -> None:
    profile = Profile("p", tuple(request(line) for line in range(1, 101)))
    search, held_out = profile.split(0.3, seed=5)
    assert (len(search.requests), len(held_out.requests)) == (70, 30)


def test_seeds_hold_out_different_requests() -> None:
    profile = Profile("p", tuple(request(line) for line in range(1, 101)))
    assert ids(profile.split(0.3, 1)[1].requests) != ids(profile.split(0.3, 2)[1].requests)


def test_holding_out_nothing_keeps_everything() -> None:
    profile = Profile("p", (request(1),))
    assert (profile, Profile("p", ())) == profile.split(0.0)


def test_one_session_cannot_be_divided() -> None:
    with pytest.raises(ProfileError, match='"p" has 1 session'):
        Profile("p", (request(1, session="s"), request(2, session="s"))).split(0.5)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(ProfileError, match="at least 0 and below 1"):
        Profile("p", (request(1), request(2))).split(share)


DESCRIBE = """
from workloads import Load, Profile, Request
from workloads.schedule import schedule
from workloads.wire import sampling_seed
rs = tuple(Request(f"r{i}", None, "/v1/completions", {"prompt": "x", "max_tokens": i * 7 % 50 + 1},
                   session=f"s{i % 9}", line=i) for i in range(60))
p = Profile("p", rs)
print([[r.id for r in b.requests] for b in p.blocks(4)], [r.id for r in p.split(0.4, 3)[1].requests],
      list(schedule(rs, Load("rate", 2), 11)), sampling_seed(1, "r1"))
"""


@pytest.mark.slow
def test_blocks_splits_arrivals_and_seeds_are_the_same_in_any_process() -> None:
    seen = {
        subprocess.run(
            [sys.executable, "-c", DESCRIBE],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(seen) == 1
    assert "" not in seen
