"""AIPerf's single_turn: a text a line, with a time in milliseconds or a delay."""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.formats.aiperf_turns import MEDIA_FIELDS, TEXT_FIELDS, turn_fields, turn_message
from workloads.formats.building import body_request
from workloads.formats.clock import RecordedTimes
from workloads.formats.fields import as_text
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.formats.traces import column
from workloads.request import Request

_FOREIGN = {"turns", "body", "messages", "prompt", "conversation", "attributes"}


class AIPerfSingleTurnFormat:
    """Reads single turns."""

    name = "aiperf_single_turn"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """A text or media, and no turns around them."""
        wanted = {*TEXT_FIELDS, *MEDIA_FIELDS}
        return any(record.keys() & wanted and not record.keys() & _FOREIGN for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
        """Documented as milliseconds."""
        return RecordedTimes("timestamp", column(records, "timestamp"), "ms")

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        body = {"messages": [turn_message(record, reading)], **turn_fields(record, reading)}
        time = record.get("timestamp")
        offset_s = None if time is None else reading.clock.offset_s(time)
        session = as_text(record.get("session_id"))
        return (body_request(body, reading, request_id=f"line-{line}", line=line, offset_s=offset_s, session=session),)


AIPERF_SINGLE_TURN = AIPerfSingleTurnFormat()
