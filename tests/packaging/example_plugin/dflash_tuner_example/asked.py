"""A workload format: JSON lines of a made-up gateway, `{"asked": TEXT, "limit": N, "at": SECONDS}`."""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.errors import LineError
from workloads.formats import Framing, Reading
from workloads.formats.building import body_request
from workloads.formats.clock import RecordedTimes
from workloads.request import Request


class AskedFormat:
    """Reads that gateway's lines."""

    name = "asked"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Its own field, which no other format has."""
        return any("asked" in record for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
        """Seconds, as the gateway documents."""
        return RecordedTimes("at", [record.get("at") for record in records], "s")

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """One question a line."""
        asked = record.get("asked")
        if not isinstance(asked, str):
            raise LineError(f'"asked" is {asked!r}; it must be a text')
        body = {"prompt": asked, "max_tokens": record.get("limit", 16)}
        offset_s = reading.clock.offset_s(record.get("at"))
        return (body_request(body, reading, request_id=f"line-{line}", line=line, offset_s=offset_s),)


ASKED = AskedFormat()
