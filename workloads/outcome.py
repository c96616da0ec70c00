"""What happened to one request, and how that is read off the bytes of its stream.

The client only notes bytes and arrival times (`StreamLog`); `read_outcome` turns them into tokens afterwards, so that
no JSON is parsed while other streams are being timed. No I/O, no clock.
"""

import math
from array import array
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from workloads.sse import EventTooLargeError, SseParser

RequestError = Literal["timeout", "connection", "stream_broken", "stream_error", "abandoned"]
"""Failure classes besides `http_<status>`."""

MAX_DETAIL_CHARS = 300
"""A server's error text is kept to this length: enough to understand, too little to hold a prompt."""


@dataclass(slots=True)
class StreamLog:
    """Raw notes on one request, filled in while it runs; times are seconds since the start of the replay."""

    scheduled_s: float | None = None
    sent_s: float | None = None
    lag_s: float = math.nan
    end_s: float = 0.0
    error: str | None = None
    error_detail: str | None = None
    read_s: "array[float]" = field(default_factory=lambda: array("d"))
    reads: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """One request of a replay; every request of the replay has exactly one. Times are seconds since the replay's start.

    Attributes:
        request_id: `Request.id`.
        block: Position of its block in the sequence given to the replay.
        scheduled_s: When it was due; in a closed loop when it was sent, None if it never was.
        sent_s: When the client began to send it; None if it never did.
        first_token_s: When the first event that carries tokens arrived.
        end_s: When the stream ended, the request failed or was given up.
        chunk_s: Arrival of each event that carries tokens.
        chunk_tokens: Completion tokens in total up to and including that event.
        chunk_tokens_estimated: The server gave no running count, so the tokens are spread evenly over the events
            (one each if it gave no total either).
        prompt_tokens: From the server's usage; None if it sent none.
        completion_tokens: From the server's final usage, else the last running count.
        cached_tokens: Prompt tokens that came from the prefix cache; None where the server does not say.
        finish_reason: Of the first choice.
        error: None on success, else `http_<status>` or a `RequestError`.
        error_detail: Start of the server's or the transport's own words.
        text: What was generated, if it was asked for: reasoning and content of each choice, in order.
    """

    request_id: str
    block: int
    scheduled_s: float | None
    sent_s: float | None
    first_token_s: float | None
    end_s: float
    chunk_s: "array[float]"
    chunk_tokens: "array[int]"
    chunk_tokens_estimated: bool
    prompt_tokens: int | None
    completion_tokens: int
    cached_tokens: int | None
    finish_reason: str | None
    error: str | None
    error_detail: str | None
    text: str | None

    @property
    def ttft_s(self) -> float | None:
        """Time to first token, from sending."""
        if self.first_token_s is None or self.sent_s is None:
            return None
        return self.first_token_s - self.sent_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first, as `vllm bench serve` defines it; None below two tokens.

        (E2E - TTFT) / (completion tokens - 1), where E2E ends with the last event that carries tokens. Where the first
        event carries several tokens the figure is a little low; the definition is kept because it is the field's.
        """
        if self.completion_tokens < 2 or not self.chunk_s:
            return None
        return (self.chunk_s[-1] - self.chunk_s[0]) / (self.completion_tokens - 1)

    @property
    def e2e_s(self) -> float | None:
        """Time from sending to the end of the stream."""
        return None if self.sent_s is None else self.end_s - self.sent_s

    @property
    def e2e_scheduled_s(self) -> float | None:
        """Time from when the request was due to its end: what a user who does not wait for the client feels."""
        return None if self.scheduled_s is None else self.end_s - self.scheduled_s


@dataclass(slots=True)
class _Reading:
    """State of the walk over one stream's events."""

    chunk_s: "array[float]" = field(default_factory=lambda: array("d"))
    chunk_tokens: "array[int]" = field(default_factory=lambda: array("l"))
    tokens_of_choice: dict[int, int] = field(default_factory=dict)
    texts: dict[int, list[str]] | None = None
    counted: bool = False
    prompt_tokens: int | None = None
    final_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    done: bool = False
    error: RequestError | None = None
    error_detail: str | None = None


def read_outcome(log: StreamLog, request_id: str, block: int, *, keep_text: bool = False) -> RequestOutcome:
    """Read the events of a finished stream."""
    reading = _Reading(texts={} if keep_text else None)
    _read_events(log, reading)
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


def _read_events(log: StreamLog, reading: _Reading) -> None:
    parser = SseParser()
    for arrived_s, read in zip(log.read_s, log.reads, strict=True):
        try:
            events = parser.feed(read)
        except EventTooLargeError as error:
            reading.error, reading.error_detail = "stream_broken", str(error)
            return
        for event in events:
            if not _take_event(event, arrived_s, reading):
                return
    leftover = parser.close()
    # Cut-off JSON at the end is no news: the verdict is that the stream ended too early.
    if leftover is not None and (leftover == b"[DONE]" or leftover.endswith(b"}")):
        _take_event(leftover, log.read_s[-1], reading)


def _take_event(event: bytes, arrived_s: float, reading: _Reading) -> bool:
    """Account for one event; False when nothing after it counts."""
    if event == b"[DONE]":
        reading.done = True
        return False
    try:
        data = orjson.loads(event)
    except orjson.JSONDecodeError:
        reading.error, reading.error_detail = "stream_broken", "an event is not JSON"
        return False
    try:
        if data.get("error") is not None:
            reading.error, reading.error_detail = "stream_error", _error_text(data["error"])
            return False
        usage, choices = data.get("usage"), data.get("choices")
        if choices:
            _take_choices(choices, usage, arrived_s, reading)
        if usage:
            _take_usage(usage, reading, final=not choices)
    except (AttributeError, TypeError):  # a server's JSON may have any shape; this one is not OpenAI's
        reading.error, reading.error_detail = "stream_broken", "an event is not shaped as in the OpenAI API"
        return False
    return True


def _take_choices(choices: list[Any], usage: Any, arrived_s: float, reading: _Reading) -> None:
    carries = False
    for choice in choices:
        index = choice.get("index", 0)
        pieces = _pieces(choice)
        carries = carries or bool(pieces)
        if reading.texts is not None and pieces:
            reading.texts.setdefault(index, []).extend(pieces)
        if index == 0 and choice.get("finish_reason"):
            reading.finish_reason = choice["finish_reason"]
    if usage:
        # vLLM counts per choice in running statistics (and over all choices in the final ones).
        index = choices[0].get("index", 0)
        tokens = usage.get("completion_tokens") or 0
        carries = tokens > reading.tokens_of_choice.get(index, 0)
        reading.tokens_of_choice[index] = tokens
        reading.counted = True
    if carries:
        reading.chunk_s.append(arrived_s)
        total = sum(reading.tokens_of_choice.values()) if usage else len(reading.chunk_s)
        reading.chunk_tokens.append(total)


def _take_usage(usage: dict[str, Any], reading: _Reading, *, final: bool) -> None:
    reading.prompt_tokens = usage.get("prompt_tokens", reading.prompt_tokens)
    if final:
        reading.final_tokens = usage.get("completion_tokens")
    details = usage.get("prompt_tokens_details")
    if details and details.get("cached_tokens") is not None:
        reading.cached_tokens = details["cached_tokens"]


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
