"""A sample of a long recording behaves like the whole."""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import ProfileError, Request, Workload, read_sample, stream_requests
from workloads.arrivals import arrivals
from workloads.columns import Columns, Numbers
from workloads.prefixes import hit_tokens
from workloads.sampling import choose

LETTERS = "abcdefghijkl "


def text(source: random.Random, least: int, most: int) -> str:
    return "".join(source.choices(LETTERS, k=source.randint(least, most)))


def recording(
    count: int, seed: int, *, burstiness: float = 2.0, systems: int = 20, timed: bool = True, giant: int = 0
) -> list[Request]:
    """Sessions that start in bursts, most of them behind few of many shared prompts, with growing turns.

    One more session is a `giant` of that many turns.
    """
    source = random.Random(seed)  # noqa: S311 - test data
    shared = [f"system {number} {text(source, 500, 4000)}" for number in range(systems)]
    shape = burstiness**-2
    turns: list[tuple[float, str, str, str]] = []
    now_s, session = 0.0, 0
    while len(turns) < count:
        now_s += source.gammavariate(shape, 1 / shape)
        group = min(int(source.paretovariate(1)) - 1, systems - 1)
        prompt, at_s = f"{shared[group]} {session} {text(source, 50, 400)}", now_s
        for _ in range(source.choice((1, 1, 1, 2, 4))):
            turns.append((at_s, f"s{session}", prompt, f"route{group % 3}"))
            at_s += source.expovariate(1 / 8)
            prompt += text(source, 50, 400)
        session += 1
    giant_from_s = source.uniform(0, now_s)
    turns += [(giant_from_s + turn, "giant", "the same again", "route0") for turn in range(giant)]
    turns.sort()
    return [
        Request(
            f"r{line}",
            offset_s - turns[0][0] if timed else None,
            "/v1/completions",
            {"prompt": prompt},
            route=route,
            session=name,
            line=line,
        )
        for line, (offset_s, name, prompt, route) in enumerate(turns, 1)
    ]


def numbers(requests: list[Request]) -> Numbers:
    columns = Columns(lambda request: request.route)
    for request in requests:
        columns.add(request)
    return columns.numbers()


def hit_rate(seen: Numbers, kv_block_size: int) -> float:
    return float(hit_tokens(seen.shared_tokens, seen.prompt_tokens, kv_block_size).sum() / seen.prompt_tokens.sum())


def write(path: Path, requests: list[Request]) -> Path:
    rows = (
        {"id": r.id, "timestamp_s": r.offset_s, "route": r.route, "session": r.session, "body": dict(r.body)}
        for r in requests
    )
    path.write_bytes(b"\n".join(orjson.dumps({k: v for k, v in row.items() if v is not None}) for row in rows) + b"\n")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("burstiness", "systems"), [(1.0, 5), (3.0, 20), (2.0, 100)])
def test_a_sample_of_an_eighth_keeps_hit_rate_burstiness_rate_and_groups(burstiness: float, systems: int) -> None:
    requests = recording(4000, 1, burstiness=burstiness, systems=systems)
    whole = numbers(requests)
    sample = choose(whole, 500, seed=3)
    kept = numbers([requests[place] for place in sample.positions])
    # The tolerances that docs/inspect.md states.
    for size in (16, 640):
        assert hit_rate(kept, size) == pytest.approx(hit_rate(whole, size), abs=0.06)
    before, after = arrivals(whole.offset_s), arrivals(sample.offsets_s)
    assert before is not None
    assert after is not None
    assert after.gap_cv == pytest.approx(before.gap_cv, rel=0.15)
    assert after.rate == pytest.approx(before.rate, rel=0.15)
    shares = [np.bincount(each) / len(each) for each in (whole.label, whole.label[sample.positions])]
    assert np.abs(shares[0] - shares[1]).max() < 0.08


def test_drawing_single_sessions_would_not_keep_them() -> None:
    """The sample is worth its trouble: thinning out is what it must not be like."""
    requests = recording(2000, 1, burstiness=3.0)
    whole = numbers(requests)
    source = random.Random(0)  # noqa: S311 - test data
    lucky = {session for session in set(whole.session.tolist()) if source.random() < 1 / 8}
    thinned = arrivals(whole.offset_s[np.isin(whole.session, list(lucky))])
    assert thinned is not None
    before, after = arrivals(whole.offset_s), arrivals(choose(whole, 250).offsets_s)
    assert before is not None
    assert after is not None
    assert before.rate is not None
    assert after.rate is not None
    assert thinned.rate is not None
    assert after.rate > 0.75 * before.rate > 4 * thinned.rate


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 150), st.booleans(), st.sampled_from((0, 100, 1000)))
def test_samples_are_whole_sessions_of_about_the_asked_size_in_order_of_arrival(
    seed: int, count: int, timed: bool, giant: int
) -> None:
    requests = recording(160, seed, timed=timed, giant=giant)
    sample = choose(numbers(requests), count, seed)
    kept = [requests[place] for place in sample.positions]
    sizes = Counter(request.session for request in requests)
    assert Counter(request.session for request in kept).items() <= sizes.items()
    assert abs(len(kept) - count) <= max(sizes.values())
    assert len(set(sample.positions.tolist())) == len(kept)
    for session in {request.session for request in kept}:
        turns = [
            (place, at_s)
            for place, at_s in zip(sample.positions, sample.offsets_s, strict=True)
            if requests[place].session == session
        ]
        assert [place for place, _ in turns] == sorted(place for place, _ in turns)
        if timed:
            think_s = np.diff([at_s for _, at_s in turns])
            assert think_s == pytest.approx(np.diff([requests[place].offset_s or 0.0 for place, _ in turns]), abs=1e-6)
    if timed:
        assert sample.offsets_s[0] == 0
        assert (np.diff(sample.offsets_s) >= 0).all()


def ids(workload: Workload) -> list[str]:
    return [request.id for request in workload.requests]


def test_a_file_and_a_seed_give_one_sample_that_can_be_divided_and_says_what_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "w.jsonl", recording(400, 5))

    def sample(seed: int) -> Workload:
        return read_sample(lambda: stream_requests(path), 100, seed=seed)[0]

    kept = sample(1)
    assert ids(kept) == ids(sample(1)) != ids(sample(2))
    assert kept.requests[0].offset_s == 0
    assert "a sample of" in kept.notes[-1]
    assert "of 40" in kept.notes[-1]
    whole, difference = read_sample(lambda: stream_requests(path), 10_000)
    assert (difference, ids(whole)) == (None, [request.id for request in stream_requests(path)])
    assert whole.digest == kept.digest


def test_a_session_longer_than_the_sample_is_no_obstacle(tmp_path: Path) -> None:
    path = write(tmp_path / "w.jsonl", recording(20, 5, giant=400))
    kept, difference = read_sample(lambda: stream_requests(path), 320)
    assert difference is not None
    assert sum(request.session == "giant" for request in kept.requests) in {0, 400}


def test_a_sample_of_one_request_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "w.jsonl", recording(10, 5))
    with pytest.raises(ProfileError, match="at least 2"):
        read_sample(lambda: stream_requests(path), 1)
