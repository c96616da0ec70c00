"""The proxy: forwards every request and every byte of its answer, and notes the exchanges that a workload is made of.

Answers pass as they come, in the pieces in which they come: status, headers, compression and body are the upstream's.
Only hop-by-hop headers (RFC 9110, 7.6.1) belong to the connection and are each side's own.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from workloads.recorder.exchange import Facts, Tape
from workloads.recorder.settings import RecordSettings
from workloads.request import ENDPOINTS

BODY_BYTES = 64 * 2**20
"""Longest request body that is recorded; a longer one passes unrecorded."""

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NOT_FORWARDED = _HOP_BY_HOP | {"host", "expect"}
_ADDED_BY_CLIENT = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_ADDED_BY_SERVER = ("Content-Type", "Date", "Server")
_ABSENT = "absent"
_CONNECT_S = 10.0
# Shorter than the 5 s for which uvicorn, and so vLLM, keeps an idle connection: else it may close while it is reused.
_IDLE_S = 2.0

HEADER_BYTES = 2**16
HEADERS = 1000
"""Longest header line and number of headers: as much as uvicorn, and so vLLM, takes; aiohttp's own limits are lower."""

Store = Callable[[Facts, bytes, Tape], None]


class Proxy:
    """Forwards to one upstream; every exchange with a recorded endpoint is handed to `store` when it has ended."""

    def __init__(self, settings: RecordSettings, store: Store) -> None:
        self.stopping = False
        self.unrecorded = 0
        self._in_progress = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._settings = settings
        self._store = store
        self._arrivals = 0
        self._begun_s = 0.0
        self._session: aiohttp.ClientSession | None = None

    def app(self) -> web.Application:
        """The application that serves it."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        app.cleanup_ctx.append(self._connected)
        app.on_response_prepare.append(_take_back_additions)
        return app

    async def _connected(self, _app: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_ADDED_BY_CLIENT,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
            max_headers=HEADERS,
        ) as self._session:
            yield

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        arrived_s = time.perf_counter()
        if request.method != "POST" or request.path not in ENDPOINTS:
            return await self._forward(request, _streamed(request) if request.body_exists else None, None)
        body, whole = await _read_body(request)
        if not whole:
            self.unrecorded += 1
            return await self._forward(request, _streamed(request, body), None)
        exchange = _Exchange(self._facts(request, arrived_s), body, arrived_s)
        self._in_progress += 1
        self._idle.clear()
        try:
            return await self._forward(request, body, exchange)
        except asyncio.CancelledError:
            exchange.facts.ended = "recorder_stopped" if self.stopping else "client_disconnected"
            raise
        finally:
            exchange.facts.duration_s = time.perf_counter() - arrived_s
            self._store(exchange.facts, body, exchange.tape)
            self._in_progress -= 1
            if not self._in_progress:
                self._idle.set()

    async def idle(self) -> None:
        """Wait until every exchange has been handed over."""
        await self._idle.wait()

    def _facts(self, request: web.Request, arrived_s: float) -> Facts:
        self._arrivals += 1
        if self._arrivals == 1:
            self._begun_s = arrived_s
        return Facts(
            number=self._arrivals,
            endpoint=request.path,
            arrived_s=arrived_s - self._begun_s,
            arrived_unix_s=time.time() - (time.perf_counter() - arrived_s),
            session=request.headers.get(self._settings.session_header) or None,
            route=request.headers.get(self._settings.route_header) or None,
            request_encoding=request.headers.get("Content-Encoding", ""),
        )

    async def _forward(
        self, request: web.Request, data: bytes | AsyncIterator[bytes] | None, exchange: "_Exchange | None"
    ) -> web.StreamResponse:
        assert self._session is not None  # noqa: S101 - the application opens it before it serves
        if not request.raw_path.startswith("/"):
            return web.Response(status=400, text="tune record takes requests to a path, not to another server\n")
        try:
            upstream = await self._session.request(
                request.method,
                URL(self._settings.root + request.raw_path, encoded=True),
                headers=_without(request.raw_headers, _NOT_FORWARDED),
                data=data,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError) as error:
            return self._unreachable(error, exchange)
        try:
            return await _answer(request, upstream, exchange)
        finally:
            # After a whole answer the connection is already free for the next request, and this does nothing.
            upstream.close()

    def _unreachable(self, error: Exception, exchange: "_Exchange | None") -> web.Response:
        reason = str(error) or type(error).__name__
        sentence = f"tune record got no answer from {self._settings.root}: {reason}; see whether that server runs"
        if exchange is not None:
            exchange.facts.status, exchange.facts.ended = 502, "upstream_unreachable"
        body = {"error": {"message": sentence, "type": "upstream_unreachable", "param": None, "code": 502}}
        return web.json_response(body, status=502)


class _Exchange:
    """An exchange while it is being forwarded."""

    __slots__ = ("arrived_s", "body", "facts", "tape")

    def __init__(self, facts: Facts, body: bytes, arrived_s: float) -> None:
        self.facts = facts
        self.body = body
        self.arrived_s = arrived_s
        self.tape = Tape()


async def _answer(
    request: web.Request, upstream: aiohttp.ClientResponse, exchange: _Exchange | None
) -> web.StreamResponse:
    """Pass the upstream's answer on, piece by piece."""
    headers = upstream.headers
    response = web.StreamResponse(
        status=upstream.status, reason=upstream.reason, headers=_without(upstream.raw_headers, _HOP_BY_HOP)
    )
    response[_ABSENT] = [name for name in _ADDED_BY_SERVER if name not in headers]
    if exchange is not None:
        exchange.facts.status = upstream.status
        exchange.facts.content_type = headers.get("Content-Type", "")
        exchange.facts.answer_encoding = headers.get("Content-Encoding", "")
    try:
        await response.prepare(request)
        while True:
            try:
                data = await upstream.content.readany()
            except (aiohttp.ClientError, OSError):
                return _break_off(request, response, exchange)
            if not data:
                return response
            if exchange is not None:
                exchange.tape.add(data, time.perf_counter() - exchange.arrived_s)
            await response.write(data)
    except ConnectionError:
        # The client went away between two pieces; cancellation tells us otherwise.
        if exchange is not None:
            exchange.facts.ended = "client_disconnected"
        return response


