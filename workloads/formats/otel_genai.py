"""OpenTelemetry spans by the GenAI conventions, also those of vLLM itself, which have lengths and times but no text.

Spans are written when they end, so they are not in order of arrival.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from workloads.formats.building import body_request, textless_request
from workloads.formats.clock import RecordedTimes
from workloads.formats.fields import as_seconds, as_text, as_tokens, present, structure
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.formats.genai_messages import openai_messages, openai_tools
from workloads.formats.spans import Span, has_attribute, raw_spans, read_span, recorded_times
from workloads.request import Recorded, Request

GENERATIONS: Final = {"chat", "text_completion", "generate_content"}
CAPTURE: Final = "instrumentations keep prompts only with OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true"
_SAMPLING: Final = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop_sequences": "stop",
    "choice.count": "n",
    "n": "n",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}


class OTelGenAIFormat:
    """Reads spans of model calls."""

    name = "otel_genai"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = False

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Attributes of the GenAI conventions."""
        return any(has_attribute(record, "gen_ai.") for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
        """Nanoseconds since 1970, or dates."""
        return recorded_times(records)

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> list[Request]:
        """See `Format.requests`."""
        requests = []
        for number, raw in enumerate(raw_spans(record), start=1):
            with reading.one_of_several(line):
                span = read_span(raw)
                if _is_generation(span):
                    request_id = span.id or f"line-{line}/{number}"
                    requests.append(_request(span, request_id, line, reading))
                else:
                    reading.unhonoured["span that is no model call"] += 1
        return requests


def _is_generation(span: Span) -> bool:
    operation = span.attributes.get("gen_ai.operation.name")
    if operation is not None:
        return operation in GENERATIONS
    return any(name.startswith(("gen_ai.request.", "gen_ai.usage.")) for name in span.attributes)


def _request(span: Span, request_id: str, line: int, reading: Reading) -> Request:
    attributes = span.attributes
    offset_s = None if span.start is None else reading.clock.offset_s(span.start)
    session = as_text(attributes.get("gen_ai.conversation.id"))
    answered = _recorded(span, reading)
    raw = structure(attributes.get("gen_ai.input.messages"), "gen_ai.input.messages")
    if not raw:
        return textless_request(
            reading, CAPTURE, request_id=request_id, line=line, recorded=answered, offset_s=offset_s, session=session
        )
    system = structure(attributes.get("gen_ai.system_instructions"), "gen_ai.system_instructions")
    body: dict[str, Any] = {"messages": openai_messages(raw, system, reading)}
    if model := present(attributes, "gen_ai.request.model"):
        body = {"model": model, **body}
    tools = structure(attributes.get("gen_ai.tool.definitions"), "gen_ai.tool.definitions")
    if tools:
        body["tools"] = openai_tools(tools, reading)
    for name, field in _SAMPLING.items():
        value = attributes.get(f"gen_ai.request.{name}")
        if value is not None:
            body[field] = value
    if attributes.get("gen_ai.output.type") == "json":
        reading.unhonoured["output type json without its schema"] += 1
    return body_request(
        body,
        reading,
        request_id=request_id,
        line=line,
        offset_s=offset_s,
        session=session,
        route=as_text(attributes.get("gen_ai.agent.name")),
        recorded=answered,
    )


def _recorded(span: Span, reading: Reading) -> Recorded:
    found = span.attributes
    reasons = structure(found.get("gen_ai.response.finish_reasons"), "gen_ai.response.finish_reasons")
    first = reasons[0] if isinstance(reasons, list) and reasons else reasons
    return Recorded(
        prompt_tokens=as_tokens(present(found, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")),
        completion_tokens=as_tokens(present(found, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")),
        cached_tokens=as_tokens(found.get("gen_ai.usage.cache_read.input_tokens")),
        ttft_s=as_seconds(present(found, "gen_ai.response.time_to_first_chunk", "gen_ai.latency.time_to_first_token")),
        duration_s=span.duration_s(reading.clock),
        finish_reason=as_text(first),
    )


OTEL_GENAI = OTelGenAIFormat()
