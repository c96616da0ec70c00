"""Tokens, texts and verdicts read off the bytes of a stream."""

import json
from typing import Any

import pytest

from workloads.outcome import RequestOutcome
from workloads.stream import StreamLog, read_outcome


def chunk(
    text: str = "", *, tokens: int | None = None, index: int = 0, finish: str | None = None, **delta: Any
) -> dict[str, Any]:
    event: dict[str, Any] = {
        "choices": [{"index": index, "delta": {"content": text, **delta}, "finish_reason": finish}],
    }
    if tokens is not None:
        event["usage"] = {"prompt_tokens": 7, "completion_tokens": tokens}
    return event


def final(tokens: int, **details: Any) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": tokens, **details}}


def outcome(*events: Any, times_s: list[float] | None = None, log: StreamLog | None = None) -> RequestOutcome:
    """Read a stream whose events came one a read, one second apart from second 1 on; sent at second 0."""
    log = log or StreamLog(scheduled_s=0.0, sent_s=0.0)
    log.keep_text = True
    for position, event in enumerate(events):
        data = event if isinstance(event, str) else json.dumps(event)
        log.read_s.append(times_s[position] if times_s else 1.0 + position)
        log.reads.append(f"data: {data}\n\n".encode())
    log.end_s = log.read_s[-1] if log.read_s else 9.0
    return read_outcome(log, "r1", 3)


def test_a_stream_with_running_counts() -> None:
    got = outcome(
        chunk(tokens=0, role="assistant"),
        chunk("a", tokens=1),
        chunk("bcd", tokens=4),
        chunk("e", tokens=5, finish="stop"),
        final(5, prompt_tokens_details={"cached_tokens": 6}),
        "[DONE]",
    )
    assert (
        list(got.chunk_s),
        list(got.chunk_tokens),
        got.chunk_tokens_estimated,
    ) == ([2.0, 3.0, 4.0], [1, 4, 5], False)
    assert (
        got.prompt_tokens,
        got.completion_tokens,
        got.cached_tokens,
        got.finish_reason,
        got.error,
    ) == (7, 5, 6, "stop", None)
    assert (got.text, got.first_token_s, got.ttft_s, got.tpot_s, got.e2e_s) == ("abcde", 2.0, 2.0, 0.5, 6.0)
    assert (got.request_id, got.block) == ("r1", 3)


def test_the_role_event_and_the_usage_event_carry_no_tokens() -> None:
    got = outcome(chunk(tokens=0, role="assistant"), chunk("a", tokens=1, finish="stop"), final(1), "[DONE]")
    assert list(got.chunk_s) == [2.0]


def test_an_event_with_tokens_but_without_text_counts() -> None:
    # Half of a multi-byte character: the tokeniser holds the text back, the token was generated all the same.
    got = outcome(chunk("", tokens=1), chunk("é", tokens=2, finish="stop"), final(2), "[DONE]")
    assert (list(got.chunk_s), got.ttft_s) == ([1.0, 2.0], 1.0)


def test_several_events_of_one_read_share_its_time() -> None:
    log = StreamLog(scheduled_s=0.0, sent_s=0.0, end_s=5.0)
    log.read_s.append(5.0)
    log.reads.append(
        b"".join(b"data: %s\n\n" % json.dumps(chunk("a", tokens=n)).encode() for n in (1, 2)) + b"data: [DONE]\n\n"
    )
    got = read_outcome(log, "r1", 0)
    assert (list(got.chunk_s), list(got.chunk_tokens), got.text) == ([5.0, 5.0], [1, 2], None)


def test_without_running_counts_tokens_are_spread_evenly_and_said_to_be() -> None:
    got = outcome(chunk("a"), chunk("b"), chunk("c"), chunk("d", finish="length"), final(10), "[DONE]")
    assert (list(got.chunk_tokens), got.completion_tokens, got.chunk_tokens_estimated) == ([2, 5, 8, 10], 10, True)
    assert pytest.approx(3 / 9) == got.tpot_s


def test_without_any_counts_each_event_is_one_token() -> None:
    got = outcome(chunk("a"), chunk("b", finish="stop"), "[DONE]")
    assert (
        list(got.chunk_tokens),
        got.completion_tokens,
        got.chunk_tokens_estimated,
        got.prompt_tokens,
    ) == ([1, 2], 2, True, None)


def test_without_final_usage_the_last_running_count_stands() -> None:
    got = outcome(chunk("a", tokens=1), chunk("bcd", tokens=4, finish="stop"), "[DONE]")
    assert (got.completion_tokens, got.prompt_tokens, got.chunk_tokens_estimated) == (4, 7, False)


def test_tokens_without_an_event_of_their_own_belong_to_the_last_event() -> None:
    got = outcome(chunk("a", tokens=1), chunk("b", tokens=2), final(5), "[DONE]")
    assert list(got.chunk_tokens) == [1, 5]


