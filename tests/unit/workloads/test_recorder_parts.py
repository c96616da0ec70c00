"""The recorder's parts that need no network: tapes, frames, answers, files, options."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.cli import run
from workloads.errors import WorkloadFileError
from workloads.recorder import RecordError, RecordSettings, parse_listen, put_in_order
from workloads.recorder.answer import read_answer
from workloads.recorder.exchange import HEAD_BYTES, TAIL_BYTES, Facts, Frame, FrameDecoder, Tape, encode

USAGE = {"prompt_tokens": 5, "completion_tokens": 2}
EVENTS = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"index": 1, "delta": {"content": "你"}, "finish_reason": "length"}]},
    {"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "stop"}]},
    {"choices": [], "usage": USAGE},
]


def facts(**changes: Any) -> Facts:
    """Facts of a streamed answer."""
    return Facts(1, "/v1/chat/completions", 0.0, 1e9, status=200, content_type="text/event-stream", **changes)


def sse(end: str) -> bytes:
    return b"".join(f"data: {json.dumps(event, ensure_ascii=False)}{end}".encode() for event in EVENTS)


def taped(pieces: list[bytes]) -> Frame:
    """What the writer gets of an answer in these pieces, one a second."""
    tape = Tape()
    for number, piece in enumerate(pieces, start=1):
        tape.add(piece, float(number))
    (frame,) = FrameDecoder().feed(b"".join(encode(facts(), b"{}", tape)))
    return frame


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]


@given(st.lists(st.integers(0, 10_000), max_size=30), st.sampled_from(["\n\n", "\r\n\r\n"]))
def test_an_answer_says_the_same_however_its_bytes_were_cut(places: list[int], end: str) -> None:
    data = sse(end) + b"data: [DONE]\n\n"
    pieces = cut(data, places)
    answer = read_answer(taped(pieces))
    assert (answer.prompt_tokens, answer.completion_tokens, answer.finish_reason) == (5, 2, "stop")
    # The first token is there when the second event is whole: at its last line break, or the carriage return before.
    second_end = data.index(end.encode(), data.index(b'"length"')) + len(end)
    ends = [sum(map(len, pieces[: n + 1])) for n in range(len(pieces))]
    latest = next(n for n, at in enumerate(ends, start=1) if at >= second_end)
    earliest = next(n for n, at in enumerate(ends, start=1) if at >= second_end - 1)
    assert answer.ttft_s in (earliest, latest)


def test_of_a_very_long_answer_beginning_and_end_are_kept_and_no_more() -> None:
    filler = b"data: " + json.dumps({"choices": [{"delta": {"content": "x" * 60_000}}]}).encode() + b"\n\n"
    pieces = [sse("\n\n").partition(b"\n\n")[0] + b"\n\n", *[filler] * 300, sse("\n\n")]
    frame = taped(pieces)
    assert frame.facts.gap
    assert len(frame.head) + len(frame.tail) < HEAD_BYTES + TAIL_BYTES + 2 * len(filler)
    answer = read_answer(frame)
    assert (answer.ttft_s, answer.finish_reason, answer.completion_tokens) == (2.0, "stop", 2)


@given(
    st.lists(st.tuples(st.binary(max_size=50), st.binary(max_size=50)), max_size=5), st.lists(st.integers(0, 10_000))
)
def test_frames_survive_a_pipe_that_cuts_anywhere(exchanges: list[tuple[bytes, bytes]], places: list[int]) -> None:
    wire = b""
    for body, answer in exchanges:
        tape = Tape()
        tape.add(answer, 0.1)
        wire += b"".join(encode(facts(), body, tape))
    decoder = FrameDecoder()
    frames = [frame for piece in cut(wire, places) for frame in decoder.feed(piece)]
    assert [(frame.body, frame.head) for frame in frames] == exchanges


@given(times=st.lists(st.floats(0, 1e6), max_size=30))
@settings(max_examples=30)
def test_a_finished_recording_holds_the_same_records_by_arrival_from_zero(
    times: list[float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("order") / "f.jsonl"
    records: list[dict[str, Any]] = [
        {"timestamp_s": round(at_s, 6), "id": str(n), "body": {"prompt": "x" * n}} for n, at_s in enumerate(times)
    ]
    path.write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in records), encoding="utf-8")
    assert put_in_order(path, path) == len(records)
    ordered = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    by_arrival = sorted(records, key=lambda record: record["timestamp_s"])
    assert [(r["id"], r["body"]) for r in ordered] == [(r["id"], r["body"]) for r in by_arrival]
    first_s = by_arrival[0]["timestamp_s"] if by_arrival else 0
    expected = [r["timestamp_s"] - first_s for r in by_arrival]
    assert [r["timestamp_s"] for r in ordered] == pytest.approx(expected, abs=1e-6)
    assert [path] == list(path.parent.iterdir())


def test_a_file_of_another_making_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"body": {}}\n', encoding="utf-8")
    with pytest.raises(WorkloadFileError, match=r"own.jsonl:1 was not written by tune record"):
        put_in_order(path, path)
    assert path.read_text(encoding="utf-8") == '{"body": {}}\n'


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8001", ("127.0.0.1", 8001)),
        ("[::1]:80", ("::1", 80)),
        (":0", ("127.0.0.1", 0)),
        ("9", ("127.0.0.1", 9)),
    ],
)
def test_an_address_to_listen_on(text: str, address: tuple[str, int]) -> None:
    assert parse_listen(text) == address


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"upstream": "127.0.0.1:8000"}, "is no URL of a server"),
        ({"upstream": "ftp://host"}, "is no URL of a server"),
        ({"upstream": "http://host:99999"}, "is no URL of a server"),
        ({"upstream": "http://me:secret@host"}, "holds a user name"),
        ({"upstream": "http://host/v1/"}, "ends in /v1"),
        ({"redact": ("hash", "x")}, "stands alone"),
        ({"redact": ("(",)}, "is no regular expression"),
        ({"redact": ("x*",)}, "matches an empty text"),
        ({"session_header": "Authorization"}, "carries credentials"),
        ({"route_header": "a b"}, "is no name of a header"),
    ],
)
def test_an_option_that_cannot_be_is_one_sentence(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RecordError, match=complaint) as raised:
        RecordSettings.model_validate({"upstream": "http://host", "out": "f", **changes})
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "--upstream is missing"),
        (["--upstream", "http://h", "--listen", "nowhere"], "--listen 'nowhere' is no address"),
        (["--upstream", "http://h", "--rotate-mb", "0"], "--rotate-mb"),
        (["--finish", "gone.jsonl"], "--finish gone.jsonl: No such file"),
        pytest.param(
            ["--upstream", "http://h", "--out", "{existing}"],
            "exists and is never written over",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_recording_that_cannot_start_says_why(
    words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    existing = tmp_path / "there.jsonl"
    existing.write_text("kept", encoding="utf-8")
    assert run(["record", *(word.replace("{existing}", str(existing)) for word in words)]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert complaint in sentence
    assert existing.read_text(encoding="utf-8") == "kept"
