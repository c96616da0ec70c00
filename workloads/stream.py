"""What the client notes of a streamed answer, and how tokens are read off it afterwards. No I/O, no clock.

While streams are being timed only bytes and arrival times are noted (`StreamLog`). They are parsed when the replay is
over; earlier, a piece at a time, only where too much has piled up.
"""

from array import array
from dataclasses import dataclass, field
from typing import Any

import orjson

from workloads.framing import ChunkedDecoder, FramingError
from workloads.outcome import MAX_DETAIL_CHARS, RequestError, RequestOutcome
from workloads.plain_events import MAX_COUNT, plain_counts
from workloads.sse import EventTooLargeError, SseParser

MAX_TEXT_CHARS = 16 * 1024 * 1024
"""Longest text of an answer: a million tokens are about a fourth of it."""


@dataclass(slots=True)
class StreamLog:
    """Raw notes on one request, filled in while it runs; times are seconds since the start of the replay.

    Attributes:
        scheduled_s: As in `RequestOutcome`, as are `sent_s`, `end_s`, `error` and `error_detail`.
        ready_s: When it should have left; None in a closed loop, where that is at once.
        keep_text: Whether the outcome is to have the generated text.
        chunked: The reads are in HTTP's chunked coding.
        read_s: Arrival of each read that was not digested yet.
        noted_bytes: How many bytes those reads are, once the stream has ended.
        reads: Their bytes: the response's body as it came.
        reading: What was digested so far.
    """

    scheduled_s: float | None = None
    sent_s: float | None = None
    ready_s: float | None = None
    end_s: float = 0.0
    error: str | None = None
    error_detail: str | None = None
    keep_text: bool = False
    chunked: bool = False
    read_s: "array[float]" = field(default_factory=lambda: array("d"))
    reads: list[bytes] = field(default_factory=list)
    noted_bytes: int = 0
    reading: "_Reading | None" = None

    @property
    def lag_s(self) -> float | None:
        """How late it left; None if it never did."""
        if self.sent_s is None or self.ready_s is None:
            return None if self.sent_s is None else 0.0
        return self.sent_s - self.ready_s

    def digest(self, most_reads: int | None = None) -> int:
        """Parse the oldest reads and let go of them; returns their bytes."""
        if self.reading is None:
            self.reading = _Reading(texts={} if self.keep_text else None, decoder=_decoder(self))
        count = len(self.reads) if most_reads is None else min(most_reads, len(self.reads))
        reads = self.reads[:count]
        self.reading.take_reads(self.read_s[:count], reads)
        del self.read_s[:count], self.reads[:count]
        return sum(map(len, reads))