def test_running_counts_of_several_choices_add_up() -> None:
    got = outcome(
        chunk("a", tokens=1, index=0),
        chunk("x", tokens=1, index=1),
        chunk("bc", tokens=3, index=0, finish="stop"),
        chunk("y", tokens=2, index=1, finish="length"),
        final(5),
        "[DONE]",
    )
    assert (list(got.chunk_tokens), got.text, got.finish_reason) == ([1, 2, 4, 5], "abcxy", "stop")


def test_running_counts_beyond_the_final_one_are_cut_to_it() -> None:
    # A server that counts over all choices in every event.
    got = outcome(chunk("a", tokens=1), chunk("x", tokens=2, index=1), chunk("b", tokens=3), final(3), "[DONE]")
    assert list(got.chunk_tokens) == [1, 3, 3]


def test_completions_have_their_text_in_the_choice() -> None:
    got = outcome(
        {"choices": [{"index": 0, "text": "ab", "finish_reason": None}], "usage": {"completion_tokens": 2}},
        {"choices": [{"index": 0, "text": "", "finish_reason": "length"}], "usage": {"completion_tokens": 2}},
        "[DONE]",
    )
    assert (got.text, list(got.chunk_s), got.finish_reason) == ("ab", [1.0], "length")


def test_reasoning_and_tool_calls_are_output_too() -> None:
    call = {"index": 0, "function": {"name": "f", "arguments": '{"a":'}}
    got = outcome(
        chunk(reasoning="think", reasoning_content="think"),
        chunk(content=None, tool_calls=[call]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}], finish="tool_calls"),
        "[DONE]",
    )
    assert (got.text, len(got.chunk_s), got.finish_reason) == ('thinkf{"a":1}', 3, "tool_calls")


def test_one_token_has_no_time_per_token() -> None:
    assert None is outcome(chunk("a", tokens=1, finish="length"), final(1), "[DONE]").tpot_s


def test_an_empty_generation_has_no_first_token() -> None:
    got = outcome(chunk("", tokens=0, finish="stop"), final(0), "[DONE]")
    assert (
        got.ttft_s,
        got.tpot_s,
        got.completion_tokens,
        got.error,
        got.chunk_tokens_estimated,
    ) == (None, None, 0, None, False)


def test_a_request_never_sent_has_no_times() -> None:
    got = outcome(log=StreamLog(scheduled_s=1.0, error="abandoned"))
    assert (got.ttft_s, got.e2e_s, got.e2e_scheduled_s, got.error) == (None, None, 8.0, "abandoned")


@pytest.mark.parametrize(
    ("events", "error", "detail"),
    [
        ([chunk("a", tokens=1)], "stream_broken", "without [DONE] and without a finish_reason"),
        ([], "stream_broken", "without [DONE]"),
        ([chunk("a"), {"error": {"message": "boom", "code": 500}}, "[DONE]"], "stream_error", "boom"),
        ([chunk("a"), {"error": "plain"}], "stream_error", "plain"),
        ([chunk("a"), "{broken", "[DONE]"], "stream_broken", "not JSON"),
        ([chunk("a"), "7", "[DONE]"], "stream_broken", "not shaped"),
        ([{"choices": [None]}], "stream_broken", "not shaped"),
        ([{"choices": {"a": 1}}], "stream_broken", "not shaped"),
        ([{"choices": [{"index": 0, "delta": "x"}]}], "stream_broken", "not shaped"),
        ([{"choices": [], "usage": "x"}], "stream_broken", "not shaped"),
        (
            [{"choices": [{"index": 0, "text": "a"}], "usage": {"completion_tokens": "1"}}],
            "stream_broken",
            "not shaped",
        ),
    ],
)
def test_a_broken_stream_has_one_class_and_a_reason(events: list[Any], error: str, detail: str) -> None:
    got = outcome(*events)
    assert error == got.error
    assert detail in (got.error_detail or "")


def test_a_stream_without_done_but_with_a_finish_reason_is_whole() -> None:
    assert None is outcome(chunk("a", tokens=1, finish="stop")).error


def test_done_without_its_empty_line_is_done() -> None:
    log = StreamLog(scheduled_s=0.0, sent_s=0.0)
    log.read_s.append(1.0)
    log.reads.append(b'data: {"choices":[{"index":0,"text":"a"}]}\n\ndata: [DONE]')
    assert None is read_outcome(log, "r1", 0).error


@pytest.mark.parametrize("error", ["timeout", "connection", "abandoned", "stream_broken", "http_503"])
def test_a_failure_of_the_transport_stands_unless_the_stream_was_done(error: str) -> None:
    unfinished = outcome(chunk("a", tokens=1), log=StreamLog(scheduled_s=0.0, sent_s=0.0, error=error))
    done = outcome(chunk("a", tokens=1), "[DONE]", log=StreamLog(scheduled_s=0.0, sent_s=0.0, error=error))
    assert (error, None) == (unfinished.error, done.error)
    assert unfinished.completion_tokens == 1


def test_an_error_text_is_cut() -> None:
    assert len(outcome({"error": {"message": "x" * 1000}}).error_detail or "") == 300


def test_events_after_done_do_not_count() -> None:
    assert outcome(chunk("a", tokens=1, finish="stop"), "[DONE]", chunk("b", tokens=2)).completion_tokens == 1
