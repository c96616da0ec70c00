"""What a format of recorded traffic must be able to do. `workloads.testing.FormatContract` checks an implementation."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from workloads.request import Request


class Format(Protocol):
    """One way to write down requests, one JSON object a line."""

    @property
    def name(self) -> str:
        """Short name, as given on the command line."""

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Whether these first records of a file look like this format, judged by fields that only it has."""

    def request(self, record: Mapping[str, Any], line: int) -> Request:
        """The request in a record.

        Raises:
            LineError: if the record is no usable request; the message names field, value and what it must be.
        """
