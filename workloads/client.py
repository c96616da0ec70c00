"""The HTTP side of a replay: which connections there are, and sending one request while noting what comes back.

Nothing is parsed here; failures are noted in the request's log, not raised. How bytes are read off a connection is
`connection.py`; when to send is `loops.py`.
"""

import asyncio
import ssl
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from yarl import URL

from workloads.connection import Connection
from workloads.outcome import MAX_DETAIL_CHARS
from workloads.stream import StreamLog
from workloads.wire import Target

CONNECT_TIMEOUT_S: Final = 10.0
# uvicorn (vLLM's server) closes a connection idle for 5 s; a request sent at that very moment would fail, and a POST
# cannot be retried, so ours are dropped first.
KEEPALIVE_S: Final = 4.0
CLOSE_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Wire:
    """One request, ready to go out: the path below the server's root, and the JSON."""

    endpoint: str
    body: bytes


class Clock:
    """Seconds since the replay began, by CLOCK_MONOTONIC, which all processes of a host share."""

    __slots__ = ("started_s",)

    def __init__(self, started_s: float | None = None) -> None:
        self.started_s = time.perf_counter() if started_s is None else started_s

    def now_s(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started_s


class Client:
    """The connections to one server. There is no limit on their number: the load decides it."""

    def __init__(self, target: Target, request_timeout_s: float) -> None:
        self._url = URL(target.base_url)
        self._host, self._port = self._url.host or "", self._url.port or 0
        self._tls = ssl.create_default_context() if self._url.scheme == "https" else None
        self._api_key = target.api_key
        self._request_timeout_s = request_timeout_s
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._heads: dict[str, bytes] = {}
        self._writing = False
        self._to_write: deque[asyncio.Future[None]] = deque()

    async def open(self, count: int) -> None:
        """Connect `count` times before the clock starts, so that no first request pays for it.

        A server that refuses is not an error here: the requests that follow will say so, one by one.
        """
        attempts = await asyncio.gather(*(self._connect() for _ in range(count)), return_exceptions=True)
        for made in attempts:
            if isinstance(made, Connection):
                self._idle.append(made)
            elif not isinstance(made, OSError):  # TimeoutError is one
                raise made

    async def close(self) -> None:
        """Close every connection and wait until it is closed; what is in flight ends, on the server too."""
        for connection in self._all:
            connection.abort()
        if self._all:
            await asyncio.wait([connection.closed for connection in self._all], timeout=CLOSE_TIMEOUT_S)

    async def send(self, wire: Wire, log: StreamLog, clock: Clock) -> None:
        """Send one request and fill in `log` until its stream ends; failures are noted, not raised.

        Raises:
            asyncio.CancelledError: when cancelled, after noting that the request was abandoned.
        """
        connection: Connection | None = None
        try:
            await self._until_my_turn()
            log.sent_s = clock.now_s()
            if log.scheduled_s is None:
                log.scheduled_s = log.sent_s
            connection = self._take_idle() or await self._connect()
            parts = (self._head(wire.endpoint, len(wire.body)), wire.body)
            await connection.request(parts, log, started_s=clock.started_s, timeout_s=self._request_timeout_s)
        except asyncio.CancelledError:
            log.error, log.error_detail = "abandoned", "cancelled before the stream ended"
            if connection is not None:
                connection.abort()
            raise
        except TimeoutError:
            log.error, log.error_detail = "connection", f"not connected within {CONNECT_TIMEOUT_S:g} s"
        except OSError as error:
            log.error, log.error_detail = "connection", f"{type(error).__name__}: {error}"[:MAX_DETAIL_CHARS]
        finally:
            log.end_s = log.end_s or clock.now_s()
            if connection is not None and connection.usable:
                self._idle.append(connection)
            elif connection is not None:
                connection.abort()

    async def _until_my_turn(self) -> None:
        """Wait until nobody else wrote a request since the sockets were last read.

        When many streams end at once, so many requests are written; what arrives meanwhile would be noted late.
        """
        loop = asyncio.get_running_loop()
        if self._writing:
            turn = loop.create_future()
            self._to_write.append(turn)
            await turn
        self._writing = True
        loop.call_soon(self._give_turn)

    def _give_turn(self) -> None:
        while self._to_write:
            turn = self._to_write.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._writing = False

    def _take_idle(self) -> Connection | None:
        oldest_s = time.perf_counter() - KEEPALIVE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.idle_since_s > oldest_s:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, connection = await loop.create_connection(Connection, self._host, self._port, ssl=self._tls)
        self._all.add(connection)
        connection.closed.add_done_callback(lambda _: self._all.discard(connection))
        return connection

    def _head(self, endpoint: str, length: int) -> bytes:
        start = self._heads.get(endpoint)
        if start is None:
            path = self._url.raw_path.rstrip("/") + endpoint
            lines = [
                f"POST {path} HTTP/1.1",
                f"Host: {self._url.host_port_subcomponent}",
                "Content-Type: application/json",
                "Accept: text/event-stream",
                "Accept-Encoding: identity",
                "User-Agent: dflash-tuner",
            ]
            if self._api_key:
                lines.append(f"Authorization: Bearer {self._api_key}")
            start = self._heads[endpoint] = "\r\n".join([*lines, "Content-Length: "]).encode("latin-1")
        return b"%b%d\r\n\r\n" % (start, length)
