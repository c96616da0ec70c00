"""Reading files: what is accepted, and one clear sentence for everything that is not."""

import dataclasses
import gzip
import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workloads import RejectedLine, Request, WorkloadFileError, WorkloadFormatError, read_workload, stream_requests
from workloads.read import SNIFFED_RECORDS

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}


def write(folder: Path, *lines: object) -> Path:
    path = folder / "api_traffic.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def native(**fields: Any) -> dict[str, Any]:
    return {"body": CHAT, **fields}


def reason_of(folder: Path, *lines: object) -> str:
    """The one rejection among lines that otherwise are fine."""
    workload = read_workload(write(folder, *lines), max_bad_share=0.5)
    assert len(workload.rejected) == 1
    return f"{workload.rejected[0].line}: {workload.rejected[0].reason}"


def test_a_native_file_is_read(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        native(id="a", timestamp_s=0, route="code", session="s", tags={"k": "v"}, recorded={"completion_tokens": 3}),
        native(timestamp_s=1.5, body={"prompt": "x"}),
    )
    workload = read_workload(path)
    assert ("api_traffic", path, "native", ()) == (workload.name, workload.path, workload.format, workload.rejected)
    assert f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}" == workload.digest
    first, second = workload.requests
    assert (
        first.id,
        first.offset_s,
        first.route,
        first.session,
        first.tags,
        first.line,
    ) == ("a", 0.0, "code", "s", {"k": "v"}, 1)
    assert first.recorded is not None
    assert first.recorded.completion_tokens == 3
    assert (
        second.id,
        second.offset_s,
        second.endpoint,
        second.body,
    ) == ("line-2", 1.5, "/v1/completions", {"prompt": "x"})
    assert workload.has_timestamps


def test_a_batch_file_is_told_by_its_content(tmp_path: Path) -> None:
    line = {"custom_id": "c1", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}
    workload = read_workload(write(tmp_path, line))
    assert (
        workload.format,
        [request.id for request in workload.requests],
        workload.has_timestamps,
    ) == ("openai_batch", ["c1"], False)


def test_empty_lines_a_byte_order_mark_and_windows_line_ends_are_no_errors(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(native()).encode() + b"\r\n\r\n  \n" + json.dumps(native()).encode())
    workload = read_workload(path)
    assert ([request.line for request in workload.requests], workload.rejected) == ([1, 4], ())


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(WorkloadFileError, match=r"nothing\.jsonl does not exist"):
        read_workload(tmp_path / "nothing.jsonl")


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(WorkloadFileError, match="is a directory"):
        read_workload(tmp_path)


