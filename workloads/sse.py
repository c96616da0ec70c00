"""Server-sent events: bytes in, the data of complete events out. No I/O, no JSON, no clock.

Follows the WHATWG event stream rules that matter to an OpenAI-style stream: lines end with LF, CRLF or CR; comments
and the fields event, id and retry are ignored; several data lines join with LF; an empty line ends the event. Bytes
may be cut anywhere, inside a character too. Works on bytes: decoding is for whoever needs text.
"""

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Longest event accepted. Events with logprobs reach about 1 MiB; beyond this the stream is not an event stream."""


class EventTooLargeError(ValueError):
    """An event grew beyond the limit without ending."""


class SseParser:
    """Incremental splitter; feed it what the socket gives."""

    __slots__ = ("_buffer", "_data", "_max_event_bytes", "_pending_bytes", "_skip_lf")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._buffer = bytearray()  # grows in place: an event may arrive in hundreds of pieces
        self._data: list[bytes] = []
        self._pending_bytes = 0
        self._skip_lf = False

    @property
    def is_between(self) -> bool:
        """Nothing of an unfinished event is pending."""
        return not self._buffer and not self._data and not self._skip_lf

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of every event that `chunk` completes, in order.

        Raises:
            EventTooLargeError: when an unfinished event exceeds the limit.
        """
        if self.is_between:
            whole = _whole_events(chunk)
            if whole is not None:
                return whole
        events: list[bytes] = []
        for line in self._lines(chunk):
            self._take_line(line, events)
        if len(self._buffer) + self._pending_bytes > self._max_event_bytes:
            raise EventTooLargeError(f"an event of more than {self._max_event_bytes} bytes")
        return events

    def close(self) -> bytes | None:
        """The data of an event that the end of the stream cut off, if there is any.

        The standard drops it; it is returned because servers exist that omit the last empty line after [DONE].
        """
        leftover: list[bytes] = []
        if self._buffer:
            self._take_line(bytes(self._buffer), leftover)
            self._buffer.clear()
        self._take_line(b"", leftover)
        return leftover[0] if leftover else None

    def _lines(self, chunk: bytes) -> list[bytes]:
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        if b"\n" not in chunk and b"\r" not in chunk:
            self._buffer += chunk
            return []
        text = bytes(self._buffer) + chunk
        # A CR at the very end has ended its line; the LF that may follow belongs to it.
        self._skip_lf = text[-1:] == b"\r"
        lines = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._buffer = bytearray(lines.pop())
        return lines

    def _take_line(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data = []
                self._pending_bytes = 0
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value[1:] if value[:1] == b" " else value)
            self._pending_bytes += len(line)


def _whole_events(chunk: bytes) -> list[bytes] | None:
    """Events of a chunk that holds only whole one-line data events, as nearly all do; else None."""
    if not chunk.endswith(b"\n\n") or b"\r" in chunk:
        return None
    events = []
    for block in chunk[:-2].split(b"\n\n"):
        if not block.startswith(b"data: ") or b"\n" in block:
            return None
        events.append(block[6:])
    return events
