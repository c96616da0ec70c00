#!/usr/bin/env python3
"""What `tune record` adds to a request: the same requests direct and through it, in turns, against one mock server.

    .venv/bin/python bench/record_overhead.py
    .venv/bin/python bench/record_overhead.py --concurrency 16 --pairs 2000 --redact hash

Mock server, recorder and client are three processes. A pair is one request each way, in random order, so whatever the
host does meets both. The mock answers at once, so all of the difference is the recorder's; of a real engine's times it
is a far smaller share. Exit code 1 when the median of the paired differences is 1 ms or more, or an answer differs.
"""
# ruff: noqa: S101 - asserts tell the type checker about pipes that were asked for

import argparse
import asyncio
import contextlib
import hashlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import uvloop
from aiohttp import web

LIMIT_S = 0.001
PATH = "/v1/chat/completions"
MOCK = "--mock"


@dataclass(frozen=True, slots=True)
class Timing:
    """One request; seconds from sending to the first event and to the end."""

    ttft_s: float
    e2e_s: float
    digest: str


def main() -> int:
    """Measure and print; 0 when it is within the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--warm-up", type=int, default=100, help="pairs before the first that counts")
    parser.add_argument("--concurrency", type=int, default=1, help="pairs at once")
    parser.add_argument("--events", type=int, default=32, help="events of a streamed answer")
    parser.add_argument("--gap-ms", type=float, default=0, help="pause of the mock between two events")
    parser.add_argument("--prompt-chars", type=int, default=2000)
    parser.add_argument("--redact", default="none")
    parser.add_argument(MOCK, action="store_true", help="be the mock server (used by the bench itself)")
    arguments = parser.parse_args()
    if arguments.mock:
        uvloop.run(serve_mock(arguments.events, arguments.gap_ms / 1e3))
        return 0
    return uvloop.run(measure(arguments))


async def serve_mock(events: int, gap_s: float) -> None:
    """A server that answers at once; it prints its port."""
    payload = [event({"choices": [{"index": 0, "delta": {"content": f"word{n} "}}]}) for n in range(events)]
    usage = event({"choices": [], "usage": {"prompt_tokens": 500, "completion_tokens": events}}) + b"data: [DONE]\n\n"
    whole = json.dumps({"choices": [{"index": 0, "message": {"content": "word " * events}}]}).encode()

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not body["stream"]:
            return web.Response(body=whole, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for data in payload:
            await response.write(data)
            await asyncio.sleep(gap_s)
        await response.write(usage)
        return response

    app = web.Application()
    app.router.add_post(PATH, answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


def event(document: dict[str, object]) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(document).encode() + b"\n\n"


async def measure(arguments: argparse.Namespace) -> int:
    """Both kinds of requests; 0 when both are within the limit."""
    good = True
    async with mock(arguments.events, arguments.gap_ms) as upstream, recorder(upstream, arguments.redact) as recording:
        for kind in ("streamed", "whole"):
            async with aiohttp.ClientSession() as direct, aiohttp.ClientSession() as through:
                sides = ((direct, upstream), (through, recording))
                pairs = await all_pairs(sides, arguments, stream=kind == "streamed")
            good = report(kind, pairs) and good
    return 0 if good else 1


@contextlib.asynccontextmanager
async def mock(events: int, gap_ms: float) -> AsyncIterator[str]:
    """A running mock server's URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        MOCK,
        "--events",
        str(events),
        "--gap-ms",
        str(gap_ms),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def recorder(upstream: str, redact: str) -> AsyncIterator[str]:
    """A running recorder's URL; what it says of its work is printed at its end."""
    with tempfile.TemporaryDirectory() as directory:
        out = str(Path(directory) / "bench.jsonl")
        words = ["record", "--upstream", upstream, "--listen", "127.0.0.1:0", "--out", out, "--redact", redact]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tuner", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            first = (await process.stderr.readline()).decode()
            yield next(word for word in first.split() if word.startswith("http://"))
        finally:
            process.terminate()
            print((await process.stdout.read()).decode().replace(directory, "...").strip())
            await process.wait()


Sides = tuple[tuple[aiohttp.ClientSession, str], tuple[aiohttp.ClientSession, str]]
Pair = tuple[Timing, Timing]


async def all_pairs(sides: Sides, arguments: argparse.Namespace, *, stream: bool) -> list[Pair]:
    """The pairs that count, direct first in each."""
    chance = random.Random(0)
    prompt = "word " * (arguments.prompt_chars // 5)
    body = json.dumps({"messages": [{"role": "user", "content": prompt}], "stream": stream}).encode()
    numbers = iter(range(arguments.warm_up + arguments.pairs))
    pairs: list[Pair] = []

    async def work() -> None:
        for number in numbers:
            timings: list[Timing | None] = [None, None]
            for side in chance.sample((0, 1), 2):
                timings[side] = await once(*sides[side], body)
            if number >= arguments.warm_up:
                assert timings[0] is not None
                assert timings[1] is not None
                pairs.append((timings[0], timings[1]))

    await asyncio.gather(*(work() for _ in range(arguments.concurrency)))
    return pairs


async def once(session: aiohttp.ClientSession, url: str, body: bytes) -> Timing:
    """One request."""
    digest = hashlib.sha256()
    first_s = None
    begun_s = time.perf_counter()
    async with session.post(url + PATH, data=body, headers={"Content-Type": "application/json"}) as response:
        async for data in response.content.iter_any():
            first_s = first_s or time.perf_counter()
            digest.update(data)
    ended_s = time.perf_counter()
    assert first_s is not None
    return Timing(first_s - begun_s, ended_s - begun_s, digest.hexdigest())


def report(kind: str, pairs: list[Pair]) -> bool:
    """Print the differences of one kind; whether they are within the limit and all answers equal."""
    good = True
    for name in ("ttft_s", "e2e_s"):
        label = f"{kind:8} {name.removesuffix('_s'):4}"
        direct = [getattr(pair[0], name) for pair in pairs]
        through = [getattr(pair[1], name) for pair in pairs]
        added = [b - a for a, b in zip(direct, through, strict=True)]
        cuts = statistics.quantiles(added, n=100)
        ratio = statistics.median(through) / statistics.median(direct)
        good = good and statistics.median(added) < LIMIT_S
        print(
            f"{label} direct p50 {statistics.median(direct) * 1e3:.3f} ms, through {ratio:.2f} times that; added "
            f"p50 {statistics.median(added) * 1e3:.3f} ms, p90 {cuts[89] * 1e3:.3f} ms, p99 {cuts[98] * 1e3:.3f} ms"
        )
    different = sum(pair[0].digest != pair[1].digest for pair in pairs)
    print(f"{kind:8} {len(pairs)} pairs, {different} answers differ; limit for the added median {LIMIT_S * 1e3:.0f} ms")
    return good and different == 0


if __name__ == "__main__":
    sys.exit(main())
