"""How an HTTP/1.1 response is delimited: its head, and the chunked transfer coding. Bytes in, bytes out; no I/O.

The rules are RFC 9112's (sections 4, 6 and 7). Requests are written by `connection.py`; what a body means is
`outcome.py`.
"""

import re
from dataclasses import dataclass

MAX_HEAD_BYTES = 64 * 1024
"""Longest response head, or trailer, accepted."""

MAX_CHUNK_SIZE_BYTES = 1024
"""Longest line that says the size of a chunk, its extensions included."""

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([0-9]{3})(?: .*)?")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
CHUNK_SIZES = {b"%x" % size: size for size in range(1, 4096)}
"""Sizes of chunks as nearly all servers write them."""


class FramingError(ValueError):
    """The bytes are no HTTP/1.1 response."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What of a response's head decides how the rest is read.

    Attributes:
        status: HTTP status.
        content_type: Value of Content-Type, lower case; empty if there is none.
        content_encoding: Value of Content-Encoding, lower case; empty if there is none.
        chunked: The body comes in the chunked coding.
        content_length: Bytes of the body; None if it is chunked, or ends with the connection.
        keeps_alive: The connection may be used again.
    """

    status: int
    content_type: str
    content_encoding: str
    chunked: bool
    content_length: int | None
    keeps_alive: bool


def parse_head(head: bytes) -> ResponseHead:
    """Read a head, its status line first, without the empty line at its end.

    Raises:
        FramingError: if it is none.
    """
    status_line, *lines = head.split(b"\r\n")
    match = _STATUS_LINE.fullmatch(status_line)
    if match is None:
        raise FramingError("the answer does not begin with an HTTP/1.1 status line")
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon:
            raise FramingError("a line of the answer's head has no colon")
        fields[name.strip().lower()] = value.strip().lower()
    chunked = fields.get("transfer-encoding", "").endswith("chunked")
    length = fields.get("content-length")
    if length is not None and not (length.isascii() and length.isdigit()):
        raise FramingError("the answer's Content-Length is not a number")
    has_no_body = match[2][:1] == b"1" or match[2] in {b"204", b"304"}
    content_length = 0 if has_no_body else None if chunked or length is None else int(length)
    delimited = chunked or content_length is not None
    persistent = match[1] == b"1" and "close" not in fields.get("connection", "")
    return ResponseHead(
        status=int(match[2]),
        content_type=fields.get("content-type", ""),
        content_encoding=fields.get("content-encoding", ""),
        chunked=chunked,
        content_length=content_length,
        keeps_alive=delimited and persistent,
    )


class ChunkedDecoder:
    """Takes the chunked coding off, wherever the bytes are cut.

    Attributes:
        done: The last chunk and its trailer have been seen.
        excess: Bytes that followed them, which belong to no response that was asked for.
    """

    __slots__ = ("_left", "_pending", "_place", "done", "excess")

    def __init__(self) -> None:
        self._pending = b""
        self._left = 0
        self._place = "size"
        self.done = False
        self.excess = b""

    @property
    def is_between(self) -> bool:
        """Nothing of an unfinished chunk is pending."""
        return self._place == "size" and not self._pending

    def feed(self, data: bytes) -> bytes:
        """The payload in `data`.

        Raises:
            FramingError: if it is not in the chunked coding.
        """
        if self.is_between:
            # One event of a stream is nearly always one chunk and one read.
            end = data.find(b"\r\n", 0, 5)
            if end > 0 and CHUNK_SIZES.get(data[:end]) == len(data) - end - 4 and data.endswith(b"\r\n"):
                return data[end + 2 : -2]
        return self._walk(self._pending + data if self._pending else data)

    def _walk(self, data: bytes) -> bytes:
        parts: list[bytes] = []
        position = 0
        while not self.done:
            if self._place == "payload":
                part = data[position : position + self._left]
                parts.append(part)
                position += len(part)
                self._left -= len(part)
                if self._left:
                    break
                self._place = "payload end"
            line, after = _line(data, position, MAX_HEAD_BYTES if self._place == "trailer" else MAX_CHUNK_SIZE_BYTES)
            if line is None:
                break
            position = after
            self._take_line(line)
        self._pending = data[position:]
        if self.done:
            self.excess, self._pending = self._pending, b""
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take_line(self, line: bytes) -> None:
        if self._place == "payload end":
            if line:
                raise FramingError("a chunk is longer than it says")
            self._place = "size"
        elif self._place == "size":
            match = _SIZE.fullmatch(line)
            if match is None:
                raise FramingError("the size of a chunk is not a hexadecimal number")
            self._left = int(match[1], 16)
            self._place = "payload" if self._left else "trailer"
        elif not line:
            self.done = True


class SizedBody:
    """A body that is delimited by its length, or by the end of the connection where `length_bytes` is None.

    Attributes:
        done: All of it has been seen; never, where the connection's end is the body's.
        excess: Bytes that followed.
    """

    __slots__ = ("_left", "done", "excess", "is_sized")

    def __init__(self, length_bytes: int | None) -> None:
        self._left = length_bytes
        self.is_sized = length_bytes is not None
        self.done = length_bytes == 0
        self.excess = b""

    def feed(self, data: bytes) -> bytes:
        """The payload in `data`."""
        if self._left is None:
            return data
        payload, self.excess = data[: self._left], data[self._left :]
        self._left -= len(payload)
        self.done = self._left == 0
        return payload


def _line(data: bytes, start: int, limit_bytes: int) -> tuple[bytes | None, int]:
    """The line that begins at `start`, and where the next begins; None if it does not end yet."""
    end = data.find(b"\r\n", start)
    if end < 0:
        if len(data) - start > limit_bytes:
            raise FramingError(f"a line of the chunked coding is longer than {limit_bytes} bytes")
        return None, start
    return data[start:end], end + 2
