"""Reading a workload file: bytes to lines to records, records to requests by a format, and the rules between lines.

A bad line is left out, counted and reported; too many of them stop the reading. One pass, so that the file may be a
pipe. What a record means is the formats' business.
"""

import hashlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import orjson

from workloads.errors import LineError, WorkloadError, WorkloadFileError, WorkloadFormatError
from workloads.formats import FORMATS, Format
from workloads.request import RejectedLine, Request, Workload

SNIFFED_RECORDS = 20
"""Records looked at to tell the format."""

LISTED_REASONS = 5
"""Bad lines quoted when there are too many."""

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip", b"PAR1": "parquet"}
_BOM = b"\xef\xbb\xbf"

Record = dict[str, Any]
Parsed = tuple[int, Record | LineError]


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def read_workload(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - the word of the command line, and never the builtin here
    max_bad_share: float = 0.01,
) -> Workload:
    """Read recorded traffic.

    Args:
        path: A file of one JSON object a line. Empty lines are skipped.
        format: Name of its format; by default told from the records.
        max_bad_share: Largest share of lines that may be bad, 0 to 1.

    Raises:
        WorkloadFileError: if the file cannot be read, is empty or is not text.
        WorkloadFormatError: if the format is unknown or not recognised, no line is good, or too many are bad.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise WorkloadFormatError(f'format "{format}" is unknown; the known ones are {", ".join(FORMATS)}')
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            _check_head(path, file.peek(4096))
            records = _records(file, digest)
            head = list(itertools.islice(records, SNIFFED_RECORDS))
            reading = _Reading(FORMATS[format] if format else _recognise(path, head))
            for line, record in itertools.chain(head, records):
                reading.take(line, record)
    except OSError as error:
        raise _unreadable(path, error) from error
    _check_share(path, reading, max_bad_share)
    return Workload(
        name=path.stem,
        path=path,
        format=reading.format.name,
        digest=f"sha256:{digest.hexdigest()}",
        requests=tuple(reading.requests),
        rejected=tuple(reading.rejected),
    )


@dataclass(slots=True)
class _Reading:
    """Requests so far, and the rules that hold between lines."""

    format: Format
    requests: list[Request] = field(default_factory=list)
    rejected: list[RejectedLine] = field(default_factory=list)
    line_of_id: dict[str, int] = field(default_factory=dict)

    def take(self, line: int, record: Record | LineError) -> None:
        """Account for one line: it becomes a request or a rejection."""
        try:
            if isinstance(record, LineError):
                raise record
            request = self.format.request(record, line)
            self._check_against_others(request)
        except LineError as error:
            self.rejected.append(RejectedLine(line, str(error)))
            return
        self.requests.append(request)
        self.line_of_id[request.id] = line

    def _check_against_others(self, request: Request) -> None:
        if request.id in self.line_of_id:
            raise LineError(f'the id "{request.id}" is that of line {self.line_of_id[request.id]}; ids must differ')
        if not self.requests:
            return
        first, previous = self.requests[0], self.requests[-1]
        if (request.offset_s is None) != (first.offset_s is None):
            has, other = ("no", "has one") if request.offset_s is None else ("a", "has none")
            raise LineError(f"it has {has} timestamp while line {first.line} {other}; time all requests or none")
        if request.offset_s is not None and previous.offset_s is not None and request.offset_s < previous.offset_s:
            raise LineError(
                f"its timestamp of {request.offset_s} s is before the {previous.offset_s} s of line {previous.line}; "
                "sort the file by time"
            )


def _records(file: BinaryIO, digest: _Digest) -> Iterator[Parsed]:
    """The file's records with their line numbers; a line that is none comes as the error that says so."""
    for number, raw in enumerate(file, start=1):
        digest.update(raw)
        line = raw.removeprefix(_BOM) if number == 1 else raw
        if line.isspace():
            continue
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            yield number, LineError(f"it is not valid JSON: {error.msg} at column {error.colno}")
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            yield number, LineError(f"it is a JSON {type(record).__name__}, not an object")


def _recognise(path: Path, head: list[Parsed]) -> Format:
    records = [record for _, record in head if isinstance(record, dict)]
    for known in FORMATS.values():
        if known.recognises(records):
            return known
    line, first = head[0]
    if not records:
        raise WorkloadFormatError(f"{path}:{line}: {first}; a workload has one JSON object a line")
    raise WorkloadFormatError(
        f"{path}: a record with the fields {', '.join(sorted(records[0]))} is in no known format; "
        f"convert it to one of {', '.join(FORMATS)}"
    )


def _check_head(path: Path, head: bytes) -> None:
    if not head.removeprefix(_BOM).strip():
        raise WorkloadFileError(f"{path} is empty; record some traffic into it first")
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            raise WorkloadFileError(f"{path} is a {name} file; unpack it to text of one JSON object a line")
    if b"\0" in head:
        raise WorkloadFileError(f"{path} is binary; a workload is UTF-8 text of one JSON object a line")
    if head.lstrip().startswith(b"["):
        raise WorkloadFileError(f"{path} is one JSON array; write one object a line, as by: jq -c '.[]'")


def _check_share(path: Path, reading: _Reading, max_bad_share: float) -> None:
    bad = len(reading.rejected)
    total = bad + len(reading.requests)
    if reading.requests and bad <= max_bad_share * total:
        return
    listed = "".join(f"\n  {path}:{each.line}: {each.reason}" for each in reading.rejected[:LISTED_REASONS])
    more = f"\n  and {bad - LISTED_REASONS} more" if bad > LISTED_REASONS else ""
    raise WorkloadFormatError(
        f"{path}: {bad} of {total} lines are no usable {reading.format.name} requests (allowed: {max_bad_share:.1%}); "
        f"correct them or allow a larger share:{listed}{more}"
    )


def _unreadable(path: Path, error: OSError) -> WorkloadError:
    if isinstance(error, FileNotFoundError):
        return WorkloadFileError(f"{path} does not exist; check the path")
    if isinstance(error, IsADirectoryError):
        return WorkloadFileError(f"{path} is a directory; name the file in it")
    return WorkloadFileError(f"{path} cannot be read: {error.strerror or error}; check its permissions")
