"""The delimiting of responses: any cut of the bytes gives the payload of an independent whole reading."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.framing import MAX_CHUNK_SIZE_BYTES, ChunkedDecoder, FramingError, SizedBody, parse_head

payloads = st.lists(st.binary(min_size=1, max_size=40) | st.just(b"x" * 5000), max_size=8)
extensions = st.sampled_from([b"", b";a=b", b' ; q="1"'])
trailers = st.sampled_from([b"", b"a: b\r\n", b"a: b\r\nc: d\r\n"])


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(each % (len(data) + 1) for each in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


@settings(max_examples=200, deadline=None)
@given(
    payloads,
    st.tuples(extensions, st.sampled_from(["%x", "%X", "%03x"]), trailers),
    st.lists(st.integers(0, 6000), max_size=12),
    st.binary(max_size=5),
)
def test_any_cut_gives_the_payload_the_end_and_what_follows(
    parts: list[bytes], coding: tuple[bytes, str, bytes], cuts: list[int], after: bytes
) -> None:
    extension, form, trailer = coding
    coded = b"".join((form % len(part)).encode() + extension + b"\r\n" + part + b"\r\n" for part in parts)
    coded += b"0" + extension + b"\r\n" + trailer + b"\r\n"
    decoder = ChunkedDecoder()
    payload = b"".join(decoder.feed(piece) for piece in cut(coded, cuts))
    assert (payload, decoder.done, decoder.excess) == (b"".join(parts), True, b"")
    late = ChunkedDecoder()
    late.feed(coded + after)
    assert (late.done, late.excess) == (True, after)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_bytes_of_any_kind_are_decoded_or_refused_the_same_however_they_are_cut(data: bytes, cuts: list[int]) -> None:
    def read(pieces: list[bytes]) -> tuple[bytes, bool] | None:
        decoder, payload = ChunkedDecoder(), b""
        try:
            for piece in pieces:
                payload += decoder.feed(piece)
        except FramingError:
            return None
        return payload, decoder.done

    assert read([data]) == read(cut(data, cuts))


@pytest.mark.parametrize(
    ("coded", "reason"),
    [
        (b"xyz\r\n", "not a hexadecimal number"),
        (b"-1\r\n", "not a hexadecimal number"),
        (b"3\r\nabcdef\r\n", "longer than it says"),
        (b"1" * (MAX_CHUNK_SIZE_BYTES + 1), "longer than 1024 bytes"),
    ],
)
def test_what_is_not_chunked_is_refused(coded: bytes, reason: str) -> None:
    with pytest.raises(FramingError, match=reason):
        ChunkedDecoder().feed(coded)


@given(st.binary(max_size=40), st.integers(0, 40), st.lists(st.integers(0, 40), max_size=4))
def test_a_sized_body_ends_at_its_size(data: bytes, size: int, cuts: list[int]) -> None:
    body = SizedBody(size)
    payload = b"".join(body.feed(piece) for piece in cut(data, cuts) if not body.done)
    assert payload == data[:size]
    assert body.done == (len(data) >= size)


def test_a_body_without_a_size_never_ends_by_itself() -> None:
    body = SizedBody(None)
    assert (body.feed(b"abc"), body.feed(b"d"), body.done) == (b"abc", b"d", False)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: Text/Event-Stream", (200, True, None, True)),
        (b"HTTP/1.1 503 \r\nContent-Length: 7", (503, False, 7, True)),
        (b"HTTP/1.1 200\r\ncontent-length:7\r\nConnection: close", (200, False, 7, False)),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 7", (200, False, 7, False)),
        (b"HTTP/1.1 200 OK\r\nX: y", (200, False, None, False)),
        (b"HTTP/1.1 204 No Content", (204, False, 0, True)),
    ],
)
def test_a_head_says_how_the_body_is_delimited(head: bytes, expected: tuple[int, bool, int | None, bool]) -> None:
    parsed = parse_head(head)
    assert (parsed.status, parsed.chunked, parsed.content_length, parsed.keeps_alive) == expected


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"SSH-2.0-OpenSSH",
        b"HTTP/2 200",
        b"HTTP/1.1 abc",
        b"HTTP/1.1 200 OK\r\nno colon",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1",
    ],
)
def test_a_head_that_is_none_is_refused(head: bytes) -> None:
    with pytest.raises(FramingError):
        parse_head(head)
