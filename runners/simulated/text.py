"""Tokens and text: a prefix-stable tokeniser and answers that are functions of the prompt.

A token is a piece of text: up to five letters with the space before them, up to three digits, or one other
character. The pieces of a text are the pieces of its prefix plus more (but for the last one), which is what prefix
caching needs. Answers are made of words that are exactly one token each, so that an answer sent back in the next
turn is tokenised into the tokens that were generated. Nothing here knows about speculation or time.
"""

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from runners.simulated.hashing import digest64, mix

__all__ = ["Answer", "render_chat", "seed_of", "token_text", "tokenize", "word_token"]

_PIECE = re.compile(r" ?[^\W\d_]{1,5}|\d{1,3}|.", re.DOTALL)
WORDS = tuple(
    f" {first}{vowel}{last}" for first in "bdfgklmnprst" for vowel in "aeiou" for last in ("", "n", "r", "s", "lt")
)
_WORD_TOKENS = tuple(zlib.crc32(word.encode()) for word in WORDS)


@lru_cache(maxsize=512)
def tokenize(text: str) -> tuple[int, ...]:
    """Token ids of a text: the CRC-32 of each piece."""
    return tuple(zlib.crc32(piece.encode()) for piece in _PIECE.findall(text))


def render_chat(messages: Sequence[Mapping[str, Any]]) -> str:
    """The chat template: role and content of every message, then the assistant's turn is opened."""
    return "".join(f"<|{m.get('role', '')}|>\n{content_text(m.get('content'))}\n" for m in messages) + "<|assistant|>\n"


def content_text(content: Any) -> str:
    """Text of a message's content, which OpenAI allows to be a string, a list of parts or nothing."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return "" if content is None else str(content)


def seed_of(tokens: Sequence[int], *more: int) -> int:
    """64 bits that stand for a prompt (and whatever else determines its answer)."""
    return mix(digest64(b"".join(token.to_bytes(8, "little") for token in tokens)), *more)


def token_text(seed: int, index: int) -> str:
    """Text of the answer's token at an index."""
    return WORDS[mix(seed, 5, index) % len(WORDS)]


def word_token(seed: int, index: int) -> int:
    """Token id of the answer's token at an index; equals tokenize(token_text(...))."""
    return _WORD_TOKENS[mix(seed, 5, index) % len(WORDS)]


class Answer:
    """The text that one request will get: known in full when it arrives, sent as its tokens are generated.

    Args:
        seed: of the answer.
        tokens: number of tokens, a closing end-of-sequence token included.
        closed: whether the last token is the end-of-sequence token, which has no text.
        stop: stop strings; the answer ends before the first occurrence of any of them.
        corrupt: every this-manyth token is a wrong one (0 = none): the planted lossy engine.
    """

    __slots__ = ("_closed", "_corrupt", "_seed", "finish_reason", "tokens")

    def __init__(self, seed: int, tokens: int, *, closed: bool, stop: Sequence[str] = (), corrupt: int = 0) -> None:
        self._seed, self._closed, self._corrupt = seed, closed, corrupt
        self.tokens = tokens
        self.finish_reason = "stop" if closed else "length"
        if any(stop):
            self._cut(tuple(word for word in stop if word))

    def _cut(self, stop: tuple[str, ...]) -> None:
        text = ""
        for index, piece in enumerate(self._pieces(0, self.tokens)):
            text += piece
            if any(word in text for word in stop):
                self.tokens, self.finish_reason, self._closed = index + 1, "stop", False
                return

    def _pieces(self, start: int, end: int) -> Iterator[str]:
        for index in range(start, end):
            if self._closed and index == self.tokens - 1:
                return
            wrong = self._corrupt and index % self._corrupt == self._corrupt - 1
            yield token_text(self._seed ^ 1 if wrong else self._seed, index)

    def text(self, start: int, end: int) -> str:
        """Text of the tokens [start, end)."""
        return "".join(self._pieces(start, end))

    def token(self, index: int) -> int:
        """Token id at an index, for the prefix cache."""
        return word_token(self._seed, index)