def test_an_unreadable_file() -> None:
    # Opens, then fails on reading: works for root too, whom no permission stops.
    with pytest.raises(WorkloadFileError, match=r"/proc/self/mem cannot be read: Input/output error"):
        read_workload("/proc/self/mem")


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_an_empty_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "w.jsonl"
    path.write_bytes(content)
    with pytest.raises(WorkloadFileError, match="is empty"):
        read_workload(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x1f\x8b\x08\x00rest", "cannot be unpacked: Compressed file ended"),
        (b"PAR1rest", "is a parquet file"),
        (b"abc\x00def", "is binary"),
        (b"BZh91AY", "is a bzip2 file"),
    ],
)
def test_a_file_of_another_kind(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "w.jsonl"
    path.write_bytes(content)
    with pytest.raises(WorkloadFileError, match=reason):
        read_workload(path)


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    path.write_bytes('{"body": "é"}'.encode("latin-1"))
    with pytest.raises(WorkloadFormatError, match=r"w\.jsonl:1: it is not valid JSON"):
        read_workload(path)


def test_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(WorkloadFormatError, match='format "csv" is unknown; the known ones are native, openai_batch'):
        read_workload(write(tmp_path, native()), format="csv")


def test_a_format_that_is_not_recognised(tmp_path: Path) -> None:
    with pytest.raises(WorkloadFormatError, match="fields b, messages is in no known format"):
        read_workload(write(tmp_path, {"messages": [], "b": 1}))


def test_a_wrong_explicit_format(tmp_path: Path) -> None:
    with pytest.raises(
        WorkloadFormatError, match=r'(?s)1 of 1 lines are no usable openai_batch .*"custom_id" is missing'
    ):
        read_workload(write(tmp_path, native()), format="openai_batch")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"body": {"prompt": "x"', "not valid JSON: unexpected end of data at column"),
        ("[1]", "it is a JSON list, not an object"),
        (native(colour="red"), 'unknown field "colour"; known fields are id, timestamp_s,'),
        (native(recorded={"tokens": 1}), 'unknown field "recorded.tokens"; known fields are prompt_tokens,'),
        ({"id": "x"}, 'the required field "body" is missing'),
        (native(timestamp_s=-1), '"timestamp_s" is -1; input should be greater than or equal to 0'),
        (native(timestamp_s="0"), "\"timestamp_s\" is '0'; input should be a valid number"),
        (native(route=7), '"route" is 7; input should be a valid string'),
        (native(id=""), "\"id\" is ''; string should have at least 1 character"),
        (native(tags={"a": 1}), '"tags.a" is 1; input should be a valid string'),
        (native(body="x"), "\"body\" is 'x'; input should be a valid dictionary"),
        (native(body={"max_tokens": 3}), "has neither messages (chat) nor prompt (completions)"),
        (native(body={**CHAT, "prompt": "x"}), "has both messages and prompt"),
        (native(endpoint="/v1/embeddings"), 'endpoint is "/v1/embeddings"; it must be /v1/chat/completions or'),
        (native(endpoint="/v1/completions"), "the body has messages, which /v1/completions does not take"),
        (native(body={"messages": []}), '"messages" is []; it must be a list of at least one message'),
        (native(body={"messages": [{"content": "x"}]}), '"messages[0]" is no object with a "role"'),
        (native(body={"prompt": ""}), "\"prompt\" is ''; it must be a text"),
        (native(body={"prompt": [1, "a"]}), "\"prompt\" is [1, 'a']; it must be a text, or a list"),
        (native(body={**CHAT, "max_tokens": 0}), '"max_tokens" is 0; it must be an integer of at least 1'),
        (native(body={**CHAT, "max_tokens": True}), '"max_tokens" is True; it must be an integer'),
        (native(body={**CHAT, "max_completion_tokens": 1.5}), '"max_completion_tokens" is 1.5; it must be'),
        (native(body={**CHAT, "temperature": -0.1}), '"temperature" is -0.1; it must be a number of at least 0'),
        (native(body={**CHAT, "temperature": "hot"}), "\"temperature\" is 'hot'; it must be a number"),
        (native(body={**CHAT, "model": 3}), '"model" is 3; it must be a string'),
    ],
)
def test_a_bad_line_is_left_out_and_reported(tmp_path: Path, line: object, reason: str) -> None:
    said = reason_of(tmp_path, native(), native(), line, native())
    assert said.startswith("3: ")
    assert reason in said


@pytest.mark.parametrize(
    ("times_s", "reason"),
    [
        ((0, 2, 1, 3), "3: its timestamp of 1.0 s is before the 2.0 s of line 2; sort the file by time"),
        ((0, 1, None, 3), "3: it has no timestamp while line 1 has one; time all requests or none"),
        ((None, None, 1, None), "3: it has a timestamp while line 1 has none; time all requests or none"),
    ],
)
def test_timestamps_must_hold_together(tmp_path: Path, times_s: tuple[float | None, ...], reason: str) -> None:
    lines = [native() if time_s is None else native(timestamp_s=time_s) for time_s in times_s]
    assert reason == reason_of(tmp_path, *lines)


def test_an_id_used_twice(tmp_path: Path) -> None:
    assert (
        reason_of(tmp_path, native(id="a"), native(id="b"), native(id="a"))
        == '3: the id "a" is that of line 1; ids must differ'
    )


def test_good_lines_after_a_bad_one_are_compared_with_good_ones_only(tmp_path: Path) -> None:
    path = write(tmp_path, native(timestamp_s=1), native(timestamp_s=0), native(timestamp_s=1), native(timestamp_s=2))
    workload = read_workload(path, max_bad_share=0.5)
    assert (
        [request.line for request in workload.requests],
        [rejected.line for rejected in workload.rejected],
    ) == ([1, 3, 4], [2])


