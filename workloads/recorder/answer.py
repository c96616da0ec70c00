"""What an answer says of itself: usage, finish reason, time to first token. Reads bytes that were kept, changes none.

An answer that cannot be read (another encoding, cut off, no JSON) simply has fewer facts.
"""

import zlib
from collections.abc import Iterator
from typing import Any

import orjson

from workloads.recorder.exchange import Frame
from workloads.request import Recorded
from workloads.sse import EventTooLargeError, SseParser

_TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call")
_DEFLATED = ("gzip", "x-gzip", "deflate")
_MOST_INFLATED_BYTES = 64 * 2**20  # a compressed answer may be a thousand times its size
_EITHER_HEADER = 47  # zlib.decompressobj: 15 bits of window, gzip or zlib told from the header


def read_answer(frame: Frame) -> Recorded:
    """The facts of an answer."""
    facts = frame.facts
    pieces = list(_plain(frame))
    streamed = facts.content_type.lower().startswith("text/event-stream")
    ttft_s = _first_token_s(pieces) if streamed else None
    documents = _events(b"".join(data for data, _ in pieces) if not facts.gap else frame.tail) if streamed else []
    if not streamed and not facts.gap and "json" in facts.content_type.lower():
        documents = _documents([b"".join(data for data, _ in pieces)])
    usage, finish_reason = _last_words(documents)
    details = usage.get("prompt_tokens_details")
    return Recorded(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else None,
        ttft_s=None if ttft_s is None else round(ttft_s, 6),
        duration_s=round(facts.duration_s, 6),
        finish_reason=finish_reason,
        status=facts.status or None,
    )


def _plain(frame: Frame) -> Iterator[tuple[bytes, float | None]]:
    """The answer in pieces with the times that are known, decompressed as far as that is possible."""
    encoding = frame.facts.answer_encoding.strip().lower()
    if encoding in ("", "identity"):
        yield from _pieces(frame)
    elif encoding in _DEFLATED and not frame.facts.gap:
        inflate, left_bytes = zlib.decompressobj(_EITHER_HEADER), _MOST_INFLATED_BYTES
        try:
            for data, at_s in _pieces(frame):
                plain = inflate.decompress(data, left_bytes)
                left_bytes -= len(plain)
                yield plain, at_s
                if left_bytes <= 0:
                    return
        except zlib.error:
            return


def _pieces(frame: Frame) -> Iterator[tuple[bytes, float | None]]:
    begin = 0
    for end, at_s in frame.facts.marks:
        yield frame.head[begin : int(end)], at_s
        begin = int(end)
    yield frame.head[begin:], None
    yield frame.tail, None


def _first_token_s(pieces: list[tuple[bytes, float | None]]) -> float | None:
    parser = SseParser()
    for data, at_s in pieces:
        if at_s is None:
            return None
        try:
            events = parser.feed(data)
        except EventTooLargeError:
            return None
        if any(_has_token(document) for document in _documents(events)):
            return at_s
    return None


def _has_token(document: dict[str, Any]) -> bool:
    for choice in _choices(document):
        delta = choice.get("delta")
        if choice.get("text") or (isinstance(delta, dict) and any(delta.get(name) for name in _TEXT_FIELDS)):
            return True
    return False


def _events(data: bytes) -> list[dict[str, Any]]:
    parser = SseParser(max_event_bytes=len(data) + 1)
    events = parser.feed(data)
    last = parser.close()
    return _documents([*events, last] if last else events)


def _documents(texts: list[bytes]) -> list[dict[str, Any]]:
    documents = []
    for text in texts:
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError:
            continue  # [DONE], or an event that was cut
        if isinstance(document, dict):
            documents.append(document)
    return documents


def _last_words(documents: list[dict[str, Any]]) -> tuple[dict[str, Any], str | None]:
    """The last usage, and the finish reason of the first choice."""
    usage: dict[str, Any] = {}
    finish_reason: str | None = None
    for document in reversed(documents):
        if not usage and isinstance(document.get("usage"), dict):
            usage = document["usage"]
        for choice in _choices(document):
            reason = choice.get("finish_reason")
            if finish_reason is None and choice.get("index", 0) == 0 and isinstance(reason, str):
                finish_reason = reason
        if usage and finish_reason is not None:
            break
    return usage, finish_reason


def _choices(document: dict[str, Any]) -> list[dict[str, Any]]:
    choices = document.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
