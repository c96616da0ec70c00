"""Every fault that SIMULATED_FAULTS offers, seen from outside."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

STREAM = {"prompt": "hello", "stream": True, "max_tokens": 40, "temperature": 0, "ignore_eos": True}


@pytest.mark.parametrize(
    ("faults", "code", "words"),
    [
        ("exit_at_start=7", 7, "exit before ready"),
        ("exit_if=max_num_seqs>=256", 1, "exit before ready"),
        ("exit_share=1.0", 1, "exit before ready"),
        ("oom_if=max_num_seqs>=256", 1, "torch.OutOfMemoryError: CUDA out of memory"),
        ("disk_full", 1, "No space left on device"),
        ("explode", 2, "SIMULATED_FAULTS holds 'explode'"),
    ],
)
def test_faults_that_prevent_a_start(start: Any, faults: str, code: int, words: str) -> None:
    engine = start(faults=faults, wait=False)
    assert engine.process.wait(timeout=30) == code
    assert words in engine.log()


def test_a_rule_that_does_not_match_lets_it_start(start: Any) -> None:
    start("--max-num-seqs", "128", faults="oom_if=max_num_seqs>=256,exit_share=0.0")


async def test_never_ready_listens_but_is_not_healthy(start: Any) -> None:
    async with start(faults="never_ready").client() as client, client.http.get("/health") as response:
        assert response.status == 503


def test_slow_start_delays_readiness(start: Any) -> None:
    begin = time.monotonic()
    start(faults="slow_start=0.8")
    assert time.monotonic() - begin >= 0.8


async def test_hang_stops_all_answers_while_health_is_fine(start: Any) -> None:
    async with start(faults="hang_after=2").client() as client:
        await client.complete(prompt="one", max_tokens=2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.complete(prompt="two", max_tokens=2), 0.3)
        async with client.http.get("/health") as response:
            assert response.status == 200


async def test_death_comes_in_the_middle_of_an_answer(start: Any) -> None:
    engine = start(faults="die_after=2")
    async with engine.client() as client:
        await client.complete(prompt="one", max_tokens=2)
        with pytest.raises(aiohttp.ClientError):
            await client.events("/v1/completions", STREAM)
    assert engine.process.wait(timeout=10) == 1
    assert "EngineCore encountered a fatal error" in engine.log()


async def test_error_shares_hit_the_same_requests_on_every_start(start: Any) -> None:
    async def statuses() -> list[int]:
        async with start(faults="http_500_rate=0.3,http_503_rate=0.3").client() as client:
            body = {"prompt": "x", "max_tokens": 1}
            return [(await client.post("/v1/completions", body))[0] for _ in range(20)]

    first = await statuses()
    assert first == await statuses()
    assert set(first) == {200, 500, 503}


async def test_dropped_connections_break_streams_and_whole_answers(start: Any) -> None:
    async with start(faults="drop_rate=1").client() as client:
        with pytest.raises(aiohttp.ClientError):
            await client.events("/v1/completions", STREAM)
        with pytest.raises(aiohttp.ClientError):
            await client.complete(prompt="x", max_tokens=2)
        assert (await client.counters())["num_requests_running"] == 0


async def test_malformed_streams_hold_one_broken_line_and_no_done_ends_early(start: Any) -> None:
    async with start(faults="malformed_sse,no_done").client() as client:
        events = await client.events("/v1/completions", STREAM)
    broken = []
    for event in events:
        try:
            json.loads(event)
        except json.JSONDecodeError:
            broken.append(event)
    assert len(broken) == 1
    assert events[-1] != "[DONE]"


async def test_a_reset_that_lies_is_seen_in_the_hit_counter(start: Any) -> None:
    async with start(faults="reset_lies").client() as client:
        prompt = list(range(100))
        await client.complete(prompt=prompt, max_tokens=1)
        assert (await client.post("/reset_prefix_cache", None))[1] == {"success": True}
        await client.complete(prompt=prompt, max_tokens=1)
        assert (await client.counters())["prefix_cache_hits_total"] == 96


async def test_wrong_output_needs_speculation(start: Any) -> None:
    texts = []
    for speculative in ((), ("--spec-method", "dflash", "--spec-tokens", "3")):
        async with start(*speculative, faults="wrong_output").client() as client:
            answer = await client.complete(prompt="hello", max_tokens=64, ignore_eos=True)
            texts.append(answer["choices"][0]["text"].split())
    different = sum(a != b for a, b in zip(*texts, strict=True))
    assert 1 <= different <= 4


def test_sigterm_can_be_ignored(start: Any) -> None:
    engine = start(faults="ignore_sigterm")
    engine.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert engine.process.poll() is None


def test_a_grandchild_outlives_its_parent_in_a_session_of_its_own(start: Any) -> None:
    engine = start(faults="grandchild")
    children = Path(f"/proc/{engine.process.pid}/task/{engine.process.pid}/children").read_text().split()
    assert len(children) == 1
    session = Path(f"/proc/{children[0]}/stat").read_text().rpartition(")")[2].split()[3]
    engine.process.send_signal(signal.SIGTERM)
    assert engine.process.wait(timeout=10) == 0
    alive = Path(f"/proc/{children[0]}/cmdline").read_bytes()
    os.kill(int(children[0]), signal.SIGKILL)
    assert session == children[0]
    assert b"time.sleep" in alive
