"""Bare request bodies, one a line, as AIPerf's raw_payload has them. No times, no sessions; sent as they are."""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.formats.building import body_request
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.request import Request

# What other formats with a prompt or messages at the top have beside them.
_FOREIGN = {"output_length", "output_tokens", "timestamp", "session_id", "custom_id", "call_type", "turns", "delay"}


class RawPayloadFormat:
    """Reads bare bodies."""

    name = "raw_payload"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Messages, or a prompt for a model, and nothing of a wrapper around them."""
        return any(
            (bool(record.get("messages")) or ("prompt" in record and "model" in record))
            and not record.keys() & _FOREIGN
            for record in records
        )

    def times(self, records: Sequence[Mapping[str, Any]]) -> None:
        """It has none."""

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        return (body_request(record, reading, request_id=f"line-{line}", line=line),)


RAW_PAYLOAD = RawPayloadFormat()
