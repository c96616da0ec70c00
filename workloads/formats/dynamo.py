"""NVIDIA Dynamo's request trace (DYN_REQUEST_TRACE): events, of which those that end a request have its shape.

Written when a request ends, so not in order of arrival. Hashes stand for whole prefixes, block by block.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.errors import LineError
from workloads.formats.building import shape_request
from workloads.formats.clock import RecordedTimes
from workloads.formats.fields import as_seconds, as_text, as_tokens, count, present, shown, text
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.formats.traces import read_hash_ids
from workloads.request import Recorded, Request
from workloads.shape import Shape

SCHEMAS = ("dynamo.request.trace.", "dynamo.agent.trace.")


class DynamoFormat:
    """Reads Dynamo's request traces."""

    name = "dynamo"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = False

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Its schema's name, in the event or in the record itself."""
        return any(str(_event(record).get("schema")).startswith(SCHEMAS) for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
        """Milliseconds since 1970."""
        ends = [event for event in map(_event, records) if isinstance(event.get("request"), dict)]
        return RecordedTimes("request_received_ms", [_arrival(event) for event in ends], "ms")

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        event = _event(record)
        kind = text(event, "event_type")
        if kind != "request_end":
            reading.unhonoured[f'event of type "{kind}"'] += 1
            return ()
        request = event.get("request")
        if not isinstance(request, dict):
            raise LineError(f'"request" is {shown(request)}; a request_end event must have it')
        replay = request.get("replay")
        if not isinstance(replay, dict):
            raise LineError('"request.replay" is missing; record with DYN_REQUEST_TRACE=1 so that it has hashes')
        context = event.get("agent_context") or {}
        output_tokens = count(request, "output_tokens")
        if output_tokens == 0:
            reading.unhonoured["request that failed when it was recorded (no tokens)"] += 1
            return ()
        if model := request.get("model"):
            reading.unhonoured[f'model name "{model}"'] += 1
        shape = Shape(
            count(replay, "input_length", least=1),
            output_tokens,
            read_hash_ids(replay.get("input_sequence_hashes"), "input_sequence_hashes"),
            count(replay, "trace_block_size", least=1),
        )
        return (
            shape_request(
                shape,
                reading,
                request_id=text(request, "request_id"),
                line=line,
                offset_s=reading.clock.offset_s(_arrival(event)),
                session=as_text(context.get("session_id")),
                route=as_text(context.get("session_type_id")),
                recorded=_recorded(request, shape),
            ),
        )


def _event(record: Mapping[str, Any]) -> Mapping[str, Any]:
    event = record.get("event")
    return event if isinstance(event, dict) else record


def _arrival(event: Mapping[str, Any]) -> Any:
    received = present(event["request"], "request_received_ms")
    return event.get("event_time_unix_ms") if received is None else received


def _recorded(request: Mapping[str, Any], shape: Shape) -> Recorded:
    ttft_ms, total_ms = as_seconds(request.get("ttft_ms")), as_seconds(request.get("total_time_ms"))
    return Recorded(
        prompt_tokens=shape.input_length,
        completion_tokens=shape.output_length,
        cached_tokens=as_tokens(request.get("cached_tokens")),
        ttft_s=None if ttft_ms is None else ttft_ms / 1000,
        duration_s=None if total_ms is None else total_ms / 1000,
    )


DYNAMO = DynamoFormat()
