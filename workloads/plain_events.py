"""Running token counts read off the events that nearly all of a stream consists of, in a fraction of the usual time.

A plain event is one HTTP chunk with one data line: one choice with index 0 that goes on, beside it the count of its
tokens so far, and no error. Keeps no state. What is not plain is `stream.py`'s, which would read these the same.
"""

from typing import Any, Final

import msgspec

from workloads.framing import CHUNK_SIZES

MAX_COUNT = 2**53
"""A count of tokens beyond this is none."""


class _Choice(msgspec.Struct, gc=False):
    """Any type will do at this point, so that none is converted: 0.0 is not 0 tokens."""

    index: Any
    finish_reason: Any


class _Usage(msgspec.Struct, gc=False):
    completion_tokens: Any


class _Event(msgspec.Struct, gc=False):
    choices: tuple[_Choice]
    usage: _Usage
    error: Any = None


_decode: Final = msgspec.json.Decoder(_Event).decode


def plain_counts(read: bytes, counts: list[int]) -> int:
    """Append to `counts` that of each plain event at the beginning of `read`; returns the bytes that these are."""
    start = 0
    # What is skipped is not looked at closely by msgspec: broken characters, and halves of surrogate pairs.
    if (b"\\" in read and b"\\u" in read) or not (read.isascii() or _is_utf8(read)):
        return 0
    find, starts_with, sizes = read.find, read.startswith, CHUNK_SIZES
    while True:
        end = find(b"\r\n", start, start + 5)
        size = sizes.get(read[start:end]) if end > 0 else None
        if size is None:
            return start
        stop = end + 2 + size
        if (
            not starts_with(b"data: ", end + 2)
            or not starts_with(b"}\n\n\r\n", stop - 3)
            or find(b"\n", end + 2, stop - 2) >= 0
            or find(b"\r", end + 2, stop) >= 0
        ):
            return start
        try:
            event = _decode(read[end + 8 : stop - 2])
        except (msgspec.MsgspecError, RecursionError):
            return start
        (choice,), now = event.choices, event.usage.completion_tokens
        if (
            choice.finish_reason is not None
            or choice.index != 0
            or event.error is not None
            or type(now) is not int
            or not 0 <= now <= MAX_COUNT
        ):
            return start
        counts.append(now)
        start = stop + 2


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
