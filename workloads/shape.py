"""Requests of which only the shape is known: lengths, and which blocks of the prompt are the same as others'.

A shape becomes a prompt of token ids that has exactly its length and shares exactly its blocks, the same in any process
and on any platform. Acceptance on such prompts means nothing.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

FIRST_TOKEN_ID: Final = 1000
"""Below it tokenizers keep bytes, control tokens and other ids that are unlike text."""

LAST_COMMON_TOKEN_ID: Final = 32_000
"""Above it the smaller vocabularies end, and larger ones have special tokens further up."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a trace without text knows of a request.

    Attributes:
        input_length: Tokens of the prompt, at least 1.
        output_length: Tokens to generate, at least 1.
        hash_ids: One id for each block of the prompt from its beginning; the same id stands for the same tokens.
            Tokens beyond the last block are this request's own.
        block_tokens: Tokens in a block; 0 without hash_ids.
    """

    input_length: int
    output_length: int
    hash_ids: tuple[int, ...] = ()
    block_tokens: int = 0


class ShapeBody(Mapping[str, Any]):
    """The request body for a shape. Its prompt is made each time it is asked for: as ids it would fill the memory."""

    __slots__ = ("_request_id", "_shape", "_vocab_size")

    def __init__(self, shape: Shape, request_id: str, vocab_size: int) -> None:
        self._shape = shape
        self._request_id = request_id
        self._vocab_size = vocab_size

    def __getitem__(self, name: str) -> Any:
        if name == "prompt":
            return token_ids(self._shape, self._request_id, self._vocab_size)
        if name == "max_tokens":
            return self._shape.output_length
        if name == "ignore_eos":
            return True
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(("prompt", "max_tokens", "ignore_eos"))

    def __len__(self) -> int:
        return 3

    def __contains__(self, name: object) -> bool:
        return name in {"prompt", "max_tokens", "ignore_eos"}

    def __repr__(self) -> str:
        return f"ShapeBody({self._shape!r:.80})"


def token_ids(shape: Shape, request_id: str, vocab_size: int) -> list[int]:
    """The prompt of a shape: `input_length` ids below `vocab_size`."""
    parts: list[np.ndarray[Any, np.dtype[np.int64]]] = []
    left = shape.input_length
    for hash_id in shape.hash_ids:
        count = min(left, shape.block_tokens)
        parts.append(_ids(f"block:{hash_id}", count, vocab_size))
        left -= count
    if left > 0:
        parts.append(_ids(f"request:{request_id}", left, vocab_size))
    ids: list[int] = np.concatenate(parts).tolist()
    return ids


def _ids(name: str, count: int, vocab_size: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
    end = min(vocab_size, LAST_COMMON_TOKEN_ID)
    first = min(FIRST_TOKEN_ID, end // 2)
    # An extendable digest: the first tokens of a block do not depend on how many of them are asked for.
    drawn = np.frombuffer(hashlib.shake_128(name.encode()).digest(4 * count), dtype="<u4")
    return first + drawn.astype(np.int64) % (end - first)
