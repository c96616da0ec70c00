"""BurstGPT (HPMLL/BurstGPT): one CSV row a request, in the old layout and in the one with sessions. Read by name.

Times are seconds. A row without response tokens is a request that failed. Prompts share nothing, as far as is known.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.formats.building import shape_request
from workloads.formats.clock import RecordedTimes
from workloads.formats.fields import as_text, count
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.formats.traces import column
from workloads.request import Recorded, Request
from workloads.shape import Shape


class BurstGPTFormat:
    """Reads BurstGPT tables."""

    name = "burstgpt"
    framings: tuple[Framing, ...] = ("csv",)
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Its names of columns."""
        return any({"Timestamp", "Request tokens", "Response tokens"} <= record.keys() for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
        """Documented as seconds."""
        return RecordedTimes("Timestamp", column(records, "Timestamp"), "s")

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        tokens_in, tokens_out = count(record, "Request tokens"), count(record, "Response tokens")
        offset_s = reading.clock.offset_s(record.get("Timestamp"))
        if not (tokens_in and tokens_out):
            reading.unhonoured["request that failed when it was recorded (no tokens)"] += 1
            return ()
        if model := record.get("Model"):
            reading.unhonoured[f'model name "{model}"'] += 1
        session = as_text(record.get("Session ID"))
        recorded = Recorded(
            prompt_tokens=tokens_in, completion_tokens=tokens_out, duration_s=_seconds(record.get("Elapsed time"))
        )
        return (
            shape_request(
                Shape(tokens_in, tokens_out),
                reading,
                request_id=f"line-{line}",
                line=line,
                offset_s=offset_s,
                session=session,
                route=as_text(record.get("Log Type")),
                recorded=recorded,
            ),
        )


def _seconds(value: Any) -> float | None:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if 0 <= seconds < float("inf") else None


BURSTGPT = BurstGPTFormat()
