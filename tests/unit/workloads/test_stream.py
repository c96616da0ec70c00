"""Streams read off the wire: however the server's bytes are cut and framed, the same outcome as a plain reading."""

import json
from array import array
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.outcome import RequestOutcome
from workloads.stream import StreamLog, read_outcome

texts = st.text(alphabet=st.sampled_from('aé漢🙂{}[]:," \\\n\r'), max_size=6)
usage = st.fixed_dictionaries({"prompt_tokens": st.integers(0, 9), "completion_tokens": st.integers(0, 40)})
choice = st.fixed_dictionaries(
    {
        "index": st.integers(0, 1),
        "delta": st.fixed_dictionaries({"content": texts}),
        "finish_reason": st.sampled_from([None, None, None, "stop"]),
    }
)
event = st.fixed_dictionaries(
    {"choices": st.lists(choice, max_size=2)},
    optional={"usage": usage | st.none(), "error": st.none() | st.just({"message": "boom"})},
)
noise = st.sampled_from([": ping", "event: x", "id: 7", "retry: 10"])
ends = st.sampled_from(["\n", "\r\n"])


def wire(events: list[Any], comments: list[str], end: str, *, done: bool, big: int) -> bytes:
    """A stream as servers write it: compact JSON on one data line, comments between, the logprobs of one event."""
    parts = []
    for number, each in enumerate(events):
        if number == 0 and big:
            each = {**each, "logprobs": "x" * big}  # noqa: PLW2901 - the first event is made large
        parts.append(f"data: {json.dumps(each, ensure_ascii=False)}{end}{end}")
        if number < len(comments):
            parts.append(f"{comments[number]}{end}{end}")
    return "".join([*parts, f"data: [DONE]{end}{end}" if done else ""]).encode()


def reference(events: list[dict[str, Any]], *, done: bool) -> tuple[Any, ...]:
    """Counts, text and verdict by the rules in the documentation, on the events as objects."""
    of_choice: dict[int, int] = {}
    totals: list[int] = []
    texts_of: dict[int, str] = {}
    carrying, final, finish, error, counted = 0, None, None, None, False
    for each in events:
        if each.get("error"):
            error = "stream_error"
            break
        stated = each.get("usage")
        for one in each["choices"]:
            texts_of[one["index"]] = texts_of.get(one["index"], "") + one["delta"]["content"]
            if one["index"] == 0 and one["finish_reason"]:
                finish = one["finish_reason"]
        if each["choices"] and stated:
            index, before = each["choices"][0]["index"], of_choice.get(each["choices"][0]["index"], 0)
            counted = True
            if stated["completion_tokens"] > before:
                of_choice[index] = stated["completion_tokens"]
                carrying += 1
                totals.append(sum(of_choice.values()))
        elif any(one["delta"]["content"] for one in each["choices"]):
            carrying += 1
            totals.append(carrying)
        elif stated and not each["choices"]:
            final = stated["completion_tokens"]
    if error is None and not done and finish is None:
        error = "stream_broken"
    tokens = (final or 0) if not totals else totals[-1] if final is None else final
    return carrying, tokens, "".join(texts_of[index] for index in sorted(texts_of)), finish, error, bool(counted)


def read(stream: bytes, cuts: list[int], *, chunked: bool, keep_text: bool) -> RequestOutcome:
    bounds = [0, *sorted(each % (len(stream) + 1) for each in cuts), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(bounds) if end > start]
    if chunked:
        pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces] + [b"0\r\n\r\n"]
    return noted(pieces, chunked=chunked, keep_text=keep_text)


def noted(reads: list[bytes], *, chunked: bool, keep_text: bool) -> RequestOutcome:
    log = StreamLog(scheduled_s=0.0, sent_s=0.0, end_s=1.0, keep_text=keep_text, chunked=chunked)
    log.reads, log.read_s = reads, array("d", [0.001 * (number + 1) for number in range(len(reads))])
    return read_outcome(log, "r", 0)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    st.lists(event, max_size=8),
    st.tuples(st.lists(noise, max_size=3), ends, st.booleans()),
    st.booleans(),
    st.lists(st.integers(0, 3000), max_size=10),
)
def test_any_stream_in_any_cut_gives_the_reference_outcome(
    events: list[Any], framing: tuple[list[str], str, bool], done: bool, cuts: list[int]
) -> None:
    comments, end, chunked = framing
    stream = wire(events, comments, end, done=done, big=0)
    got = read(stream, cuts, chunked=chunked, keep_text=True)
    carrying, tokens, text, finish, error, _ = reference(events, done=done)
    assert (len(got.chunk_s), got.completion_tokens, got.text, got.finish_reason, got.error) == (
        carrying,
        tokens,
        text,
        finish,
        error,
    )
    # Without text the quick way is taken; it must not differ in anything else.
    quick = read(stream, cuts, chunked=chunked, keep_text=False)
    assert (quick.chunk_s, quick.chunk_tokens, quick.completion_tokens, quick.prompt_tokens, quick.error) == (
        got.chunk_s,
        got.chunk_tokens,
        got.completion_tokens,
        got.prompt_tokens,
        got.error,
    )


