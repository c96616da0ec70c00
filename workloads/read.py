"""Reading a workload file: records to requests by a format, and the rules that hold between requests.

A bad record is left out, counted and reported; too many of them stop the reading. One pass, so that the file may be a
pipe. How bytes become records and what a record means is in `formats/`.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.errors import LineError, WorkloadError, WorkloadFileError, WorkloadFormatError
from workloads.formats import FORMATS, OPENAI_BATCH, Format, Reading
from workloads.formats.clock import TIME_UNITS, settle
from workloads.formats.format import DEFAULT_VOCAB_SIZE, LineFormat
from workloads.formats.framing import Framing, JsonLines, Parsed, parse_line, records, tell_framing
from workloads.formats.openai_batch import read_answers
from workloads.formats.source import BROKEN_PACKING, DigestingFile, open_text
from workloads.request import Recorded, RejectedLine, Request, Workload
from workloads.sequence import SequenceRules

SNIFFED_RECORDS = 20
"""Records looked at to tell the format and the unit of its times."""

SNIFFED_LINES = 5000
"""Lines of text looked at: an engine's log begins with a long start."""

LISTED_REASONS = 5
"""Bad lines quoted when there are too many."""

HASHED = "hash"
"""Value of the tag `redacted` of requests whose words were replaced by hashes: acceptance on them means little."""


def read_workload(
    path: str | os.PathLike[str],
    *,
    format: str | Format | None = None,  # noqa: A002 - the word of the command line, and never the builtin here
    max_bad_share: float = 0.01,
    time_unit: str | None = None,
    responses: str | os.PathLike[str] | None = None,
    vocab_size: int | None = None,
) -> Workload:
    """Read recorded traffic; arguments and errors are those of `stream_requests`."""
    return stream_requests(
        path,
        format=format,
        max_bad_share=max_bad_share,
        time_unit=time_unit,
        responses=responses,
        vocab_size=vocab_size,
    ).workload()


def stream_requests(
    path: str | os.PathLike[str],
    *,
    format: str | Format | None = None,  # noqa: A002 - as read_workload
    max_bad_share: float = 0.01,
    time_unit: str | None = None,
    responses: str | os.PathLike[str] | None = None,
    vocab_size: int | None = None,
) -> "RequestStream":
    """Read recorded traffic one request at a time.

    Args:
        path: A file in one of the known formats, also packed with gzip or zstd.
        format: Its format or the name of a known one; by default told from its first records.
        max_bad_share: Largest share of records that may be bad, 0 to 1; judged when the stream ends.
        time_unit: Unit of its times, one of `TIME_UNITS`; by default told from its first records.
        responses: For an OpenAI batch: its output, which says what the server answered.
        vocab_size: Token ids of prompts made from shapes stay below this; by default below `DEFAULT_VOCAB_SIZE`.

    Raises:
        WorkloadFileError: if the file cannot be read, is empty or is not text.
        WorkloadFormatError: if the format or the unit of times is unknown or not clear, and, when the stream ends, if
            no record is good or too many are bad.
    """
    path = Path(path)
    if isinstance(format, str) and format not in FORMATS:
        raise WorkloadFormatError(f'format "{format}" is unknown; the known ones are {", ".join(FORMATS)}')
    if time_unit is not None and time_unit not in TIME_UNITS:
        raise WorkloadFormatError(f'the time unit "{time_unit}" is unknown; it is one of {", ".join(TIME_UNITS)}')
    known, source, head = _open(path, FORMATS[format] if isinstance(format, str) else format)
    if responses is not None and known is not OPENAI_BATCH:
        raise WorkloadFormatError(f"{path} is in {known.name} format; responses are joined with openai_batch only")
    clock, note = settle(known.times(head), time_unit, str(path))
    answers = {} if responses is None else _answers(Path(responses))
    reading = Reading(
        clock=clock, vocab_size=vocab_size or DEFAULT_VOCAB_SIZE, answers=answers, notes=[note] if note else []
    )
    return RequestStream(path, known, reading, source, max_bad_share)