def _break_off(request: web.Request, response: web.StreamResponse, exchange: _Exchange | None) -> web.StreamResponse:
    """The upstream broke its answer off; the client must see the same, not an answer that ends well."""
    if exchange is not None:
        exchange.facts.ended = "upstream_broke_off"
    if request.transport is not None:
        request.transport.close()
    return response


async def _take_back_additions(_request: web.Request, response: web.StreamResponse) -> None:
    """Remove the headers that aiohttp adds and the upstream did not send."""
    for name in response.get(_ABSENT, ()):
        response.headers.pop(name, None)


def _without(headers: Sequence[tuple[bytes, bytes]], names: frozenset[str]) -> CIMultiDict[str]:
    """Headers in their order and spelling, without those named here or by a Connection header."""
    pairs = [
        (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape")) for name, value in headers
    ]
    for name, value in pairs:
        if name.lower() == "connection":
            names = names.union(each.strip().lower() for each in value.split(","))
    return CIMultiDict([(name, value) for name, value in pairs if name.lower() not in names])


async def _read_body(request: web.Request) -> tuple[bytes, bool]:
    """The body, and whether this is all of it: one that is too long is read no further."""
    if request.content_length is not None and request.content_length <= BODY_BYTES:
        return await request.content.read(), True
    pieces, size_bytes = [], 0
    async for piece in request.content.iter_any():
        pieces.append(piece)
        size_bytes += len(piece)
        if size_bytes > BODY_BYTES:
            return b"".join(pieces), False
    return b"".join(pieces), True


async def _streamed(request: web.Request, first: bytes = b"") -> AsyncIterator[bytes]:
    if first:
        yield first
    async for piece in request.content.iter_any():
        yield piece
