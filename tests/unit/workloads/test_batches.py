"""Records that hold several requests: a bad one among them costs the others nothing, and counts as one."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from workloads import Workload, read_workload

SPAN = {"startTimeUnixNano": "1785578400000000000", "endTimeUnixNano": "1785578401000000000"}
OBSERVATION = {"traceId": "t", "type": "GENERATION", "startTime": "2026-08-01T10:00:00Z"}


def genai(name: str, messages: Any) -> dict[str, Any]:
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": orjson.dumps(messages).decode()}
    return {
        **SPAN,
        "spanId": name,
        "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in attributes.items()],
    }


def openinference(name: str, messages: Any) -> dict[str, Any]:
    role = messages[0]["role"]
    attributes = {"openinference.span.kind": "LLM", "llm.input_messages.0.message.role": role}
    return {**SPAN, "context": {"span_id": name}, "attributes": attributes}


def langfuse(name: str, messages: Any) -> dict[str, Any]:
    return {**OBSERVATION, "id": name, "input": messages}


def otlp(spans: list[Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


FORMATS = {
    "otel_genai": (genai, otlp),
    "openinference": (openinference, otlp),
    "langfuse": (langfuse, lambda observations: {"data": observations}),
}


def read(path: Path, *records: Any) -> Workload:
    path.write_bytes(b"\n".join(map(orjson.dumps, records)) + b"\n")
    return read_workload(path, max_bad_share=0.9)


@pytest.mark.parametrize("name", FORMATS)
def test_a_bad_request_is_rejected_alone(name: str, tmp_path: Path) -> None:
    one, batch = FORMATS[name]
    good, bad = [{"role": "user", "content": "hi"}], [{"role": 7}]
    batches = (batch([one("a", good), None, one("b", bad), one("c", good), one("d", bad)]), batch([one("e", good)]))
    workload = read(tmp_path / "w.jsonl", *batches)
    assert workload.format == name
    assert [request.id for request in workload.requests] == ["a", "c", "e"]
    assert [rejected.line for rejected in workload.rejected] == [1, 1, 1]


def test_a_batch_that_is_none_is_rejected_alone(tmp_path: Path) -> None:
    good = otlp([genai("a", [{"role": "user", "content": "hi"}])])
    odd = [None, {"scopeSpans": 5}, {"scopeSpans": [None, {"spans": 7}]}]
    workload = read(tmp_path / "w.jsonl", {"resourceSpans": [*odd, *good["resourceSpans"]]})
    assert [request.id for request in workload.requests] == ["a"]
    assert [rejected.line for rejected in workload.rejected] == [1, 1, 1, 1]