@dataclass(slots=True)
class _Reading:
    """State of the walk over one stream's events."""

    decoder: ChunkedDecoder | None
    texts: dict[int, list[str]] | None
    parser: SseParser = field(default_factory=SseParser)
    chunk_s: "array[float]" = field(default_factory=lambda: array("d"))
    chunk_tokens: "array[int]" = field(default_factory=lambda: array("l"))
    tokens_of_choice: dict[int, int] = field(default_factory=dict)
    text_chars: int = 0
    tokens: int = 0
    counted: bool = False
    prompt_tokens: int | None = None
    final_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    last_read_s: float = 0.0
    finished: bool = False
    done: bool = False
    error: RequestError | None = None
    error_detail: str | None = None

    def take_reads(self, times_s: "array[float]", reads: list[bytes]) -> None:
        """Account for reads of the socket: nearly all of them the quick way, the others as they come."""
        position, start, total = 0, 0, len(reads)
        while position < total and not self.finished:
            if self._may_be_plain():
                position, start = self._take_plain(times_s, reads, position)
            if position < total:
                self.take_read(times_s[position], reads[position][start:])
                position, start = position + 1, 0

    def _may_be_plain(self) -> bool:
        """Whether the quick way may be tried: nothing is pending that plain events would add to or go beside."""
        return (
            self.texts is None
            and self.counted
            and self.prompt_tokens is not None
            and self.decoder is not None
            and self.decoder.is_between
            and self.parser.is_between
        )

    def _take_plain(self, times_s: "array[float]", reads: list[bytes], position: int) -> tuple[int, int]:
        """Take plain events up to something else; returns its read's position and its place in the read.

        These are nearly all that vLLM sends, so this loop is what reading costs; it does for them what `take_read`
        does.
        """
        tokens, start = self.tokens_of_choice.get(0, 0), 0
        while position < len(reads):
            counts: list[int] = []
            start = plain_counts(reads[position], counts)
            for now in counts:
                if now > tokens:
                    self.tokens += now - tokens
                    tokens = now
                    self.chunk_s.append(times_s[position])
                    self.chunk_tokens.append(self.tokens)
            if start < len(reads[position]):
                break
            position += 1
        self.tokens_of_choice[0] = tokens
        return position, start

    def take_read(self, arrived_s: float, read: bytes) -> None:
        """Account for what one read of the socket brought; nothing after the end of the stream or an error counts."""
        if self.finished:
            return
        self.last_read_s = arrived_s
        try:
            events = self.parser.feed(read if self.decoder is None else self.decoder.feed(read))
        except (EventTooLargeError, FramingError) as error:
            self.fail("stream_broken", str(error))
            return
        for event in events:
            self.take_event(event, arrived_s)
            if self.finished:
                return

    def take_end(self) -> None:
        """Account for an event that the end of the stream cut off: servers exist that omit the last empty line."""
        leftover = None if self.finished else self.parser.close()
        # Cut-off JSON at the end is no news: the verdict is that the stream ended too early.
        if leftover is not None and (leftover == b"[DONE]" or leftover.endswith(b"}")):
            self.take_event(leftover, self.last_read_s)

    def take_event(self, event: bytes, arrived_s: float) -> None:
        """Account for one event."""
        if event == b"[DONE]":
            self.done = self.finished = True
            return
        try:
            data = orjson.loads(event)
        except orjson.JSONDecodeError:
            self.fail("stream_broken", "an event is not JSON")
            return
        try:
            if data.get("error") is not None:
                self.fail("stream_error", _error_text(data["error"]))
                return
            usage, choices = data.get("usage"), data.get("choices")
            if choices:
                _take_choices(choices, usage, arrived_s, self)
            if usage:
                _take_usage(usage, self, final=not choices)
        except (AttributeError, TypeError):  # a server's JSON may have any shape; this one is not OpenAI's
            self.fail("stream_broken", "an event is not shaped as in the OpenAI API")

    def take_text(self, index: int, text: str) -> None:
        """Keep a piece of a choice's text, if there is not too much already."""
        assert self.texts is not None  # noqa: S101 - only called where text is kept
        self.text_chars += len(text)
        if self.text_chars > MAX_TEXT_CHARS:
            self.fail("stream_broken", f"the answer has more than {MAX_TEXT_CHARS} characters")
            return
        self.texts.setdefault(index, []).append(text)

    def fail(self, error: RequestError, detail: str) -> None:
        """Note the stream's failure, which ends it."""
        self.error, self.error_detail, self.finished = error, detail, True


def read_outcome(log: StreamLog, request_id: str, block: int) -> RequestOutcome:
    """Read the events of a finished stream, or those that were not digested before."""
    log.digest()
    reading = log.reading
    assert reading is not None  # noqa: S101 - digest() made it
    reading.take_end()
    error, detail = _verdict(log, reading)
    completion_tokens, estimated = _settle_counts(reading)
    return RequestOutcome(
        request_id=request_id,
        block=block,
        scheduled_s=log.scheduled_s,
        sent_s=log.sent_s,
        first_token_s=reading.chunk_s[0] if reading.chunk_s else None,
        end_s=log.end_s,
        chunk_s=reading.chunk_s,
        chunk_tokens=reading.chunk_tokens,
        chunk_tokens_estimated=estimated,
        prompt_tokens=reading.prompt_tokens,
        completion_tokens=completion_tokens,
        cached_tokens=reading.cached_tokens,
        finish_reason=reading.finish_reason,
        error=error,
        error_detail=detail,
        text=_joined(reading.texts),
    )


