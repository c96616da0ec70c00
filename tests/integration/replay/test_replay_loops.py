"""Replays against a real server that behaves: what is sent, when, and how it is accounted for."""

import asyncio
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from workloads import Block, Load, LoadError, Profile, Request, replay, summarise

if TYPE_CHECKING:
    from tests.integration.replay.conftest import ScriptedServer


def request(line: int, session: str | None = None, offset_s: float | None = None, **body: Any) -> Request:
    full = {"messages": [{"role": "user", "content": "hi"}], "user": f"r{line}", "temperature": 0, **body}
    return Request(f"r{line}", offset_s, "/v1/chat/completions", full, session=session, line=line)


def block(*requests: Request, index: int = 0) -> Block:
    return Block("p", index, requests)


async def test_every_request_has_one_outcome_in_the_order_of_the_blocks(server: "ScriptedServer") -> None:
    blocks = [block(request(1), request(2)), block(request(3, tokens=2, per_event=2), index=1)]
    result = await replay(server.target, blocks, Load("concurrency", 3))
    assert [(o.request_id, o.block, o.completion_tokens, o.error) for o in result.outcomes] == [
        ("r1", 0, 4, None),
        ("r2", 0, 4, None),
        ("r3", 1, 2, None),
    ]
    first = result.outcomes[0]
    assert (list(first.chunk_tokens), first.prompt_tokens, first.cached_tokens) == ([1, 2, 3, 4], 9, 8)
    assert (first.finish_reason, first.text) == ("length", None)
    assert first.sent_s is not None
    assert first.first_token_s is not None
    assert 0 <= first.sent_s < first.first_token_s <= first.chunk_s[-1] <= first.end_s <= result.duration_s


async def test_what_arrives_is_the_recorded_body_with_key_model_and_salt(server: "ScriptedServer") -> None:
    await replay(
        server.target, [block(request(1, top_p=0.9))], Load("concurrency", 1), temperature=0.5, seed=3, cache_salt="m7"
    )
    body = server.bodies[0]
    assert (body["model"], body["stream"], body["top_p"], body["temperature"], body["cache_salt"]) == (
        "served",
        True,
        0.9,
        0.5,
        "m7",
    )
    assert isinstance(body["seed"], int)
    assert server.headers[0]["Authorization"] == "Bearer secret"


async def test_text_is_kept_only_when_asked_for(server: "ScriptedServer") -> None:
    result = await replay(server.target, [block(request(1))], Load("concurrency", 1), keep_text=True)
    assert result.outcomes[0].text == "éééé"


async def test_a_closed_loop_keeps_its_concurrency_and_no_more(server: "ScriptedServer") -> None:
    requests = [request(line, gap_s=0.005) for line in range(1, 31)]
    result = await replay(server.target, Profile("p", tuple(requests)).blocks(3), Load("concurrency", 5))
    metrics = summarise(result)
    assert (server.most_in_flight, metrics.completed, len(server.bodies)) == (5, 30, 30)
    assert metrics.in_flight_mean == pytest.approx(5, rel=0.15)
    assert list(result.send_lag_s) == [0.0] * 30
    # The connections made before the start are those that are used.
    assert len(server.connections) == 5


async def test_blocks_follow_each_other_without_a_pause(server: "ScriptedServer") -> None:
    # Lengths at which no two requests end at the same moment when a block does.
    requests = [request(line, gap_s=0.01 + 0.003 * (line * line % 7)) for line in range(1, 13)]
    result = await replay(server.target, Profile("p", tuple(requests)).blocks(3), Load("concurrency", 2))
    by_sending = sorted(result.outcomes, key=lambda o: o.sent_s or 0)
    assert [o.block for o in by_sending] == sorted(o.block for o in result.outcomes)
    for earlier, later in pairwise(range(3)):
        # The next block begins while the last request of the one before is still running.
        begins_s = min(o.sent_s for o in result.outcomes if o.block == later and o.sent_s is not None)
        assert begins_s < max(o.end_s for o in result.outcomes if o.block == earlier)


