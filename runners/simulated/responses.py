"""JSON of answers: whole responses, stream chunks, usage and errors, in vLLM's shapes.

A stream chunk carries all tokens that came out of one verify step. Chat streams open with a chunk that holds only
the role.
"""

import time
from dataclasses import dataclass
from typing import Any

import orjson

from runners.simulated.engine import Stream

__all__ = ["Writer", "error_body", "sse"]


def sse(payload: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def error_body(status: int, kind: str, message: str, param: str | None = None) -> dict[str, Any]:
    """The body of an error answer."""
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass(frozen=True, slots=True)
class Writer:
    """Renders the answer to one request.

    Attributes:
        chat: whether the endpoint is chat completions.
        request_id: the id of all its chunks.
        model: the model name of the request.
        details: whether usage says how many prompt tokens were cached.
    """

    chat: bool
    request_id: str
    model: str
    details: bool

    def usage(self, stream: Stream, tokens: int, *, final: bool) -> dict[str, Any]:
        """Usage after `tokens` completion tokens; cached tokens only in the final one, as in vLLM."""
        prompt = len(stream.sequence.prompt)
        usage: dict[str, Any] = {
            "prompt_tokens": prompt,
            "total_tokens": prompt + tokens,
            "completion_tokens": tokens,
        }
        if final and self.details:
            usage["prompt_tokens_details"] = {"cached_tokens": stream.sequence.cached}
        return usage

    def chunk(self, text: str, finish_reason: str | None, usage: dict[str, Any] | None) -> bytes:
        """A chunk of text."""
        body = {"delta": {"content": text}} if self.chat else {"text": text}
        choice = {"index": 0, **body, "logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
        return sse(self._envelope([choice], usage, streamed=True))

    def opening(self, usage: dict[str, Any] | None) -> bytes:
        """The first chunk of a chat stream, which holds the role alone."""
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        return sse(self._envelope([choice], usage, streamed=True))

    def closing(self, usage: dict[str, Any]) -> bytes:
        """The usage chunk that include_usage asks for."""
        return sse(self._envelope([], usage, streamed=True))

    def whole(self, text: str, finish_reason: str, usage: dict[str, Any]) -> dict[str, Any]:
        """A response that is not streamed."""
        body: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        choice = {"index": 0, **body, "logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
        return self._envelope([choice], usage, streamed=False)

    def _envelope(
        self, choices: list[dict[str, Any]], usage: dict[str, Any] | None, *, streamed: bool
    ) -> dict[str, Any]:
        kind = "text_completion"
        if self.chat:
            kind = "chat.completion.chunk" if streamed else "chat.completion"
        envelope: dict[str, Any] = {
            "id": self.request_id,
            "object": kind,
            "created": int(time.time()),
            "model": self.model,
            "choices": choices,
        }
        if usage is not None:
            envelope["usage"] = usage
        return envelope
