"""What a format of recorded traffic must be able to do. `workloads.testing.FormatContract` checks an implementation."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from workloads.errors import LineError
from workloads.formats.clock import Clock, RecordedTimes
from workloads.formats.framing import Framing
from workloads.request import Recorded, RejectedLine, Request

DEFAULT_VOCAB_SIZE = 32_000
"""Token ids below this exist in the vocabulary of nearly every model that is served."""


@dataclass(slots=True)
class Reading:
    """What is known while one file is read; formats note here what they cannot pass on.

    Attributes:
        clock: Turns recorded times into seconds since the first request.
        vocab_size: Token ids of prompts made from shapes are below this.
        unhonoured: What records have and a replay cannot honour, by name, with the number of times it was met.
        notes: How the file was understood, one sentence each.
        answers: What the server answered, by the id of the request, from a second file.
        rejected: What was left out, in file order.
        state: A format's own, kept from one record to the next.
    """

    clock: Clock = field(default_factory=Clock)
    vocab_size: int = DEFAULT_VOCAB_SIZE
    unhonoured: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    answers: Mapping[str, Recorded] = field(default_factory=dict)
    rejected: list[RejectedLine] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)

    def note(self, sentence: str) -> None:
        """Say something once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    @contextmanager
    def one_of_several(self, line: int) -> Iterator[None]:
        """Around one of the requests of a record that do not need each other: a bad one is left out by itself."""
        try:
            yield
        except LineError as error:
            self.rejected.append(RejectedLine(line, str(error)))


@runtime_checkable
class LineFormat(Protocol):
    """What a format of JSON lines may do beside, to be read faster than record by record."""

    def request_of_line(self, raw: bytes, line: int, reading: Reading) -> Request | None:
        """The one request of a line; None for whatever is unusual, and then the line is read as any format's."""


class Format(Protocol):
    """One way to write down requests."""

    @property
    def name(self) -> str:
        """Short name, as given on the command line."""

    @property
    def framings(self) -> tuple[Framing, ...]:
        """How records may follow each other in a file; the first one is taken when the file does not show it."""

    @property
    def in_time_order(self) -> bool:
        """Whether records come in the order of arrival; if not, all requests are held and sorted."""

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Whether these first records of a file look like this format, judged by fields that only it has."""

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes | None:
        """The times in these first records, by which their unit is told; None if the format's times need no telling."""

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> Iterable[Request]:
        """The requests in a record: one, several (the turns of a conversation), or none (noted in `reading`).

        Raises:
            LineError: if the record is not usable; the message names field, value and what it must be. Where only one
                of several requests is not, see `Reading.one_of_several`.
        """
