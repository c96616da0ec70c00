"""From text to records: how they follow each other in a file. What a record means is the formats' business.

Streams: at any time one record is held.
"""

import codecs
import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import orjson

from workloads.errors import LineError
from workloads.formats.source import BOM, READ_BYTES

Framing = Literal["json", "csv", "text"]
"""JSON objects (one a line, in one array, or over several lines); comma-separated values under a header; text."""

Record = dict[str, Any]
Parsed = tuple[int, Record | LineError]

LINE: Final = "line"
"""The one field of a record that is a line of text."""

MAX_RECORD_CHARS: Final = 64 * 2**20
"""A JSON value in an array is given up as broken when it does not end within this."""

_NAME: Final = re.compile(rb'"?[A-Za-z_][\w .()-]*"?')
_GAP: Final = re.compile(r"[\s,]*")


def tell_framing(text: io.BufferedReader) -> Framing:
    """How the records of a file follow each other, by its beginning."""
    head = text.peek(4096).removeprefix(BOM).lstrip()
    if head.startswith(b"{") or re.match(rb"\[\s*[{\]]", head):
        return "json"
    first = head.partition(b"\n")[0].strip()
    if b"," in first and all(_NAME.fullmatch(name.strip()) for name in first.split(b",")):
        return "csv"
    return "json" if re.search(rb"^\s*\{", head, re.MULTILINE) else "text"


def records(text: io.BufferedReader, framing: Framing) -> Iterable[Parsed]:
    """The records of a file with the numbers of the lines on which they begin; a bad one comes as what is wrong."""
    if framing == "csv":
        return _csv_rows(text)
    if framing == "text":
        return ((number, {LINE: raw.decode("utf-8", "replace").rstrip("\r\n")}) for number, raw in enumerate(text, 1))
    head = text.peek(4096).removeprefix(BOM).lstrip()
    if head.startswith(b"[") or head.partition(b"\n")[0].strip() == b"{":
        return _json_values(text)
    return JsonLines(text)


class JsonLines(Iterable[Parsed]):
    """One JSON object a line.

    Attributes:
        raw: Numbers and bytes of the lines that are not yet read; reading goes on where this is left.
    """

    def __init__(self, text: io.BufferedReader) -> None:
        self.raw: Iterator[tuple[int, bytes]] = enumerate(text, start=1)

    def __iter__(self) -> Iterator[Parsed]:
        return (parsed for number, raw in self.raw if (parsed := parse_line(number, raw)) is not None)


def parse_line(number: int, raw: bytes) -> Parsed | None:
    """The record of a line; None if the line is empty."""
    line = raw.removeprefix(BOM) if number == 1 else raw
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        if line.isspace():
            return None
        return number, LineError(f"it is not valid JSON: {error.msg} at column {error.colno}")
    return number, record if type(record) is dict else _no_object(record)


def _no_object(value: object) -> LineError:
    return LineError(f"it is a JSON {type(value).__name__}, not an object")


def _json_values(text: io.BufferedReader) -> Iterator[Parsed]:
    """The elements of one array, or objects one after the other, as they become complete."""
    decode = json.JSONDecoder().raw_decode
    feed = _feed(text)
    pending = next(feed, "").removeprefix("\ufeff").lstrip()
    in_array = pending.startswith("[")
    at, line = int(in_array), 1
    while True:
        gap = _GAP.match(pending, at)
        start = gap.end() if gap else at
        line += pending.count("\n", at, start)
        at = start
        if in_array and pending.startswith("]", at):
            return
        try:
            value, end = decode(pending, at)
        except json.JSONDecodeError as error:
            more = next(feed, "") if len(pending) - at < MAX_RECORD_CHARS else ""
            if more:
                # As much again, so that a long value is not tried anew for every small piece.
                wanted = len(pending) - at
                parts = [pending[at:], more]
                while (wanted := wanted - len(parts[-1])) > 0 and (more := next(feed, "")):
                    parts.append(more)
                pending, at = "".join(parts), 0
                continue
            if at < len(pending):
                yield line, LineError(f"it is not valid JSON: {error.msg}; nothing after it can be read")
            elif in_array:
                yield line, LineError("the JSON array does not end; the file has been cut off")
            return
        yield line, value if type(value) is dict else _no_object(value)
        line += pending.count("\n", at, end)
        at = end


def _feed(text: io.BufferedReader) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while data := text.read(READ_BYTES):
        yield decoder.decode(data)


def _csv_rows(text: io.BufferedReader) -> Iterator[Parsed]:
    reader = csv.reader(io.TextIOWrapper(text, encoding="utf-8-sig", errors="replace", newline=""))
    names: list[str] = []
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            yield line, LineError(f"it is not valid CSV: {error}")
            continue
        if row is None:
            return
        if not row or not any(row):
            continue
        if not names:
            names = [name.strip() for name in row]
        elif len(row) != len(names):
            yield line, LineError(f"it has {len(row)} values, the header has {len(names)} names; correct the line")
        else:
            yield line, dict(zip(names, row, strict=True))
