"""One request and its answer as the proxy saw them pass: collected on the path, sent to the writer as one frame.

Nothing is parsed here. An answer's beginning and end are kept, not its middle: the first token is in the one, usage and
the finish reason are in the other.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import orjson

HEAD_BYTES = 2 * 2**20
"""Of the beginning of an answer at least so much is kept: a first event with logprobs is about 1 MiB long."""

TAIL_BYTES = 4 * 2**20
"""Of its end at least so much: more than the longest event that logprobs make, about 1 MiB."""

MARKS = 256
"""Pieces of an answer whose times are kept; the first token is in one of the first."""

Ended = Literal["", "client_disconnected", "upstream_unreachable", "upstream_broke_off", "recorder_stopped"]


class Tape:
    """The bytes of one answer, as many as are kept of them."""

    __slots__ = ("gap", "head", "marks", "tail", "tail_bytes", "total_bytes")

    def __init__(self) -> None:
        self.head: list[bytes] = []
        self.tail: deque[bytes] = deque()
        self.tail_bytes = 0
        self.total_bytes = 0
        self.gap = False
        self.marks: list[tuple[int, float]] = []

    def add(self, data: bytes, at_s: float) -> None:
        """Keep a piece that passed `at_s` seconds after the request arrived."""
        if self.total_bytes < HEAD_BYTES:
            self.head.append(data)
        else:
            self.tail.append(data)
            self.tail_bytes += len(data)
            while self.tail_bytes - len(self.tail[0]) >= TAIL_BYTES:
                self.tail_bytes -= len(self.tail.popleft())
                self.gap = True
        self.total_bytes += len(data)
        if len(self.marks) < MARKS and not self.tail:
            self.marks.append((self.total_bytes, at_s))


@dataclass(slots=True)
class Facts:
    """What is known of an exchange beside its bytes.

    Attributes:
        number: Position in the order of arrival, from 1.
        endpoint: One of `workloads.request.ENDPOINTS`.
        arrived_s: Arrival, seconds since the first recorded request of this recording.
        arrived_unix_s: The same on the wall clock.
        status: HTTP status that the client got, 0 if it got none.
        duration_s: Seconds from arrival to the last byte, or to the end of whatever kind.
        ended: How it ended, if not well.
        session: Value of the session header.
        route: Value of the route header.
        request_encoding: Content-Encoding of the request.
        content_type: Content-Type of the answer.
        answer_encoding: Content-Encoding of the answer.
        marks: (bytes of the answer so far, seconds since arrival), for its first pieces.
        gap: Whether bytes are missing between head and tail.
        lengths: Bytes of the body, the answer's head and its tail, which follow in the frame.
    """

    number: int
    endpoint: str
    arrived_s: float
    arrived_unix_s: float
    status: int = 0
    duration_s: float = 0.0
    ended: Ended = ""
    session: str | None = None
    route: str | None = None
    request_encoding: str = ""
    content_type: str = ""
    answer_encoding: str = ""
    marks: Sequence[Sequence[float]] = field(default_factory=list)
    gap: bool = False
    lengths: Sequence[int] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Frame:
    """One exchange on its way to the writer."""

    facts: Facts
    body: bytes
    head: bytes
    tail: bytes


def encode(facts: Facts, body: bytes, tape: Tape) -> list[bytes]:
    """The pieces of a frame: a line of JSON, then the body, then what was kept of the answer."""
    facts.marks = tape.marks
    facts.gap = tape.gap
    facts.lengths = (len(body), sum(map(len, tape.head)), tape.tail_bytes)
    return [orjson.dumps(facts, option=orjson.OPT_APPEND_NEWLINE), body, *tape.head, *tape.tail]


class FrameDecoder:
    """Frames out of the bytes of a pipe, cut anywhere."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._facts: Facts | None = None

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes."""
        self._buffer += data
        frames = []
        while (frame := self._take()) is not None:
            frames.append(frame)
        return frames

    def _take(self) -> Frame | None:
        if self._facts is None:
            end = self._buffer.find(b"\n")
            if end < 0:
                return None
            self._facts = Facts(**orjson.loads(self._buffer[:end]))
            del self._buffer[: end + 1]
        facts = self._facts
        if len(self._buffer) < sum(facts.lengths):
            return None
        parts = []
        for length in facts.lengths:
            parts.append(bytes(self._buffer[:length]))
            del self._buffer[:length]
        self._facts = None
        return Frame(facts, *parts)