def _open(path: Path, asked: Format | None) -> "tuple[Format, _Source, list[dict[str, Any]]]":
    """The file's format, itself, and the good ones of its first records."""
    try:
        file = DigestingFile(path.open("rb", buffering=0))
        text = open_text(path, file)
        framing = tell_framing(text)
        if asked and framing not in asked.framings:
            framing = asked.framings[0]
        parsed = records(text, framing)
        rest = iter(parsed)
        head = list(itertools.islice(rest, SNIFFED_LINES if framing == "text" else SNIFFED_RECORDS))
    except OSError as error:
        raise _unreadable(path, error) from error
    known = asked or _recognise(path, framing, head)
    good = [record for _, record in head if isinstance(record, dict)]
    return known, _Source(file, head, rest, parsed.raw if isinstance(parsed, JsonLines) else None), good


def _answers(path: Path) -> dict[str, Recorded]:
    try:
        with DigestingFile(path.open("rb", buffering=0)) as file:
            return read_answers(records(open_text(path, file), "json"))
    except OSError as error:
        raise _unreadable(path, error) from error
    except LineError as error:
        raise WorkloadFormatError(f"{path}: {error}; name the output file of the batch") from None


@dataclass(frozen=True, slots=True)
class _Source:
    """An open file, its first records, and the rest of it: as records, and as lines if that is what it has."""

    file: DigestingFile
    head: list[Parsed]
    rest: Iterator[Parsed]
    lines: Iterator[tuple[int, bytes]] | None


