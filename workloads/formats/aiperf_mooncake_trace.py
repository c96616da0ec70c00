"""AIPerf's mooncake_trace: a request a line, as a length (with hash_ids), a text, messages, or a whole payload."""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.errors import LineError
from workloads.formats.aiperf_turns import turn_fields
from workloads.formats.building import body_request, shape_request
from workloads.formats.clock import RecordedTimes
from workloads.formats.fields import as_text, shown, text
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.formats.mooncake import BLOCK_TOKENS
from workloads.formats.traces import column, read_shape
from workloads.request import Request

KINDS = ("input_length", "text_input", "messages", "payload")
_OTHERS = {"output_length", "timestamp", "delay", "session_id", "hash_ids", "tools", "extra"}
# Exactly these are Mooncake's own traces, and GuideLLM's data, whose times are in other units.
_OTHER_TRACES = (
    {"timestamp", "input_length", "output_length"},
    {"timestamp", "input_length", "output_length", "hash_ids"},
)
_FOREIGN = {"chat_id", "body", "custom_id", "call_type"}


class AIPerfMooncakeTraceFormat:
    """Reads traces for AIPerf's mooncake_trace."""

    name = "aiperf_mooncake_trace"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """One of the four kinds of prompt, with the fields that AIPerf has beside them."""
        return any(
            len(record.keys() & set(KINDS)) == 1
            and record.keys() & _OTHERS
            and not record.keys() & _FOREIGN
            and record.keys() not in _OTHER_TRACES
            for record in records
        )

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
        """Documented as milliseconds."""
        return RecordedTimes("timestamp", column(records, "timestamp"), "ms")

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        kinds = [kind for kind in KINDS if kind in record]
        if len(kinds) != 1:
            raise LineError(f"it has {' and '.join(kinds) or 'no prompt'}; give exactly one of {', '.join(KINDS)}")
        time = record.get("timestamp")
        offset_s = None if time is None else reading.clock.offset_s(time)
        session = as_text(record.get("session_id"))
        name = f"line-{line}"
        if kinds == ["input_length"]:
            turn_fields({**record, "output_length": None}, reading)
            shape = read_shape(record, reading, BLOCK_TOKENS)
            return (shape_request(shape, reading, request_id=name, line=line, offset_s=offset_s, session=session),)
        body = _body(record, kinds[0], reading)
        return (body_request(body, reading, request_id=name, line=line, offset_s=offset_s, session=session),)


def _body(record: Mapping[str, Any], kind: str, reading: Reading) -> Mapping[str, Any]:
    if kind == "payload":
        payload = record["payload"]
        if not isinstance(payload, dict):
            raise LineError(f'"payload" is {shown(payload)}; it must be an object: the request body')
        return payload
    fields = turn_fields(record, reading)
    if kind == "messages":
        return {"messages": record["messages"], **fields}
    return {"messages": [{"role": "user", "content": text(record, "text_input")}], **fields}


AIPERF_MOONCAKE_TRACE = AIPerfMooncakeTraceFormat()