def test_bad_lines_up_to_the_share_are_counted_not_fatal(tmp_path: Path) -> None:
    workload = read_workload(write(tmp_path, *[native()] * 99, "7"))
    assert (99, (RejectedLine(100, "it is a JSON int, not an object"),)) == (
        len(workload.requests),
        workload.rejected,
    )


def test_too_many_bad_lines_stop_with_the_first_five(tmp_path: Path) -> None:
    path = write(tmp_path, *[native()] * 93, *["oops"] * 7)
    with pytest.raises(WorkloadFormatError) as caught:
        read_workload(path)
    said = str(caught.value)
    assert "7 of 100 lines are no usable native requests (allowed: 1.0%)" in said
    assert [f"{path}:{line}:" in said for line in range(94, 101)] == [True] * 5 + [False] * 2
    assert said.endswith("and 2 more")


def test_a_file_without_a_good_line_is_refused_whatever_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(WorkloadFormatError, match="1 of 1 lines"):
        read_workload(write(tmp_path, native(colour=1)), max_bad_share=1.0)


def test_prompts_do_not_spread_into_messages(tmp_path: Path) -> None:
    secret = "my password is hunter2 and " * 20
    said = reason_of(tmp_path, native(), native(body={"messages": secret}))
    assert len(said) < 150


PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}


@pytest.mark.parametrize("packer", PACKERS)
def test_a_packed_file_is_read_as_it_is_and_a_damaged_one_is_told(tmp_path: Path, packer: str) -> None:
    plain = write(tmp_path, *[native(id=f"r{number}", route=str(number**5)) for number in range(5000)])
    packed = tmp_path / "packed"
    packed.write_bytes(PACKERS[packer](plain.read_bytes()))
    assert read_workload(packed).requests == read_workload(plain).requests
    assert read_workload(packed).digest == f"sha256:{hashlib.sha256(packed.read_bytes()).hexdigest()}"
    packed.write_bytes(packed.read_bytes()[:-200])
    with pytest.raises(WorkloadFileError, match="cannot be unpacked"):
        read_workload(packed)


@pytest.mark.parametrize("indent", [None, 2])
def test_one_json_array_is_read_like_lines(tmp_path: Path, indent: int | None) -> None:
    records = [native(id=f"r{number}", body={"prompt": "]},{[" * number + "x"}) for number in range(300)]
    path = tmp_path / "array.json"
    path.write_text("\ufeff" + json.dumps(records, indent=indent))
    expected = [dataclasses.replace(request, line=0) for request in read_workload(write(tmp_path, *records)).requests]
    assert [dataclasses.replace(request, line=0) for request in read_workload(path).requests] == expected


@pytest.mark.parametrize(
    ("cut", "reason"), [('{"body": {"prompt"', "not valid JSON"), ("", "the JSON array does not end")]
)
def test_a_json_array_that_ends_early_is_a_bad_record(tmp_path: Path, cut: str, reason: str) -> None:
    path = tmp_path / "array.json"
    path.write_text('[\n{"body": {"prompt": "x"}},\n' + cut)
    workload = read_workload(path, max_bad_share=0.5)
    assert len(workload.requests) == 1
    assert reason in workload.rejected[0].reason


def test_a_stream_gives_requests_before_the_file_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    opened: list[Request] = []

    def consume() -> None:
        for request in stream_requests(path):
            opened.append(request)
            if len(opened) == SNIFFED_RECORDS:
                seen.set()

    seen = threading.Event()
    reader = threading.Thread(target=consume)
    reader.start()
    with path.open("wb") as pipe:
        line = json.dumps(native(body={"prompt": "x" * 200_000})).encode() + b"\n"
        pipe.write(line * (SNIFFED_RECORDS + 12))
        pipe.flush()
        assert seen.wait(30)
    reader.join(30)
    assert len(opened) == SNIFFED_RECORDS + 12


def test_requests_of_hashed_text_are_not_text_bearing(tmp_path: Path) -> None:
    path = write(tmp_path, native(), native(tags={"redacted": "hash"}))
    assert not read_workload(path).text_bearing
    assert read_workload(write(tmp_path, native(tags={"redacted": "pattern"}))).text_bearing
