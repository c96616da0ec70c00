"""GuideLLM's replay data: arrival and two lengths, as JSON lines or CSV, times in seconds.

The same three fields are also written with milliseconds by others, so the unit is believed only if it makes sense.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.formats.building import shape_request
from workloads.formats.clock import RecordedTimes
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.formats.traces import column, read_shape
from workloads.request import Request

_FIELDS = {"timestamp", "input_length", "output_length"}


class GuideLLMReplayFormat:
    """Reads GuideLLM's replay data."""

    name = "guidellm_replay"
    framings: tuple[Framing, ...] = ("json", "csv")
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Exactly its three fields."""
        return any(record.keys() == _FIELDS for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
        """Seconds, if they can be: nothing in the file says so."""
        return RecordedTimes("timestamp", column(records, "timestamp"))

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        shape = read_shape(record, reading, 0)
        offset_s = reading.clock.offset_s(record.get("timestamp"))
        return (shape_request(shape, reading, request_id=f"line-{line}", line=line, offset_s=offset_s),)


GUIDELLM_REPLAY = GuideLLMReplayFormat()
