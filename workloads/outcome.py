"""What happened to one request of a replay: its times, its tokens, and its failure if it failed. Data only.

How it is read off the bytes of a stream is `stream.py`.
"""

from array import array
from dataclasses import dataclass
from typing import Literal

RequestError = Literal["timeout", "connection", "stream_broken", "stream_error", "abandoned"]
"""Failure classes besides `http_<status>`."""

MAX_DETAIL_CHARS = 300
"""A server's error text is kept to this length: enough to understand, too little to hold a prompt."""


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
