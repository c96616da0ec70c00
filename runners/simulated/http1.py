"""A minimal HTTP/1.1 server over asyncio: requests with Content-Length, whole and chunked answers, keep-alive.

Written out because a start has to cost a fraction of a second and happens hundreds of times per test run: importing
aiohttp took 0.43 s of 0.70 s (it brings its client and TLS contexts along), and because the faults need to break
the protocol on purpose. One request at a time per connection; a client that goes away cancels its handler. Loopback
use only.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qsl

__all__ = ["Exchange", "Handler", "Request", "bind", "start_server"]

_MAX_HEAD = 64 * 2**10
_MAX_BODY = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Request:
    """A complete request; header names are lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class Exchange:
    """The answering side of one request."""

    def __init__(self, connection: "_Connection") -> None:
        self._connection = connection
        self.started = False

    def reply(self, status: int, body: bytes, content_type: str) -> None:
        """Answer in one piece."""
        self.started = True
        self._connection.write(_head(status, content_type, f"Content-Length: {len(body)}") + body)

    async def stream(self, data: bytes, *, content_type: str = "text/event-stream; charset=utf-8") -> None:
        """Send a chunk, the head before the first one; waits while the client does not read."""
        head = b"" if self.started else _head(HTTPStatus.OK, content_type, "Transfer-Encoding: chunked")
        self.started = True
        self._connection.write(b"%s%x\r\n%s\r\n" % (head, len(data), data))
        await self._connection.drained()

    def end(self) -> None:
        """End a chunked answer."""
        self._connection.write(b"0\r\n\r\n")

    def cut(self) -> None:
        """Reset the connection in the middle of whatever was being sent."""
        self._connection.abort()


Handler = Callable[[Request, Exchange], Awaitable[None]]


def bind(host: str, port: int) -> socket.socket:
    """Take the address without listening yet: connections are refused until `start_server`, as in vLLM.

    Raises:
        OSError: the address cannot be bound.
    """
    taken = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((host, port))
    except OSError:
        taken.close()
        raise
    return taken


async def start_server(handler: Handler, address: socket.socket) -> asyncio.Server:
    """Listen on a bound socket."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _Connection(handler), sock=address, backlog=1024)


class _Connection(asyncio.Protocol):
    """One connection: collects a request, runs its handler, then looks for the next one."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._continued = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio calls this first."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a TCP server makes no other
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """The client went away: nobody needs the answer any more."""
        self._transport = None
        self._writable.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        """Asyncio's buffer is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Asyncio's buffer has room again."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Collect; start the handler when a request is complete."""
        self._buffer += data
        if self._task is None:
            self._next()

    def _next(self) -> None:
        request, keep_alive = self._parse()
        if request is not None:
            self._task = asyncio.get_running_loop().create_task(self._answer(request, keep_alive=keep_alive))

    async def _answer(self, request: Request, *, keep_alive: bool) -> None:
        await self._handler(request, Exchange(self))
        self._task = None
        if not keep_alive and self._transport is not None:
            self._transport.close()
        elif self._buffer:
            self._next()

    def _parse(self) -> tuple[Request | None, bool]:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_HEAD:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return None, False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        parts, length = first.split(" "), headers.get("content-length", "0")
        if len(parts) != 3 or not length.isdigit() or "transfer-encoding" in headers or int(length) > _MAX_BODY:
            self._refuse(HTTPStatus.BAD_REQUEST)
            return None, False
        if headers.get("expect", "").lower() == "100-continue" and not self._continued:
            self._continued = True
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        total = end + 4 + int(length)
        if len(self._buffer) < total:
            return None, False
        body = bytes(self._buffer[end + 4 : total])
        del self._buffer[:total]
        self._continued = False
        path, _, query = parts[1].partition("?")
        request = Request(parts[0], path, dict(parse_qsl(query)), headers, body)
        return request, headers.get("connection", "").lower() != "close"

    def _refuse(self, status: HTTPStatus) -> None:
        self.write(_head(status, "text/plain", "Content-Length: 0"))
        if self._transport is not None:
            self._transport.close()

    def write(self, data: bytes) -> None:
        """Send; nothing happens when the client is gone."""
        if self._transport is not None:
            self._transport.write(data)

    async def drained(self) -> None:
        """Wait until asyncio's buffer has room."""
        await self._writable.wait()

    def abort(self) -> None:
        """Reset the connection."""
        if self._transport is not None:
            self._transport.abort()


def _head(status: int, content_type: str, length: str) -> bytes:
    phrase = HTTPStatus(status).phrase
    return f"HTTP/1.1 {int(status)} {phrase}\r\nContent-Type: {content_type}\r\n{length}\r\n\r\n".encode("latin-1")
