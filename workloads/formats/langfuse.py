"""Langfuse observations, as its API, its SDK and its exports write them: generations with input and usage.

Exports are mostly newest first. Names are in camel case in the API and with underscores in exports to object stores.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from workloads.errors import LineError
from workloads.formats.building import body_request, textless_request
from workloads.formats.clock import Clock, RecordedTimes
from workloads.formats.fields import as_seconds, as_text, as_tokens, number_of, present, shown, structure
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.request import Recorded, Request

KEEP_INPUT: Final = "let the SDK keep the input of generations (no capture_input=False, no mask)"
_NUMERIC: Final = {
    "frequency_penalty",
    "max_completion_tokens",
    "max_tokens",
    "min_p",
    "n",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "temperature",
    "top_k",
    "top_p",
}
_BODY_FIELDS: Final = ("messages", "prompt")


class LangfuseFormat:
    """Reads observations of type GENERATION."""

    name = "langfuse"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = False

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """A trace's id and a type that Langfuse knows."""
        return any(
            present(each, "traceId", "trace_id") is not None
            and present(each, "type") in {"GENERATION", "SPAN", "EVENT"}
            and present(each, "startTime", "start_time") is not None
            for record in records
            for each in _observations(record)
            if isinstance(each, dict)
        )

    def times(self, records: Sequence[Mapping[str, Any]]) -> RecordedTimes:
        """Dates."""
        found = [each for record in records for each in _observations(record) if isinstance(each, dict)]
        return RecordedTimes("startTime", [present(each, "startTime", "start_time") for each in found])

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> list[Request]:
        """See `Format.requests`."""
        requests = []
        for observation in _observations(record):
            with reading.one_of_several(line):
                if not isinstance(observation, dict):
                    raise LineError(f"an observation is {shown(observation)}; it must be an object")
                kind = present(observation, "type")
                if kind == "GENERATION":
                    requests.append(_request(observation, line, reading))
                else:
                    reading.unhonoured[f'observation of type "{kind}"'] += 1
        return requests


def _observations(record: Mapping[str, Any]) -> Iterator[Any]:
    """The record itself, or those of a page of the API's list."""
    page = record.get("data")
    if isinstance(page, list) and "type" not in record:
        yield from page
    else:
        yield record


def _request(observation: Mapping[str, Any], line: int, reading: Reading) -> Request:
    request_id = as_text(observation.get("id"))
    if request_id is None:
        raise LineError(f'"id" is {shown(observation.get("id"))}; it must be a text and not empty')
    offset_s = reading.clock.offset_s(present(observation, "startTime", "start_time"))
    session = as_text(present(observation, "sessionId", "session_id"))
    answered = _recorded(observation, reading.clock)
    given = structure(observation.get("input"), "input")
    if not given:
        return textless_request(
            reading, KEEP_INPUT, request_id=request_id, line=line, recorded=answered, offset_s=offset_s, session=session
        )
    names = ("modelParameters", "model_parameters")
    sampling = structure(present(observation, *names), "modelParameters") or {}
    if not isinstance(sampling, dict):
        raise LineError(f'"modelParameters" is {shown(sampling)}; it must be an object of sampling fields')
    model = present(observation, "model", "provided_model_name")
    return body_request(
        {**({"model": model} if model else {}), **_input(given), **_numbers(sampling)},
        reading,
        request_id=request_id,
        line=line,
        offset_s=offset_s,
        session=session,
        route=as_text(present(observation, "traceName", "trace_name", "name")),
        recorded=answered,
    )


def _input(given: Any) -> dict[str, Any]:
    """A body's messages (and tools) from what a generation was given."""
    if isinstance(given, str):
        return {"messages": [{"role": "user", "content": given}]}
    if isinstance(given, list):
        return {"messages": given}
    if isinstance(given, dict) and any(name in given for name in _BODY_FIELDS):
        return given
    raise LineError(f'"input" is {shown(given)}; it must be a text, a list of messages or an object with messages')


def _numbers(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling fields; some of Langfuse's SDKs write numbers as texts, which no server takes."""
    return {name: _number(value) if name in _NUMERIC else value for name, value in sampling.items()}


def _number(value: Any) -> Any:
    found = number_of(value) if isinstance(value, str) else None
    return value if found is None else found


def _recorded(observation: Mapping[str, Any], clock: Clock) -> Recorded:
    usage = structure(present(observation, "usageDetails", "usage_details", "usage"), "usageDetails") or {}
    duration_s = as_seconds(present(observation, "latency"))
    start, end = present(observation, "startTime", "start_time"), present(observation, "endTime", "end_time")
    if end is not None:
        # From the two times, because latency is in milliseconds in some versions and in seconds in others.
        length_s = (clock.ns(end) - clock.ns(start)) / 1e9
        duration_s = length_s if length_s >= 0 else None
    return Recorded(
        prompt_tokens=as_tokens(present(usage, "input", "promptTokens", "prompt_tokens")),
        completion_tokens=as_tokens(present(usage, "output", "completionTokens", "completion_tokens")),
        cached_tokens=as_tokens(present(usage, "input_cached_tokens", "cache_read_input_tokens")),
        ttft_s=_first_token_s(observation, start, clock),
        duration_s=duration_s,
    )


def _first_token_s(observation: Mapping[str, Any], start: Any, clock: Clock) -> float | None:
    first = present(observation, "completionStartTime", "completion_start_time")
    if first is None:
        return None
    length_s = (clock.ns(first) - clock.ns(start)) / 1e9
    return length_s if length_s >= 0 else None


LANGFUSE = LangfuseFormat()