def _decoder(log: StreamLog) -> ChunkedDecoder | None:
    return ChunkedDecoder() if log.chunked else None


def _take_choices(choices: list[Any], usage: Any, arrived_s: float, reading: _Reading) -> None:
    carries = False
    for choice in choices:
        if reading.texts is not None or not usage:
            pieces = _pieces(choice)
            carries = carries or bool(pieces)
            if reading.texts is not None and pieces:
                reading.take_text(choice.get("index", 0), "".join(pieces))
        if choice.get("finish_reason") and choice.get("index", 0) == 0:
            reading.finish_reason = choice["finish_reason"]
    if usage:
        # vLLM counts per choice in running statistics (and over all choices in the final ones).
        index = choices[0].get("index", 0)
        tokens = _count(usage.get("completion_tokens")) or 0
        more = tokens - reading.tokens_of_choice.get(index, 0)
        carries = more > 0
        if carries:  # a count never falls
            reading.tokens_of_choice[index] = tokens
            reading.tokens += more
        reading.counted = True
    if carries:
        reading.chunk_s.append(arrived_s)
        reading.chunk_tokens.append(reading.tokens if usage else len(reading.chunk_s))


def _take_usage(usage: dict[str, Any], reading: _Reading, *, final: bool) -> None:
    if final or reading.prompt_tokens is None:
        reading.prompt_tokens = _count(usage.get("prompt_tokens", reading.prompt_tokens))
    if final:
        reading.final_tokens = _count(usage.get("completion_tokens"))
    details = usage.get("prompt_tokens_details")
    if details and details.get("cached_tokens") is not None:
        reading.cached_tokens = _count(details["cached_tokens"])


def _count(value: Any) -> int | None:
    """A number of tokens as the server gave it; TypeError for anything that is none."""
    if value is None or (type(value) is int and 0 <= value <= MAX_COUNT):
        return value
    raise TypeError


def _settle_counts(reading: _Reading) -> tuple[int, bool]:
    """Make the running counts agree with the final one; returns it, and whether the running ones are a guess."""
    events = len(reading.chunk_tokens)
    if not events:
        return reading.final_tokens or 0, False
    if reading.final_tokens is None:
        return reading.chunk_tokens[-1], not reading.counted
    if not reading.counted:
        for position in range(events):
            reading.chunk_tokens[position] = round(reading.final_tokens * (position + 1) / events)
        return reading.final_tokens, True
    # Tokens that came with no event of their own (a hidden tool token) belong to the last event.
    for position in range(events):
        reading.chunk_tokens[position] = min(reading.chunk_tokens[position], reading.final_tokens)
    reading.chunk_tokens[-1] = reading.final_tokens
    return reading.final_tokens, False


def _verdict(log: StreamLog, reading: _Reading) -> tuple[str | None, str | None]:
    """The request's one failure class: what the server said counts before how the transport ended."""
    if reading.error is not None:
        return reading.error, reading.error_detail
    if reading.done:
        return None, None
    if log.error is not None:
        return log.error, log.error_detail
    if reading.finish_reason is None:
        return "stream_broken", "the stream ended without [DONE] and without a finish_reason"
    return None, None


def _pieces(choice: dict[str, Any]) -> list[str]:
    """The generated text of a choice in one event: `text`, or whatever the delta has."""
    text = choice.get("text")
    if text:
        return [text]
    delta = choice.get("delta")
    if not delta:
        return []
    reasoning = delta.get("reasoning") or delta.get("reasoning_content")  # old and new name, at times both
    pieces = [piece for piece in (reasoning, delta.get("content"), delta.get("refusal")) if piece]
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        pieces.extend(piece for name in ("name", "arguments") if (piece := function.get(name)))
    return pieces


def _joined(texts: dict[int, list[str]] | None) -> str | None:
    if texts is None:
        return None
    return "".join(piece for index in sorted(texts) for piece in texts[index])


def _error_text(error: Any) -> str:
    text = error.get("message") if isinstance(error, dict) else error
    return str(text)[:MAX_DETAIL_CHARS]
