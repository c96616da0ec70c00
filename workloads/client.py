"""The HTTP side of a replay: the session's policy, and sending one request while noting what comes back and when.

Nothing is parsed here: per socket read there is one clock reading and two appends. What the bytes mean is
`outcome.py`; when to send is `replay.py`.
"""

import asyncio
import io
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

import aiohttp
from yarl import URL

from workloads.outcome import MAX_DETAIL_CHARS, StreamLog
from workloads.sse import MAX_EVENT_BYTES
from workloads.wire import Target

CONNECT_TIMEOUT_S: Final = 10.0
# uvicorn (vLLM's server) closes a connection idle for 5 s; a request sent at that very moment would fail, and a POST
# cannot be retried, so ours are dropped first.
KEEPALIVE_S: Final = 4.0
# After [DONE] the end of the response is due at once; without it the connection cannot be used again.
DRAIN_S: Final = 1.0
LARGE_BODY_BYTES: Final = 2**20
_DONE_ENDINGS: Final = (b"data: [DONE]\n\n", b"data: [DONE]\r\n\r\n", b"data:[DONE]\n\n")


@dataclass(frozen=True, slots=True)
class Wire:
    """One request, ready to go out."""

    url: URL
    body: bytes


class Clock:
    """Seconds since the replay began; started when everything is ready to be sent."""

    __slots__ = ("started_s",)

    def __init__(self) -> None:
        self.started_s = time.perf_counter()

    def now_s(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started_s


def open_session(target: Target, request_timeout_s: float) -> aiohttp.ClientSession:
    """A session without aiohttp's limits on load (100 connections, 300 s) and without what a measurement does not need.

    The timeout is on the whole request: a limit between two reads would call a request that waits in the
    engine's queue dead, and its timer would be set anew for every chunk.
    """
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    if target.api_key:
        headers["Authorization"] = f"Bearer {target.api_key}"
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
        timeout=aiohttp.ClientTimeout(total=request_timeout_s, sock_connect=CONNECT_TIMEOUT_S),
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    )


async def open_connections(session: aiohttp.ClientSession, target: Target, count: int) -> None:
    """Connect `count` times before the clock starts, so that no first request pays for it.

    A server that refuses is not an error here: the requests that follow will say so, one by one.
    """

    async def touch() -> None:
        # Bounded on its own: a server that hangs must not hold back the replay that will find it out.
        limit = aiohttp.ClientTimeout(total=CONNECT_TIMEOUT_S)
        async with session.get(f"{target.base_url}/health", timeout=limit) as response:
            await response.read()

    attempts: list[Awaitable[None]] = [touch() for _ in range(count)]
    for result in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, aiohttp.ClientError | TimeoutError):
            raise result


async def send(session: aiohttp.ClientSession, wire: Wire, log: StreamLog, clock: Clock) -> None:
    """Send one request and fill in `log` until its stream ends; failures are noted, not raised.

    Raises:
        asyncio.CancelledError: when cancelled, after noting that the request was abandoned.
    """
    log.sent_s = clock.now_s()
    if log.scheduled_s is None:
        log.scheduled_s = log.sent_s
    answered = False
    try:
        # aiohttp warns about large bodies given as bytes, because it writes them in one piece.
        data = io.BytesIO(wire.body) if len(wire.body) > LARGE_BODY_BYTES else wire.body
        async with session.post(wire.url, data=data) as response:
            answered = True
            if await _refused(response, log):
                return
            await _read_stream(response, log, clock)
    except asyncio.CancelledError:
        log.error, log.error_detail = "abandoned", "cancelled before the stream ended"
        raise
    except aiohttp.ConnectionTimeoutError:
        log.error, log.error_detail = "connection", f"not connected within {CONNECT_TIMEOUT_S:g} s"
    except TimeoutError:
        log.error, log.error_detail = "timeout", "no end of the stream within the request's time limit"
    except (aiohttp.ClientError, OSError) as error:
        log.error = "stream_broken" if answered else "connection"
        log.error_detail = f"{type(error).__name__}: {error}"[:MAX_DETAIL_CHARS]
    finally:
        log.end_s = log.end_s or clock.now_s()


async def _refused(response: aiohttp.ClientResponse, log: StreamLog) -> bool:
    if response.status >= 400:
        log.error = f"http_{response.status}"
    elif "event-stream" not in response.headers.get("Content-Type", ""):
        log.error = "stream_broken"
    else:
        return False
    excerpt = await response.content.read(MAX_DETAIL_CHARS)
    log.error_detail = excerpt.decode("utf-8", "replace")
    return True


async def _read_stream(response: aiohttp.ClientResponse, log: StreamLog, clock: Clock) -> None:
    now, started_s = time.perf_counter, clock.started_s
    note_time, note_read = log.read_s.append, log.reads.append
    open_bytes = 0
    async for read in response.content.iter_any():
        note_time(now() - started_s)
        note_read(read)
        if not read.endswith(b"\n"):
            open_bytes += len(read)
            if open_bytes > 2 * MAX_EVENT_BYTES:
                raise aiohttp.ClientPayloadError("an event that does not end")
            continue
        open_bytes = 0
        if read.endswith(_DONE_ENDINGS):
            break
    log.end_s = clock.now_s()
    if not response.content.at_eof():
        await _drain(response)


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read on to the end of the response so that its connection can be used again; else let it be closed."""
    try:
        async with asyncio.timeout(DRAIN_S):
            while not response.content.at_eof():
                await response.content.readany()
    except TimeoutError:
        response.close()
