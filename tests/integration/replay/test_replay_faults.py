"""Replays against a real server that misbehaves, deadlines and cancellation: no request is lost, none left behind."""

import asyncio
import inspect
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from workloads import Block, Load, Request, RequestOutcome, Target, connection, loops, replay, summarise

if TYPE_CHECKING:
    from tests.integration.replay.conftest import ScriptedServer


def request(line: int, offset_s: float | None = None, session: str | None = None, **body: Any) -> Request:
    full = {"messages": [{"role": "user", "content": "hi"}], "user": f"r{line}", **body}
    return Request(f"r{line}", offset_s, "/v1/chat/completions", full, session=session, line=line)


async def one(server: "ScriptedServer", behaviour: str, **options: Any) -> RequestOutcome:
    """The outcome of a request with a behaviour; the well-behaved one after it must not suffer."""
    block = Block("p", 0, (request(1, behaviour=behaviour), request(2)))
    bad, good = (await replay(server.target, [block], Load("concurrency", 1), **options)).outcomes
    assert (good.request_id, good.error, good.completion_tokens) == ("r2", None, 4)
    return bad


@pytest.mark.parametrize(
    ("behaviour", "error", "tokens"),
    [
        ("status_400", "http_400", 0),
        ("status_401", "http_401", 0),
        ("status_503", "http_503", 0),
        ("reset", "connection", 0),
        ("json", "stream_broken", 0),
        ("unfinished", "stream_broken", 1),
        ("reset_midway", "stream_broken", 1),
        ("error_midway", "stream_error", 1),
    ],
)
async def test_a_fault_has_its_class_and_what_arrived_is_kept(
    server: "ScriptedServer", behaviour: str, error: str, tokens: int
) -> None:
    bad = await one(server, behaviour)
    assert (bad.error, bad.completion_tokens) == (error, tokens)
    assert bad.error_detail


async def test_the_server_s_own_words_are_kept_short(server: "ScriptedServer") -> None:
    detail = (await one(server, "status_400")).error_detail
    assert detail is not None
    assert detail.startswith("max_tokens is too large")
    assert len(detail) == 300


@pytest.mark.parametrize("behaviour", ["cut_anywhere", "without_done", "big_event"])
async def test_an_odd_stream_is_no_fault(server: "ScriptedServer", behaviour: str) -> None:
    bad = await one(server, behaviour, keep_text=True)
    assert (bad.error, bad.text) == (None, "éééé" if behaviour == "cut_anywhere" else "a")


async def test_a_server_without_usage_is_counted_by_events_and_marked(server: "ScriptedServer") -> None:
    block = Block("p", 0, (request(1, behaviour="without_usage"),))
    metrics = summarise(await replay(server.target, [block], Load("concurrency", 1)))
    assert (metrics.completion_tokens, metrics.chunk_tokens_estimated, metrics.failed) == (4, True, 0)


@pytest.mark.parametrize(("behaviour", "tokens"), [("hang", 0), ("stalls", 1)])
async def test_a_request_that_does_not_end_times_out(server: "ScriptedServer", behaviour: str, tokens: int) -> None:
    bad = await one(server, behaviour, request_timeout_s=0.3)
    assert (bad.error, bad.completion_tokens) == ("timeout", tokens)
    assert 0.3 <= (bad.e2e_s or 0) < 2


async def test_a_response_that_stays_open_after_its_end_holds_nothing_up_for_long(
    server: "ScriptedServer", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "DRAIN_S", 0.6)
    bad = await one(server, "stays_open")
    assert (bad.error, bad.completion_tokens) == (None, 4)
    assert (bad.e2e_s or 9) < 0.5


async def test_an_event_without_end_is_given_up(server: "ScriptedServer") -> None:
    assert (await one(server, "never_ending_event")).error == "stream_broken"


async def test_nobody_listening() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused, and nobody else gets it
        target = Target(f"http://127.0.0.1:{reserved.getsockname()[1]}", "", "m")
        result = await replay(target, [Block("p", 0, (request(1), request(2)))], Load("concurrency", 2))
    assert [(o.error, o.completion_tokens) for o in result.outcomes] == [("connection", 0)] * 2
    assert all("127.0.0.1" in (o.error_detail or "") for o in result.outcomes)


@pytest.mark.parametrize("load", [Load("concurrency", 2), Load("recorded", 1)], ids=str)
async def test_at_the_deadline_the_rest_is_abandoned_and_accounted_for(server: "ScriptedServer", load: Load) -> None:
    requests = (
        request(1, 0.0),
        request(2, 0.0, behaviour="stalls"),
        request(3, 0.0, "s", behaviour="stalls"),
        request(4, 0.1, "s"),
        request(5, 30.0),
    )
    result = await replay(server.target, [Block("p", 0, requests)], load, deadline_s=0.5)
    assert [o.error for o in result.outcomes] == [None, *["abandoned"] * 4]
    assert [o.completion_tokens for o in result.outcomes[:3]] == [4, 1, 1]
    assert [o.sent_s is None for o in result.outcomes] == [False, False, False, True, True]
    assert 0.5 <= result.duration_s < 2
    assert summarise(result).errors == {"abandoned": 4}
    # The server saw its requests end; the fixture fails if one stays.
    assert len(server.bodies) == 3


@pytest.mark.parametrize("load", [Load("concurrency", 8), Load("rate", 1000)], ids=str)
async def test_cancelling_a_replay_leaves_no_request_behind(server: "ScriptedServer", load: Load) -> None:
    block = Block("p", 0, tuple(request(line, behaviour="stalls") for line in range(8)))
    running = asyncio.create_task(replay(server.target, [block], load))
    await server.until_in_flight(8)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await server.until_in_flight(0)
    assert sorted(server.ended) == sorted(f"r{line}" for line in range(8))
    assert [coroutine for task in asyncio.all_tasks() if _is_ours(coroutine := task.get_coro())] == []


def _is_ours(coroutine: object) -> bool:
    return inspect.iscoroutine(coroutine) and "workloads" in Path(coroutine.cr_code.co_filename).parts


async def test_a_body_beyond_a_megabyte_is_sent(server: "ScriptedServer") -> None:
    message = [{"role": "user", "content": "x" * (3 * 2**20)}]
    result = await replay(server.target, [Block("p", 0, (request(1, messages=message),))], Load("concurrency", 1))
    assert result.outcomes[0].error is None
    assert server.bodies[0]["messages"] == message


async def test_streams_are_read_early_when_much_has_piled_up(
    server: "ScriptedServer", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "MAX_UNREAD_BYTES", 100)
    monkeypatch.setattr(loops, "READS_AT_ONCE", 2)
    block = Block("p", 0, tuple(request(line, gap_s=0.02) for line in range(5)))
    result = await replay(server.target, [block], Load("concurrency", 2), keep_text=True)
    assert [(o.request_id, o.completion_tokens, o.text) for o in result.outcomes] == [
        (f"r{line}", 4, "éééé") for line in range(5)
    ]