class RequestStream(Iterable[Request]):
    """The requests of a file, one after the other and once, in memory that does not grow with their text.

    `digest` is known when the stream has ended; `rejected`, `notes`, `unhonoured` and `text_bearing` are complete then.

    Attributes:
        path: Where the file is read.
        text_bearing: Whether all prompts so far are real text, so that acceptance means something.
    """

    def __init__(self, path: Path, known: Format, reading: Reading, source: _Source, max_bad_share: float) -> None:
        self.path = path
        self.text_bearing = True
        self._format = known
        self._reading = reading
        self._source = source
        self._max_bad_share = max_bad_share
        self._requests = self._read()

    def __iter__(self) -> Iterator[Request]:
        return self._requests

    @property
    def format(self) -> str:
        """Name of the format that the file is read as."""
        return self._format.name

    @property
    def rejected(self) -> list[RejectedLine]:
        """Lines left out so far, in file order; a line of several requests once for each bad one."""
        return self._reading.rejected

    @property
    def notes(self) -> tuple[str, ...]:
        """How the file was understood, one sentence each."""
        return tuple(self._reading.notes)

    @property
    def unhonoured(self) -> Mapping[str, int]:
        """What records have and a replay cannot honour, by name, with the number of times it was met."""
        return dict(self._reading.unhonoured)

    @property
    def digest(self) -> str:
        """`sha256:<hex>` over the bytes of the file, as far as it has been read."""
        return self._source.file.digest

    def workload(self) -> Workload:
        """All that is left of the stream, in memory.

        Raises:
            WorkloadError: as reading the stream does.
        """
        requests = tuple(self)
        return Workload(
            name=self.path.stem,
            path=self.path,
            format=self.format,
            digest=self.digest,
            requests=requests,
            rejected=tuple(self.rejected),
            notes=self.notes,
            unhonoured=self.unhonoured,
            text_bearing=self.text_bearing,
        )

    def _read(self) -> Iterator[Request]:
        refusal, good = SequenceRules().refusal, 0
        found = self._found() if self._format.in_time_order else self._sorted()
        for request in found:
            reason = refusal(request)
            if reason is not None:
                self.rejected.append(RejectedLine(request.line, reason))
                continue
            good += 1
            if request.shape is not None or (request.tags and request.tags.get("redacted") == HASHED):
                self.text_bearing = False
            yield request
        self._source.file.close()
        self._check_share(good)

    def _found(self) -> Iterator[Request]:
        """Requests as they are in the file; a record that is none is noted."""
        source, form = self._source, self._format
        try:
            yield from self._of_records(source.head)
            if source.lines is not None and isinstance(form, LineFormat):
                yield from self._of_lines(source.lines, form)
            else:
                yield from self._of_records(source.rest)
        except OSError as error:
            raise _unreadable(self.path, error) from error
        except BROKEN_PACKING as error:
            raise WorkloadFileError(f"{self.path} cannot be unpacked to its end: {error}; copy it again") from error

    def _of_records(self, records: Iterable[Parsed]) -> Iterator[Request]:
        for line, record in records:
            try:
                if isinstance(record, LineError):
                    raise record
                yield from self._format.requests(record, line, self._reading)
            except LineError as error:
                self.rejected.append(RejectedLine(line, str(error)))

    def _of_lines(self, lines: Iterator[tuple[int, bytes]], form: LineFormat) -> Iterator[Request]:
        request_of_line, reading = form.request_of_line, self._reading
        for line, raw in lines:
            request = request_of_line(raw, line, reading)
            if request is not None:
                yield request
            elif (parsed := parse_line(line, raw)) is not None:
                yield from self._of_records((parsed,))

    def _sorted(self) -> Iterator[Request]:
        """All requests in the order of their times, which then count from the earliest; held to be sorted."""
        held = list(self._found())
        times_s = [request.offset_s for request in held if request.offset_s is not None]
        if not times_s or len(times_s) < len(held):
            # Without times, or with some missing, which the rules between requests will say.
            return iter(held)
        first_s = min(times_s)
        late = sum(later < earlier for earlier, later in itertools.pairwise(times_s))
        if late:
            self._reading.note(f"requests were sorted by time; {late} came after a later one in the file")
        held.sort(key=lambda request: request.offset_s or 0.0)
        return (dataclasses.replace(request, offset_s=(request.offset_s or 0.0) - first_s) for request in held)

    def _check_share(self, good: int) -> None:
        bad = len(self.rejected)
        total = bad + good
        if good and bad <= self._max_bad_share * total:
            return
        listed = "".join(f"\n  {self.path}:{each.line}: {each.reason}" for each in self.rejected[:LISTED_REASONS])
        more = f"\n  and {bad - LISTED_REASONS} more" if bad > LISTED_REASONS else ""
        raise WorkloadFormatError(
            f"{self.path}: {bad} of {total} lines are no usable {self.format} requests (allowed: "
            f"{self._max_bad_share:.1%}); correct them or allow more with --max-bad-share:{listed}{more}"
        )


def _recognise(path: Path, framing: Framing, head: list[Parsed]) -> Format:
    good = [record for _, record in head if isinstance(record, dict)]
    for known in FORMATS.values():
        if framing in known.framings and known.recognises(good):
            return known
    if framing == "json" and not good:
        line, first = head[0] if head else (1, "it holds nothing")
        raise WorkloadFormatError(f"{path}:{line}: {first}; a workload has one JSON object a line")
    what = "its text" if framing == "text" or not good else f"a record with the fields {', '.join(sorted(good[0]))}"
    raise WorkloadFormatError(
        f"{path}: {what} is in no known format; name it with --format or convert it to one of {', '.join(FORMATS)}"
    )


def _unreadable(path: Path, error: OSError) -> WorkloadError:
    if isinstance(error, FileNotFoundError):
        return WorkloadFileError(f"{path} does not exist; check the path")
    if isinstance(error, IsADirectoryError):
        return WorkloadFileError(f"{path} is a directory; name the file in it")
    return WorkloadFileError(f"{path} cannot be read: {error.strerror or error}; check its permissions")
