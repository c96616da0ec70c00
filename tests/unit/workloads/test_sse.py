"""The event splitter: any cut of the bytes gives the events of an independent whole-text reading."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.sse import EventTooLargeError, SseParser


def reference(stream: bytes) -> list[bytes]:
    """Events of a complete stream, written from the standard's text and without any increments."""
    text = stream.decode().replace("\r\n", "\n").replace("\r", "\n")
    events: list[bytes] = []
    data: list[str] = []
    for line in text.split("\n")[:-1]:
        if line == "":
            if data:
                events.append("\n".join(data).encode())
            data = []
        elif line == "data":
            data.append("")
        elif line.startswith("data:"):
            value = line[len("data:") :]
            data.append(value.removeprefix(" "))
    return events


def pieces_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]


text = st.text(alphabet=st.sampled_from('aé漢🙂:{" '), max_size=8)
line = st.one_of(
    st.just(""),
    text.map("data: {}".format),
    text.map("data:{}".format),
    text.map(": {}".format),
    text.map("event: {}".format),
    st.sampled_from(["data", "id: 7", "retry: 10", "database: x", "data : x"]),
)
stream = st.lists(st.tuples(line, st.sampled_from(["\n", "\r\n", "\r"])), max_size=24).map(
    lambda lines: "".join(part + end for part, end in lines).encode()
)


@settings(max_examples=200, deadline=None)
@given(stream, st.lists(st.integers(0, 500), max_size=12))
def test_any_cut_gives_the_reference_events(stream: bytes, cuts: list[int]) -> None:
    parser = SseParser()
    events = [event for piece in pieces_of(stream, cuts) for event in parser.feed(piece)]
    assert reference(stream) == events


@settings(max_examples=100, deadline=None)
@given(stream)
def test_single_bytes_give_the_reference_events(stream: bytes) -> None:
    parser = SseParser()
    events = [event for position in range(len(stream)) for event in parser.feed(stream[position : position + 1])]
    assert reference(stream) == events


def test_an_event_is_given_by_the_read_that_ends_it() -> None:
    parser = SseParser()
    assert parser.feed(b"data: one\n") == []
    assert parser.feed(b"\ndata: two\n\ndata: th") == [b"one", b"two"]
    assert parser.feed(b"ree\n\n") == [b"three"]


def test_a_character_cut_in_two_is_whole_again() -> None:
    parser = SseParser()
    encoded = "data: 漢\n\n".encode()
    assert ["漢".encode()] == parser.feed(encoded[:7]) + parser.feed(encoded[7:])


def test_a_crlf_cut_in_two_ends_one_line_only() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r") == []
    assert parser.feed(b"\ndata: b\r") + parser.feed(b"\n\r") + parser.feed(b"\n") == [b"a\nb"]


def test_a_last_event_without_its_empty_line_is_given_on_close() -> None:
    parser = SseParser()
    assert parser.feed(b"data: [DONE]\n") == []
    assert parser.close() == b"[DONE]"
    assert None is parser.close()


def test_a_last_line_without_its_end_is_given_on_close() -> None:
    parser = SseParser()
    parser.feed(b"data: [DONE]")
    assert parser.close() == b"[DONE]"


def test_nothing_is_left_after_whole_events() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\n\n") == [b"a"]
    assert None is parser.close()


@pytest.mark.parametrize(
    "piece",
    [b"x" * 10, b"data: xxxx\n"],
    ids=["one line that does not end", "lines of an event that does not end"],
)
def test_an_event_that_does_not_end_is_refused(piece: bytes) -> None:
    parser = SseParser(max_event_bytes=35)
    for _ in range(3):
        parser.feed(piece)
    with pytest.raises(EventTooLargeError, match="35 bytes"):
        parser.feed(piece)


def test_the_limit_is_on_one_event_not_on_the_stream() -> None:
    parser = SseParser(max_event_bytes=35)
    events = [event for _ in range(100) for event in parser.feed(b"data: " + b"x" * 20 + b"\n") + parser.feed(b"\n")]
    assert events == [b"x" * 20] * 100


def test_a_megabyte_event_in_small_pieces_arrives_whole() -> None:
    parser = SseParser()
    event = b"data: " + b"y" * 2**20 + b"\n\n"
    events = [e for start in range(0, len(event), 4096) for e in parser.feed(event[start : start + 4096])]
    assert events == [b"y" * 2**20]
