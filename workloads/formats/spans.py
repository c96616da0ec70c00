"""Spans as OpenTelemetry's exporters write them: in batches of OTLP, one a line, or listed in a trace.

What the attributes mean is said by `otel_genai.py` and `openinference.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workloads.errors import LineError
from workloads.formats.clock import Clock, RecordedTimes
from workloads.formats.fields import present, shown, structure

_START = ("startTimeUnixNano", "start_time", "startTime", "start_time_unix_nano")
_END = ("endTimeUnixNano", "end_time", "endTime", "end_time_unix_nano")
_ID = ("spanId", "span_id", "context.span_id")


@dataclass(frozen=True, slots=True)
class Span:
    """A span, whoever wrote it.

    Attributes:
        id: Of the span; None if it has none.
        attributes: By name; values are texts, numbers, lists or objects.
        start: As it was written.
        end: As it was written.
    """

    id: str | None
    attributes: Mapping[str, Any]
    start: Any
    end: Any

    def duration_s(self, clock: Clock) -> float | None:
        """From start to end; None if that is not known."""
        if self.end is None or self.start is None:
            return None
        try:
            length_s = (clock.ns(self.end) - clock.ns(self.start)) / 1e9
        except LineError:
            # The end only tells what was measured; without it the request is as good.
            return None
        return length_s if length_s >= 0 else None


def read_span(raw: Any) -> Span:
    """A span, whoever wrote it.

    Raises:
        LineError: if it is none, or its attributes cannot be read.
    """
    if not isinstance(raw, dict):
        raise LineError(f"a span is {shown(raw)}; it must be an object with attributes")
    if "attributes" not in raw:
        raise LineError('a span has no "attributes"; export spans with their attributes')
    context = raw.get("context")
    names = context if isinstance(context, dict) else raw
    found = present(names, *_ID) or present(raw, *_ID)
    return Span(
        None if found is None else str(found),
        _attributes(raw["attributes"]),
        present(raw, *_START),
        present(raw, *_END),
    )


def raw_spans(record: Mapping[str, Any]) -> Iterator[Any]:
    """All spans of a record as they were written; what stands in place of some is given as one, to be refused as one.

    Raises:
        LineError: if the record is no span and holds none.
    """
    batches = record.get("resourceSpans")
    if isinstance(batches, list):
        for scope in _below(batches, "scopeSpans", "instrumentationLibrarySpans"):
            yield from _below([scope], "spans") if isinstance(scope, dict) else [scope]
    elif isinstance(record.get("spans"), list):
        yield from record["spans"]
    elif "attributes" in record:
        yield record
    else:
        raise LineError("it is no span: it has none of attributes, spans and resourceSpans")


def _below(nodes: list[Any], *names: str) -> Iterator[Any]:
    """What is listed in these objects under the first of these names that they have; what is no list as it is."""
    for node in nodes:
        found = present(node, *names) if isinstance(node, dict) else node
        if isinstance(found, list):
            yield from found
        elif found is not None or node is None:
            yield found


def recorded_times(records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
    """When the spans of these records began."""
    values = []
    for record in records:
        values += [span.start for span in _good_spans(record) if span.start is not None]
    return RecordedTimes("start time of a span", values)


def has_attribute(record: Mapping[str, Any], prefix: str) -> bool:
    """Whether any span of a record has an attribute with a name that begins so."""
    return any(name.startswith(prefix) for span in _good_spans(record) for name in span.attributes)


def _good_spans(record: Mapping[str, Any]) -> Iterator[Span]:
    try:
        for raw in raw_spans(record):
            try:
                yield read_span(raw)
            except LineError:
                # Reading the record will say so.
                continue
    except LineError:
        # So it will here.
        return


def _attributes(raw: Any) -> Mapping[str, Any]:
    raw = structure(raw, "attributes")
    if isinstance(raw, dict):
        return raw
    if isinstance(raw, list) and all(isinstance(each, dict) and "key" in each for each in raw):
        return {each["key"]: _value(each.get("value")) for each in raw}
    raise LineError('"attributes" is neither an object nor a list of keys and values')


def _value(raw: Any) -> Any:
    """An OTLP value without the name of its type around it."""
    if not isinstance(raw, dict) or len(raw) != 1:
        return raw
    ((kind, value),) = raw.items()
    if kind == "intValue":
        return int(value)
    if kind == "arrayValue":
        return [_value(each) for each in value.get("values") or ()]
    if kind == "kvlistValue":
        return {each["key"]: _value(each.get("value")) for each in value.get("values") or ()}
    return value
