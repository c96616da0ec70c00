"""LiteLLM's SpendLogs, exported from its database one row a line. Rows are in no order of arrival.

The body is that of proxy_server_request if it was stored; else messages, without sampling fields.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.formats.building import body_request, textless_request
from workloads.formats.clock import RecordedTimes
from workloads.formats.fields import as_text, structure, text
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.formats.litellm import STORE_PROMPTS, TEXT_CALLS, is_replayed, recorded
from workloads.formats.traces import column
from workloads.request import Request


class LiteLLMSpendLogsFormat:
    """Reads rows of LiteLLM_SpendLogs."""

    name = "litellm_spend_logs"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = False

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """A row's request_id, call_type and startTime."""
        return any({"request_id", "call_type", "startTime"} <= record.keys() for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
        """Dates, or seconds since 1970."""
        return RecordedTimes("startTime", column(records, "startTime"))

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        if not is_replayed(record, reading):
            return ()
        request_id = text(record, "request_id")
        offset_s = reading.clock.offset_s(record.get("startTime"))
        session = as_text(record.get("session_id"))
        answered = recorded(record, reading.clock)
        body = _body(record)
        if body is None:
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
        tags = {name: value for name in ("end_user", "team_id") if (value := as_text(record.get(name)))}
        return (
            body_request(
                body,
                reading,
                request_id=request_id,
                line=line,
                offset_s=offset_s,
                session=session,
                route=as_text(record.get("model_group")),
                tags=tags,
                recorded=answered,
            ),
        )


def _body(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    sent = structure(record.get("proxy_server_request"), "proxy_server_request")
    if isinstance(sent, dict):
        body = sent.get("body", sent)
        if isinstance(body, dict) and ("messages" in body or "prompt" in body):
            return body
    messages = structure(record.get("messages"), "messages")
    if not messages:
        return None
    field = "prompt" if record.get("call_type") in TEXT_CALLS else "messages"
    return {"model": record.get("model"), field: messages}


LITELLM_SPEND_LOGS = LiteLLMSpendLogsFormat()
