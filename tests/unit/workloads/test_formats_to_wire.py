"""From the file to the wire: every field of a body that steers the engine arrives as it was recorded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from workloads import Request, WorkloadFormatError, read_workload
from workloads.wire import Overrides, wire_body

FILES = Path(__file__).parents[2] / "data" / "formats"

STEERING: dict[str, Any] = {
    "temperature": 0.30000000000000004,
    "top_p": 0.95,
    "top_k": 20,
    "min_p": 0.05,
    "presence_penalty": -1.5,
    "frequency_penalty": 0.25,
    "repetition_penalty": 1.05,
    "max_tokens": 77,
    "n": 2,
    "stop": ["\n", "é\u2028", "</s>"],
    "seed": 9007199254740993,
    "logprobs": True,
    "top_logprobs": 3,
    "logit_bias": {"50256": -100, "7": 0.5},
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "b": 1, "a": [2.50]}}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"z": None, "a": True}}},
    "chat_template_kwargs": {"enable_thinking": False},
    "ignore_eos": False,
    "some_new_field": {"kept": [None, 1e-07, ""]},
}
MESSAGES = [{"role": "user", "content": 'Grüße \U0001f600 "quoted"\\'}]
BODY = {"messages": MESSAGES, **STEERING}

Wrap = Callable[[dict[str, Any]], dict[str, Any]]
SPEND_LOG = {"request_id": "a", "call_type": "acompletion", "startTime": "2026-08-01T10:00:00Z"}
PAYLOAD = {"id": "a", "call_type": "acompletion", "startTime": 1785578400.5, "messages": MESSAGES}
LANGFUSE = {"id": "a", "traceId": "t", "type": "GENERATION", "startTime": "2026-08-01T10:00:00Z"}
WRAPPERS: dict[str, Wrap] = {
    "native": lambda body: {"body": body},
    "openai_batch": lambda body: {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body},
    "litellm_spend_logs": lambda body: {**SPEND_LOG, "proxy_server_request": orjson.dumps(body).decode()},
    "litellm_payload": lambda _: {**PAYLOAD, "model_parameters": STEERING},
    "langfuse": lambda _: {**LANGFUSE, "input": MESSAGES, "modelParameters": STEERING},
    "openinference": lambda _: {
        "context": {"span_id": "a"},
        "attributes": {
            "openinference.span.kind": "LLM",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": MESSAGES[0]["content"],
            "llm.invocation_parameters": orjson.dumps(STEERING).decode(),
        },
    },
    "aiperf_single_turn": lambda _: {"text": MESSAGES[0]["content"], "extra": STEERING},
    "aiperf_mooncake_trace": lambda body: {"payload": body, "timestamp": 0},
    "raw_payload": lambda body: body,
}


def sent(request: Request) -> bytes:
    return wire_body(request, "served", Overrides())


@pytest.mark.parametrize("name", WRAPPERS)
def test_sampling_tools_and_formats_arrive_byte_for_byte(name: str, tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    path.write_bytes(orjson.dumps(WRAPPERS[name](BODY)))
    (request,) = read_workload(path, format=name).requests
    out = sent(request)
    assert [field for field, value in BODY.items() if orjson.dumps({field: value})[1:-1] not in out] == []


def test_json_over_several_lines_keeps_every_byte_too(tmp_path: Path) -> None:
    path = tmp_path / "traffic.json"
    path.write_bytes(orjson.dumps([{"body": BODY}], option=orjson.OPT_INDENT_2))
    (request,) = read_workload(path).requests
    assert [field for field, value in BODY.items() if orjson.dumps({field: value})[1:-1] not in sent(request)] == []


def test_turns_of_a_conversation_carry_its_history_and_form_a_session() -> None:
    first, second, other = read_workload(FILES / "sharegpt.json").requests
    assert [message["content"] for message in second.body["messages"]] == ["Name a river.", "The Elbe.", "And a lake?"]
    assert second.body["messages"][:1] == first.body["messages"]
    assert first.session == second.session != other.session


def test_a_batch_is_joined_with_its_output_by_id() -> None:
    responses = FILES / "openai_batch.responses.jsonl"
    first, second = read_workload(FILES / "openai_batch.jsonl", responses=responses).requests
    assert first.recorded is not None
    assert second.recorded is not None
    assert (first.recorded.completion_tokens, second.recorded.completion_tokens) == (4, 16)
    assert (second.recorded.finish_reason, second.recorded.status) == ("length", 200)


def test_a_batch_output_in_the_place_of_its_input_says_which_file_is_needed() -> None:
    with pytest.raises(WorkloadFormatError, match=r"read the batch's input, and this file with --responses"):
        read_workload(FILES / "openai_batch.responses.jsonl")
    with pytest.raises(WorkloadFormatError, match=r"it is no batch output.*; name the output file of the batch"):
        read_workload(FILES / "openai_batch.jsonl", responses=FILES / "native.jsonl")
    with pytest.raises(WorkloadFormatError, match="responses are joined with openai_batch only"):
        read_workload(FILES / "native.jsonl", responses=FILES / "openai_batch.responses.jsonl")


def test_what_cannot_be_honoured_is_counted_by_name() -> None:
    assert read_workload(FILES / "otel_genai.jsonl").unhonoured == {
        'model name "demo"': 2,
        'tool of type "web_search"': 2,
        "span that is no model call": 1,
    }


def test_the_log_of_an_engine_gives_sampling_and_structured_output() -> None:
    _, second, _ = read_workload(FILES / "vllm_log.log").requests
    assert second.body["prompt"] == "def add(a, b):\n"
    assert {name: second.body[name] for name in ("seed", "top_k", "stop", "structured_outputs")} == {
        "seed": 7,
        "top_k": 20,
        "stop": ["END"],
        "structured_outputs": {"json": {"type": "object"}},
    }


def test_spans_without_prompts_become_shapes_and_say_how_to_keep_prompts(tmp_path: Path) -> None:
    def span(number: int, **usage: int) -> dict[str, Any]:
        usages = {f"gen_ai.usage.{name}": value for name, value in usage.items()}
        return {"spanId": f"{number}", "startTimeUnixNano": f"{1785578400 + number}000000000", "attributes": usages}

    path = tmp_path / "spans.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps(span(n, prompt_tokens=30 + n, completion_tokens=5)) for n in range(3)))
    workload = read_workload(path)
    assert not workload.text_bearing
    assert [request.shape and request.shape.input_length for request in workload.requests] == [30, 31, 32]
    assert any("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" in note for note in workload.notes)