plain = st.fixed_dictionaries(
    {
        "choices": st.tuples(
            st.fixed_dictionaries({"index": st.just(0), "delta": st.just({}), "finish_reason": st.none()})
        ),
        "usage": st.fixed_dictionaries({"prompt_tokens": st.just(5), "completion_tokens": st.integers(0, 100)}),
    }
)


awkward = st.sampled_from(
    [
        b'{"choices":[{"index":0,"finish_reason":null,"text":"\xff"}],"usage":{"completion_tokens":50}}',
        b'{"choices":[{"index":0,"finish_reason":null,"text":"\\ud800a"}],"usage":{"completion_tokens":51}}',
        b'{"choices":[{"index":0,"finish_reason":null}],"usage":{"completion_tokens":52.0}}',
        b'{"choices":[{"index":0,"finish_reason":null}],"usage":{"completion_tokens":-1}}',
        b'{"choices":[{"index":0,"finish_reason":null}],"usage":{"completion_tokens":true}}',
        b'{"choices":[{"index":0,"finish_reason":null}],"usage":{"completion_tokens":54},"error":null}',
        b'{"choices":[{"index":0,"finish_reason":null}],\ndata: "usage":{"completion_tokens":55}}',
        b'{"choices":[{"index":0,"finish_reason":null}],\r"usage":{"completion_tokens":56}}',
        b'{"choices":[{"index":0,"finish_reason":null}],"usage":{"completion_tokens":57},"x":' + b"[" * 2000 + b"}",
    ]
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(plain | plain | event | awkward, max_size=10),
    st.booleans(),
    st.lists(st.integers(0, 10_000), max_size=6),
    st.booleans(),
)
def test_one_event_a_chunk_is_read_the_same_the_quick_way_and_the_long_way(
    events: list[Any], done: bool, cuts: list[int], raw_unicode: bool
) -> None:
    data = [each if isinstance(each, bytes) else json.dumps(each, ensure_ascii=raw_unicode).encode() for each in events]
    lines = [b"data: %b\n\n" % each for each in data] + ([b"data: [DONE]\n\n"] if done else [])
    chunks = [b"%x\r\n%b\r\n" % (len(line), line) for line in lines] + [b"0\r\n\r\n"]
    stream = b"".join(chunks)
    # As many events in a read as it comes, cut anywhere; then one in each.
    bounds = [0, *sorted(each % (len(stream) + 1) for each in cuts), len(stream)]
    for reads in ([stream[start:end] for start, end in pairwise(bounds) if end > start], chunks):
        quick, long = (noted(list(reads), chunked=True, keep_text=keep) for keep in (False, True))
        for name in (
            "chunk_s",
            "chunk_tokens",
            "completion_tokens",
            "prompt_tokens",
            "finish_reason",
            "error",
            "chunk_tokens_estimated",
        ):
            assert getattr(quick, name) == getattr(long, name)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "usage", "index", "delta", "text", "finish_reason", "completion_tokens", "error", "content"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(json_values, max_size=4), st.booleans())
def test_json_of_any_shape_gives_one_verdict_and_never_an_exception(values: list[Any], keep_text: bool) -> None:
    stream = "".join(f"data: {json.dumps(value)}\n\n" for value in values).encode()
    got = read(stream, [], chunked=False, keep_text=keep_text)
    assert got.error is None or got.error in {"stream_broken", "stream_error"}
    assert got.completion_tokens >= 0


def test_a_megabyte_event_in_small_pieces_is_read_whole() -> None:
    event_ = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}
    stream = wire([event_], [], "\n", done=True, big=2**20)
    got = read(stream, list(range(0, len(stream), 1400)), chunked=True, keep_text=True)
    assert (got.text, got.error, got.completion_tokens) == ("a", None, 1)


def test_reads_that_were_digested_early_count_as_those_that_were_not() -> None:
    events = [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": None}], "usage": {"completion_tokens": n}}
        for n in range(9)
    ]
    pieces = [f"data: {json.dumps(each)}\n\n".encode() for each in events]
    log = StreamLog(sent_s=0.0, chunked=True)
    for number, piece in enumerate(pieces):
        log.reads.append(b"%x\r\n%b\r\n" % (len(piece), piece))
        log.read_s.append(float(number))
        if number % 3 == 0:
            log.digest(2)
    got = read_outcome(log, "r", 0)
    assert (list(got.chunk_s), list(got.chunk_tokens)) == ([float(n) for n in range(1, 9)], list(range(1, 9)))
