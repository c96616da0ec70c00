"""Mooncake's public traces (kvcache-ai/Mooncake, FAST25-release): arrival, two lengths, and the prompt's blocks by id.

Times are milliseconds; an id stands for a block of 512 tokens and for everything before it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.formats.building import shape_request
from workloads.formats.clock import RecordedTimes
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.formats.traces import column, read_shape
from workloads.request import Request

BLOCK_TOKENS = 512
_FIELDS = {"timestamp", "input_length", "output_length", "hash_ids"}


class MooncakeFormat:
    """Reads Mooncake traces."""

    name = "mooncake"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Lengths and hash_ids, and nothing that other traces have beside them."""
        return any(record.keys() == _FIELDS for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
        """Documented as milliseconds."""
        return RecordedTimes("timestamp", column(records, "timestamp"), "ms")

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        shape = read_shape(record, reading, BLOCK_TOKENS)
        offset_s = reading.clock.offset_s(record.get("timestamp"))
        return (shape_request(shape, reading, request_id=f"line-{line}", line=line, offset_s=offset_s),)


MOONCAKE = MooncakeFormat()