@pytest.mark.parametrize("load", [Load("concurrency", 4), Load("rate", 500), Load("recorded", 1)], ids=str)
async def test_turns_of_a_session_never_overtake_each_other(server: "ScriptedServer", load: Load) -> None:
    requests = [request(line, session=f"s{line % 3}", offset_s=0.001 * line, gap_s=0.005) for line in range(12)]
    result = await replay(server.target, [block(*requests)], load)
    by_session: dict[str, list[Any]] = {}
    for each, outcome in zip(requests, result.outcomes, strict=True):
        assert each.id == outcome.request_id
        by_session.setdefault(each.session or "", []).append(outcome)
    for turns in by_session.values():
        assert len(turns) == 4
        assert all(earlier.end_s <= later.sent_s for earlier, later in pairwise(turns))


async def test_an_open_loop_sends_at_the_recorded_times_whatever_the_server_does(server: "ScriptedServer") -> None:
    # Each answer takes 0.5 s; a client that waited would be late by that from the second on.
    requests = [request(line, offset_s=5 + 0.04 * line, tokens=1, gap_s=0.5) for line in range(6)]
    result = await replay(server.target, [block(*requests)], Load("recorded", 2))
    assert [o.scheduled_s for o in result.outcomes] == pytest.approx([0.02 * line for line in range(6)])
    assert all(0 <= lag_s < 0.3 for lag_s in result.send_lag_s)
    assert server.most_in_flight == 6
    metrics = summarise(result)
    assert metrics.e2e_scheduled_s is not None
    assert metrics.e2e_s is not None
    assert metrics.e2e_scheduled_s.mean >= metrics.e2e_s.mean >= 0.5


async def test_lag_of_a_later_turn_counts_from_the_end_of_the_turn_before(server: "ScriptedServer") -> None:
    # The second turn is due at 0.01 s but cannot go before the first has ended at 0.3 s: that is no lag of the client.
    turns = [request(line, session="s", offset_s=0.01 * line, tokens=1, gap_s=0.3) for line in range(2)]
    result = await replay(server.target, [block(*turns)], Load("recorded", 1))
    second = result.outcomes[1]
    assert second.scheduled_s == pytest.approx(0.01)
    assert second.sent_s is not None
    assert second.sent_s >= 0.3
    assert result.send_lag_s[1] < 0.2


async def test_the_same_block_twice_is_replayed_twice(server: "ScriptedServer") -> None:
    once = block(request(1, session="s"), request(2, session="s"))
    result = await replay(server.target, [once, once], Load("concurrency", 1))
    assert [(o.request_id, o.block) for o in result.outcomes] == [("r1", 0), ("r2", 0), ("r1", 1), ("r2", 1)]
    assert server.started == ["r1", "r2", "r1", "r2"]


async def test_tokens_per_event_come_from_usage(server: "ScriptedServer") -> None:
    result = await replay(
        server.target, [block(request(1, tokens=20, per_event=4, gap_s=0.02))], Load("concurrency", 1)
    )
    metrics = summarise(result)
    assert (metrics.completion_tokens, metrics.tokens_per_chunk) == (20, 4.0)
    assert metrics.tpot_s is not None
    assert metrics.chunk_gap_s is not None
    # Four gaps of at least 20 ms for 19 tokens.
    assert metrics.chunk_gap_s.mean >= 0.02
    assert metrics.tpot_s.mean == pytest.approx(4 * metrics.chunk_gap_s.mean / 19)


async def test_recorded_time_without_timestamps_is_refused_before_anything_is_sent(server: "ScriptedServer") -> None:
    with pytest.raises(LoadError, match="no timestamp"):
        await replay(server.target, [block(request(1))], Load("recorded", 1))
    assert server.bodies == []


async def test_an_empty_replay_ends_at_once(server: "ScriptedServer") -> None:
    result = await replay(server.target, [], Load("concurrency", 4))
    assert result.outcomes == ()
    assert summarise(result).requests == 0


async def test_the_lateness_of_the_event_loop_is_seen(server: "ScriptedServer") -> None:
    async def block_the_loop() -> None:
        await asyncio.sleep(0.1)
        end_s = time.process_time() + 0.15
        while time.process_time() < end_s:
            pass

    starving = asyncio.create_task(block_the_loop())
    result = await replay(server.target, [block(request(1, gap_s=0.1))], Load("concurrency", 1))
    await starving
    assert max(result.loop_lag_s) > 0.1
    assert result.client_cpu_s > 0.1
