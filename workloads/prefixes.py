"""How much of each prompt has been sent before: the hit rate of a prefix cache that never forgets.

As in vLLM, a prompt is cut into full blocks, each known by a hash of its own content and of the block before it, so
that a block is found only behind the same beginning. Prompts come in order of arrival; a block counts as cached for
every later request. Generated tokens are not counted, although an engine caches them too, so conversations do a little
better than said here. One length of shared prefix a prompt, in blocks of `BLOCK_TOKENS`, answers for every KV block
size.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from workloads.rendering import Prompt

CHARS_PER_TOKEN = 4
"""Characters of text taken for one token where nothing was recorded: about right for English."""

BLOCK_TOKENS = 16
"""Tokens of the blocks that are compared: the smallest usual KV block; all of `KV_BLOCK_SIZES` are multiples of it."""

KV_BLOCK_SIZES = (16, 32, 64, 128, 256, 512, 640, 1648)
"""KV block sizes reported, tokens.

1648 is that of Qwen3.5-27B with an fp8 cache and K=7 (vllm#53670): hybrid models align KV blocks to their states.
"""

REMEMBERED_BLOCKS = 2**20
"""Different blocks, 16.8 million tokens, that are certain to be remembered; no GPU's cache holds as many."""

HEAD_DEPTHS = tuple(2**power for power in range(12))
"""Blocks after which a prompt's beginning is noted: 16, 32, 64 ... 32,768 tokens."""

Floats = npt.NDArray[np.float64]


def chain(prompt: Prompt) -> list[int]:
    """Hashes of the full blocks of a prompt, each of everything up to its end.

    They are equal for equal beginnings within one process and never leave it: Python's own hash, which is seeded.
    """
    hashes = []
    if isinstance(prompt, str):
        previous = size = BLOCK_TOKENS * CHARS_PER_TOKEN
        for start in range(0, len(prompt) - size + 1, size):
            previous = hash((previous, prompt[start : start + size]))
            hashes.append(previous)
        return hashes
    previous = size = BLOCK_TOKENS
    for start in range(0, len(prompt) - size + 1, size):
        previous = hash((previous, tuple(prompt[start : start + size])))
        hashes.append(previous)
    return hashes


def heads(hashes: Sequence[int]) -> list[int]:
    """The hashes at `HEAD_DEPTHS`; 0 beyond the end of the prompt."""
    return [hashes[depth - 1] if depth <= len(hashes) else 0 for depth in HEAD_DEPTHS]


class SeenBlocks:
    """The blocks sent so far.

    Blocks are forgotten only when `REMEMBERED_BLOCKS` different ones have come since they were last used, so memory is
    bounded whatever the length of the traffic.
    """

    def __init__(self, remembered: int = REMEMBERED_BLOCKS) -> None:
        self._remembered = remembered
        self._recent: set[int] = set()
        self._older: set[int] = set()

    def add(self, hashes: Sequence[int]) -> int:
        """How many of the first blocks of a prompt were there; all of them are from now on."""
        found = 0
        for block in hashes:
            if block not in self._recent:
                if block not in self._older:
                    break
                self._recent.add(block)
            found += 1
        self._recent.update(hashes[found:])
        if len(self._recent) >= self._remembered:
            self._older, self._recent = self._recent, set()
        return found


def hit_tokens(shared_tokens: Floats, prompt_tokens: Floats, kv_block_size: int) -> Floats:
    """Tokens of each prompt that come from the cache: full blocks only, and at least one token is left to compute."""
    usable = np.minimum(shared_tokens, np.maximum(prompt_tokens - 1, 0))
    # Lengths made of characters are not whole; a thousandth of a token must not cost a block.
    return np.asarray(np.floor(usable / kv_block_size + 1e-6) * kv_block_size, dtype=np.float64)
