"""HTTP/1.1 connections of a replay: one request at a time on each, and what comes back noted as it arrives.

Written for the hot path: per read of the socket there is one clock reading and two appends, and nothing is decoded
before the response may have ended (docs/adr/0010). Reuse and failure classes are `client.py`; what the bytes mean is
`stream.py`.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Final

from workloads.framing import MAX_HEAD_BYTES, ChunkedDecoder, FramingError, ResponseHead, SizedBody, parse_head
from workloads.outcome import MAX_DETAIL_CHARS
from workloads.stream import StreamLog

# After [DONE], or a refusal, the end of the response is due at once; without it the connection cannot be used again.
DRAIN_S = 1.0
MAX_NOTED_BYTES = 1024 * 1024
"""A stream's reads are parsed while it runs when this much has piled up."""

# How nearly all streams end, told without decoding them: a line feed inside JSON is always escaped.
_DONE: Final = b"[DONE]\n\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
# One of these, or a very short read, comes with the end of a response and hardly ever before it.
_MAYBE_END: Final = (_DONE, b"\r\n\r\n")
_SHORT_READ_BYTES: Final = 6
_DONE_EVENTS: Final = (b"[DONE]\n\n", b"[DONE]\r\n\r\n")


class Connection(asyncio.Protocol):
    """One connection to the server.

    Attributes:
        usable: It is open and can take a request.
        idle_since_s: Clock reading (`time.perf_counter`) when it was made or last became usable.
        closed: Set when the transport is gone.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.usable = False
        self.idle_since_s = perf_counter()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._log: StreamLog | None = None
        self._begin(None, 0.0)

    def _begin(self, log: StreamLog | None, started_s: float) -> None:
        self._log = log
        self._streaming: StreamLog | None = None
        self._started_s = started_s
        self._pending = b""
        self._head: ResponseHead | None = None
        self._body: ChunkedDecoder | SizedBody = SizedBody(None)
        self._fed_reads = 0
        self._refusal = b""
        self._done_s: float | None = None
        self._noted_bytes = 0
        self._noted_limit_bytes = MAX_NOTED_BYTES

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = transport  # type: ignore[assignment] # create_connection makes asyncio.Transport
        self.usable = True

    def request(
        self, parts: tuple[bytes, bytes], log: StreamLog, *, started_s: float, timeout_s: float
    ) -> "asyncio.Future[None]":
        """Write a request (head and body). What comes back goes into `log`; the future is set when that has ended.

        `started_s` is the reading of `time.perf_counter` that the log's times count from.
        """
        assert self._transport is not None  # noqa: S101 - only connected ones are handed out
        self.usable = False
        self._begin(log, started_s)
        self._waiter = self._loop.create_future()
        self._timer = self._loop.call_later(timeout_s, self._expire)
        self._transport.writelines(parts)
        return self._waiter

    def abort(self) -> None:
        """Close at once; the server sees its request end."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop for each read of the socket."""
        log = self._streaming
        if log is None:
            self._take_before_stream(data)
            return
        log.read_s.append(perf_counter() - self._started_s)
        log.reads.append(data)
        size = len(data)
        self._noted_bytes += size
        if data.endswith(_MAYBE_END) or size < _SHORT_READ_BYTES or self._noted_bytes > self._noted_limit_bytes:
            self._look_for_end(log, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop when the connection is closed, by whichever side."""
        self.usable = False
        if self._log is not None:
            told_by_close = exc is None and isinstance(self._body, SizedBody) and not self._body.is_sized
            if self._head is None or not (told_by_close or self._done_s is not None):
                reason = f"{type(exc).__name__}: {exc}" if exc else "the server closed it"
                error = "connection" if self._head is None else "stream_broken"
                self._fail(error, f"the connection was lost before the end of the answer: {reason}")
            self._finish()
        if not self.closed.done():
            self.closed.set_result(None)

    def _take_before_stream(self, data: bytes) -> None:
        try:
            if self._log is None:
                self.abort()  # nobody asked for these bytes: they must not become the next request's answer
            elif self._head is None:
                self._take_head(self._log, data)
            else:
                self._take_refusal(data)
        except FramingError as error:
            self._give_up(str(error))

    def _take_head(self, log: StreamLog, data: bytes) -> None:
        arrived_s = perf_counter() - self._started_s
        self._pending += data
        while self._head is None:
            lines, end, rest = self._pending.partition(b"\r\n\r\n")
            if not end:
                if len(self._pending) > MAX_HEAD_BYTES:
                    raise FramingError(f"the answer's head is longer than {MAX_HEAD_BYTES} bytes")
                return
            head = parse_head(lines)
            self._pending = rest
            self._head = head if head.status >= 200 else None
        head, rest = self._head, self._pending
        self._body = ChunkedDecoder() if head.chunked else SizedBody(head.content_length)
        refusal = _refusal(head)
        if refusal is not None:
            self._fail(*refusal)
            self._arm(DRAIN_S, self.abort)
            self._take_refusal(rest)
            return
        log.chunked = head.chunked
        if not head.chunked:
            self._noted_limit_bytes = -1  # the end is told by counting, so every read is looked at
        self._streaming = log
        if rest or self._body.done:
            log.read_s.append(arrived_s)
            log.reads.append(rest)
            self._look_for_end(log, rest)

    def _take_refusal(self, data: bytes) -> None:
        """The server's own words, kept short; the rest is read so that the connection can be used again."""
        self._refusal += self._body.feed(data)[: MAX_DETAIL_CHARS * 4]
        if self._body.done:
            self._finish()

    def _look_for_end(self, log: StreamLog, data: bytes) -> None:
        """Something that may be the last read: find out whether it is."""
        if log.chunked:
            if data.endswith(_DONE):
                self._note_done(log)
                return
            if data.endswith(_DONE + _LAST_CHUNK) or (data == _LAST_CHUNK and self._done_s is not None):
                self._finish()
                return
        try:
            self._follow(log)
        except FramingError as error:
            self._give_up(str(error))

    def _follow(self, log: StreamLog) -> None:
        """Take the framing off what was not looked at yet, and let go of what has piled up."""
        new, self._fed_reads = log.reads[self._fed_reads :], len(log.reads)
        payload = b"".join([self._body.feed(read) for read in new])
        if self._body.done:
            self._finish()
            return
        if payload.endswith(_DONE_EVENTS):
            self._note_done(log)
        if self._noted_bytes > MAX_NOTED_BYTES:
            log.digest()
            self._fed_reads = self._noted_bytes = 0
            if log.reading is not None and log.reading.error is not None:
                self._give_up(log.reading.error_detail or "")

    def _note_done(self, log: StreamLog) -> None:
        if self._done_s is None:
            self._done_s = log.read_s[-1]
            self._arm(DRAIN_S, self.abort)

    def _arm(self, delay_s: float, action: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, action)

    def _expire(self) -> None:
        self._fail("timeout", "no end of the stream within the request's time limit")
        self.abort()

    def _give_up(self, reason: str) -> None:
        self._fail("stream_broken", reason)
        self.abort()

    def _fail(self, error: str, detail: str) -> None:
        if self._log is not None and self._log.error is None:
            self._log.error, self._log.error_detail = error, detail[:MAX_DETAIL_CHARS]

    def _finish(self) -> None:
        """The response has ended, or never will: tell the one who waits."""
        log, waiter, head = self._log, self._waiter, self._head
        assert log is not None  # noqa: S101 - a response is finished once
        assert waiter is not None  # noqa: S101 - as above
        now_s = perf_counter()
        log.noted_bytes = self._noted_bytes
        log.end_s = now_s - self._started_s if self._done_s is None else self._done_s
        if self._refusal and not log.error_detail:
            log.error_detail = self._refusal.decode("utf-8", "replace")[:MAX_DETAIL_CHARS]
        if self._timer is not None:
            self._timer.cancel()
        is_open = self._transport is not None and not self._transport.is_closing()
        self.usable = is_open and head is not None and head.keeps_alive and not self._body.excess
        self.idle_since_s = now_s
        self._log = self._streaming = None
        if not waiter.done():
            waiter.set_result(None)


def _refusal(head: ResponseHead) -> tuple[str, str] | None:
    """Why an answer is no stream of events: a failure class, and the reason where the server's words do not give it."""
    if head.status >= 300:
        return f"http_{head.status}", ""
    if "event-stream" not in head.content_type:
        return "stream_broken", ""
    if head.content_encoding not in {"", "identity"}:
        return "stream_broken", f"the stream is encoded as {head.content_encoding[:20]}, which was not asked for"
    return None
