"""OpenInference spans, as Phoenix exports them: messages in numbered attributes, sampling in one JSON text."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from workloads.errors import LineError
from workloads.formats.building import body_request, textless_request
from workloads.formats.clock import RecordedTimes
from workloads.formats.fields import as_text, as_tokens, shown, structure
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.formats.spans import Span, has_attribute, raw_spans, read_span, recorded_times
from workloads.request import Recorded, Request

UNMASK: Final = "OpenInference hides prompts with OPENINFERENCE_HIDE_INPUTS=true"


class OpenInferenceFormat:
    """Reads LLM spans of OpenInference."""

    name = "openinference"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = False

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Its kind of span, and no GenAI attributes, which some instrumentations write as well."""
        return any(
            has_attribute(record, "openinference.") and not has_attribute(record, "gen_ai.") for record in records
        )

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
        """Nanoseconds since 1970, or dates."""
        return recorded_times(records)

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> list[Request]:
        """See `Format.requests`."""
        requests = []
        for number, raw in enumerate(raw_spans(record), start=1):
            with reading.one_of_several(line):
                span = read_span(raw)
                nested = unflatten(span.attributes)
                if _at(nested, "openinference", "span", "kind") == "LLM":
                    request_id = span.id or f"line-{line}/{number}"
                    requests.append(_request(span, nested, request_id, line, reading))
                else:
                    reading.unhonoured["span that is no model call"] += 1
        return requests


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with dots in their names as nested objects; numbered ones become lists in order of their numbers."""
    root: dict[str, Any] = {}
    for name, value in flat.items():
        at = root
        *path, last = name.split(".")
        for step in path:
            below = at.setdefault(step, {})
            at = below if isinstance(below, dict) else at.setdefault(f"{step}.", {})
        at[last] = value
    listed = _listed(root)
    return listed if isinstance(listed, dict) else {}


def _listed(value: Any) -> Any:
    if isinstance(value, list):
        return [unflatten(each) if isinstance(each, dict) else each for each in value]
    if not isinstance(value, dict):
        return value
    inner = {name: _listed(each) for name, each in value.items()}
    if inner and all(name.isdigit() for name in inner):
        return [inner[name] for name in sorted(inner, key=int)]
    return inner


def _at(value: Any, *path: str) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _request(span: Span, nested: dict[str, Any], request_id: str, line: int, reading: Reading) -> Request:
    llm = nested.get("llm")
    llm = llm if isinstance(llm, dict) else {}
    offset_s = None if span.start is None else reading.clock.offset_s(span.start)
    session = as_text(_at(nested, "session", "id"))
    counts = _at(llm, "token_count") or {}
    answered = Recorded(
        prompt_tokens=as_tokens(_at(counts, "prompt")),
        completion_tokens=as_tokens(_at(counts, "completion")),
        cached_tokens=as_tokens(_at(counts, "prompt_details", "cache_read")),
        duration_s=span.duration_s(reading.clock),
        finish_reason=as_text(llm.get("finish_reason")),
    )
    entries = llm.get("input_messages")
    if not entries:
        return textless_request(
            reading, UNMASK, request_id=request_id, line=line, recorded=answered, offset_s=offset_s, session=session
        )
    sampling = structure(llm.get("invocation_parameters"), "llm.invocation_parameters") or {}
    if not isinstance(sampling, dict):
        raise LineError(f'"llm.invocation_parameters" is {shown(sampling)}; it must be an object of sampling fields')
    body: dict[str, Any] = {"model": llm.get("model_name"), "messages": _messages(entries, reading), **sampling}
    tools = [
        structure(_at(entry, "tool", "json_schema"), "llm.tools.tool.json_schema") for entry in llm.get("tools") or ()
    ]
    if tools:
        body["tools"] = tools
    return body_request(
        body,
        reading,
        request_id=request_id,
        line=line,
        offset_s=offset_s,
        session=session,
        recorded=answered,
    )


def _messages(entries: Any, reading: Reading) -> list[dict[str, Any]]:
    messages = []
    for place, entry in enumerate(entries):
        message = _at(entry, "message")
        role = _at(message, "role")
        if not isinstance(role, str):
            raise LineError(f'"llm.input_messages.{place}.message.role" is {shown(role)}; it must be a text')
        content = message.get("content")
        if content is None and isinstance(message.get("contents"), list):
            content = _content(message["contents"], reading)
        found: dict[str, Any] = {"role": role, "content": content}
        calls = [_call(_at(each, "tool_call") or {}) for each in message.get("tool_calls") or ()]
        found |= {"tool_calls": calls} if calls else {}
        found |= {name: message[name] for name in ("tool_call_id", "name") if message.get(name)}
        messages.append(found)
    return messages


def _content(parts: list[Any], reading: Reading) -> str:
    texts = []
    for part in parts:
        kind, text = _at(part, "message_content", "type"), _at(part, "message_content", "text")
        if isinstance(text, str):
            texts.append(text)
        else:
            reading.unhonoured[f'content of type "{kind}"'] += 1
    return "\n".join(texts)


def _call(raw: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": _at(raw, "function", "name"), "arguments": _at(raw, "function", "arguments") or "{}"}
    return {"id": raw.get("id"), "type": "function", "function": function}


OPENINFERENCE = OpenInferenceFormat()
