"""A real HTTP server that speaks the streaming protocol of an OpenAI server, well or badly, as each request asks."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from workloads import Target


class ScriptedServer:
    """Answers each request as its body's `behaviour` says, and notes what it saw.

    Body fields read: `behaviour` (default "good"), `tokens` (default 4), `per_event` (default 1), `gap_s` (default 0).
    """

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.started: list[str] = []
        self.ended: list[str] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self._moved = asyncio.Event()
        self.connections: set[tuple[str, int]] = set()
        self.target = Target("http://127.0.0.1:1", "", "")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Handle one request."""
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        assert request.transport is not None
        self.connections.add(request.transport.get_extra_info("peername"))
        self._move(1)
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.started.append(body["user"])
        try:
            return await self._behave(request, body)
        finally:
            self.ended.append(body["user"])
            self._move(-1)

    async def until_in_flight(self, count: int) -> None:
        """Wait until so many requests are being answered; a test fails if that takes more than 30 s."""
        async with asyncio.timeout(30):
            while self.in_flight != count:
                self._moved.clear()
                await self._moved.wait()

    def _move(self, change: int) -> None:
        self.in_flight += change
        self._moved.set()

    async def _behave(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        behaviour = body.get("behaviour", "good")
        if behaviour.startswith("status_"):
            return web.Response(status=int(behaviour.removeprefix("status_")), text="max_tokens is too large " * 100)
        if behaviour == "reset":
            _cut(request)
            return web.Response()
        if behaviour == "hang":
            await asyncio.sleep(60)
        if behaviour == "json":
            return web.json_response({"choices": [{"text": "not streamed"}]})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        await _STREAMS.get(behaviour, _good)(request, response, body)
        await response.write_eof()
        return response


def _cut(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()


def _event(data: Any, end: str = "\n\n") -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}{end}".encode()


def _chunk(text: str, tokens: int | None, *, finish: str | None = None) -> dict[str, Any]:
    event: dict[str, Any] = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}
    if tokens is not None:
        event["usage"] = {"prompt_tokens": 9, "completion_tokens": tokens}
    return event


def _usage(tokens: int) -> dict[str, Any]:
    details = {"prompt_tokens": 9, "completion_tokens": tokens, "prompt_tokens_details": {"cached_tokens": 8}}
    return {"choices": [], "usage": details}


def _events(body: dict[str, Any]) -> list[dict[str, Any]]:
    tokens, per_event = body.get("tokens", 4), body.get("per_event", 1)
    counts = [*range(per_event, tokens, per_event), tokens]
    return [_chunk("é" * per_event, count, finish="length" if count == tokens else None) for count in counts]


async def _good(_request: web.Request, response: web.StreamResponse, body: dict[str, Any]) -> None:
    await response.write(_event(_chunk("", 0)))
    for event in _events(body):
        await asyncio.sleep(body.get("gap_s", 0))
        await response.write(_event(event))
    await response.write(_event(_usage(body.get("tokens", 4))) + b"data: [DONE]\n\n")


async def _cut_anywhere(_request: web.Request, response: web.StreamResponse, body: dict[str, Any]) -> None:
    """CRLF, comments, and every byte in a packet of its own."""
    stream = b": ping\r\n\r\n" + b"".join(_event(event, "\r\n\r\n") for event in _events(body))
    stream += _event(_usage(body.get("tokens", 4)), "\r\n\r\n") + b"data: [DONE]\r\n\r\n"
    for position in range(len(stream)):
        await response.write(stream[position : position + 1])
        await asyncio.sleep(0)


async def _unfinished(_request: web.Request, response: web.StreamResponse, _body: dict[str, Any]) -> None:
    await response.write(_event(_chunk("a", 1)))


async def _reset_midway(request: web.Request, response: web.StreamResponse, _body: dict[str, Any]) -> None:
    await response.write(_event(_chunk("a", 1)))
    await asyncio.sleep(0.05)
    _cut(request)


async def _error_midway(_request: web.Request, response: web.StreamResponse, _body: dict[str, Any]) -> None:
    await response.write(_event(_chunk("a", 1)) + _event({"error": {"message": "engine died"}}) + b"data: [DONE]\n\n")


async def _without_done(_request: web.Request, response: web.StreamResponse, _body: dict[str, Any]) -> None:
    await response.write(_event(_chunk("a", 1, finish="stop")))


async def _stays_open(_request: web.Request, response: web.StreamResponse, body: dict[str, Any]) -> None:
    await _good(_request, response, body)
    await asyncio.sleep(60)


async def _stalls(_request: web.Request, response: web.StreamResponse, _body: dict[str, Any]) -> None:
    await response.write(_event(_chunk("a", 1)))
    await asyncio.sleep(60)


async def _without_usage(_request: web.Request, response: web.StreamResponse, body: dict[str, Any]) -> None:
    for event in _events(body):
        del event["usage"]
        await response.write(_event(event))
    await response.write(b"data: [DONE]\n\n")


async def _never_ending_event(_request: web.Request, response: web.StreamResponse, _body: dict[str, Any]) -> None:
    await response.write(b"data: ")
    while True:
        await response.write(b"x" * 65536)
        await asyncio.sleep(0)


async def _big_event(_request: web.Request, response: web.StreamResponse, _body: dict[str, Any]) -> None:
    await response.write(_event({**_chunk("a", 1, finish="stop"), "logprobs": "x" * 2**20}) + b"data: [DONE]\n\n")


_STREAMS = {
    "cut_anywhere": _cut_anywhere,
    "unfinished": _unfinished,
    "reset_midway": _reset_midway,
    "error_midway": _error_midway,
    "without_done": _without_done,
    "stays_open": _stays_open,
    "stalls": _stalls,
    "without_usage": _without_usage,
    "never_ending_event": _never_ending_event,
    "big_event": _big_event,
}


@asynccontextmanager
async def running_server() -> AsyncIterator[ScriptedServer]:
    """A running scripted server, which must have answered or seen the end of every request when it is left."""
    scripted = ScriptedServer()
    app = web.Application(client_max_size=16 * 2**20)
    app.router.add_post("/v1/chat/completions", scripted.answer)
    app.router.add_get("/health", _healthy)
    app.router.add_get("/v1/models", _models)
    async with TestServer(app, handler_cancellation=True) as running:
        scripted.target = Target(str(running.make_url("/")).rstrip("/"), "secret", "served")
        yield scripted
        await scripted.until_in_flight(0)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """A scripted server for one test."""
    async with running_server() as scripted:
        yield scripted


async def _healthy(_request: web.Request) -> web.Response:
    return web.Response()


async def _models(_request: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "scripted"}]})
