"""LiteLLM's StandardLoggingPayload, as its callbacks and object stores write it. Written when a request ends."""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.errors import LineError
from workloads.formats.building import body_request, textless_request
from workloads.formats.clock import RecordedTimes
from workloads.formats.fields import as_text, shown, structure, text
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.formats.litellm import STORE_PROMPTS, TEXT_CALLS, is_replayed, recorded
from workloads.formats.traces import column
from workloads.request import Request


class LiteLLMPayloadFormat:
    """Reads StandardLoggingPayload objects."""

    name = "litellm_payload"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = False

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """A call with the parameters of its model, under an id."""
        return any({"id", "call_type", "startTime", "model_parameters"} <= record.keys() for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
        """Seconds since 1970."""
        return RecordedTimes("startTime", column(records, "startTime"))

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        if not is_replayed(record, reading):
            return ()
        request_id = text(record, "id")
        offset_s = reading.clock.offset_s(record.get("startTime"))
        session = as_text(record.get("session_id")) or as_text(record.get("trace_id"))
        answered = recorded(record, reading.clock)
        messages = structure(record.get("messages"), "messages")
        if not messages:
            return (
                textless_request(
                    reading,
                    STORE_PROMPTS,
                    request_id=request_id,
                    line=line,
                    recorded=answered,
                    offset_s=offset_s,
                    session=session,
                ),
            )
        parameters = structure(record.get("model_parameters"), "model_parameters") or {}
        if not isinstance(parameters, dict):
            raise LineError(f'"model_parameters" is {shown(parameters)}; it must be an object of sampling fields')
        field = "prompt" if record.get("call_type") in TEXT_CALLS else "messages"
        # What a client passes beyond OpenAI's fields, LiteLLM keeps apart; on the wire it is part of the body.
        extra = parameters.get("extra_body")
        own = {name: value for name, value in parameters.items() if name != "extra_body"}
        body = {"model": record.get("model"), field: messages, **own, **(extra if isinstance(extra, dict) else {})}
        return (
            body_request(
                body,
                reading,
                request_id=request_id,
                line=line,
                offset_s=offset_s,
                session=session,
                route=as_text(record.get("model_group")),
                recorded=answered,
            ),
        )


LITELLM_PAYLOAD = LiteLLMPayloadFormat()
