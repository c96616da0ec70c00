"""Azure's public LLM inference traces of 2023 and 2024: date, tokens of context and tokens generated, as CSV."""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.formats.building import shape_request
from workloads.formats.clock import RecordedTimes
from workloads.formats.fields import as_count, count
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.formats.traces import column
from workloads.request import Request
from workloads.shape import Shape


class AzureLLMFormat:
    """Reads Azure's traces."""

    name = "azure_llm"
    framings: tuple[Framing, ...] = ("csv",)
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Its names of columns."""
        return any({"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= record.keys() for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
        """Dates of seven decimals."""
        return RecordedTimes("TIMESTAMP", column(records, "TIMESTAMP"))

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        tokens_in, tokens_out = count(record, "ContextTokens"), count(record, "GeneratedTokens")
        offset_s = reading.clock.offset_s(record.get("TIMESTAMP"))
        if not (tokens_in and tokens_out):
            reading.unhonoured["request that failed when it was recorded (no tokens)"] += 1
            return ()
        if as_count(record.get("NumImages")):
            reading.unhonoured["images of a request"] += 1
        shape = Shape(tokens_in, tokens_out)
        return (shape_request(shape, reading, request_id=f"line-{line}", line=line, offset_s=offset_s),)


AZURE_LLM = AzureLLMFormat()
