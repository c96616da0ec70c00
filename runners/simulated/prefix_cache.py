"""KV blocks and the prefix cache: chained block hashes, reference counts, LRU eviction, the dropped block.

As in vLLM's block pool: a block whose tokens are complete is entered under a hash of its own tokens, of the block
before it and of the request's cache salt; freed blocks keep their entry until they are needed again, the tail of a
sequence first, the least recently freed sequence before others. A prompt's longest cached prefix is capped so that
at least one token is left to compute, and speculation with the target's hidden states gives the last matched block
back unless the release or `disable_eagle_block_drop` says otherwise. Block 0 is vLLM's null block and is never
given out.
"""

from collections import OrderedDict
from collections.abc import Sequence

__all__ = ["BlockPool", "chain_hashes"]


def chain_hashes(tokens: Sequence[int], block_tokens: int, *, previous: int, start: int = 0) -> list[int]:
    """Hashes of the complete blocks of tokens[start:].

    Args:
        tokens: all tokens of the sequence so far.
        block_tokens: KV block size.
        previous: hash of the block before `start`, or the salt's hash for the first block.
        start: index of the first token to hash; a multiple of block_tokens.
    """
    hashes = []
    for begin in range(start, len(tokens) - block_tokens + 1, block_tokens):
        previous = hash((previous, *tokens[begin : begin + block_tokens]))
        hashes.append(previous)
    return hashes


class BlockPool:
    """A fixed number of KV blocks.

    Args:
        blocks: number of blocks, the null block included.
        block_tokens: KV block size in tokens.
        caching: whether prefixes are cached.
        drop_last: whether the last matched block is given back on every hit.
    """

    def __init__(self, blocks: int, block_tokens: int, *, caching: bool, drop_last: bool) -> None:
        self.block_tokens = block_tokens
        self.usable = blocks - 1
        self.caching = caching
        self._drop_last = drop_last
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, blocks))
        self._references = [0] * blocks
        self._by_hash: dict[int, int] = {}
        self._hash_of: dict[int, int] = {}

    @property
    def free(self) -> int:
        """Blocks that can be taken, cached ones included."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the blocks that sequences hold, 0..1."""
        return 1.0 - len(self._free) / self.usable if self.usable else 0.0

    def match(self, hashes: Sequence[int], tokens: int) -> list[int]:
        """Blocks of the longest cached prefix that may be used.

        Args:
            hashes: chained hashes of the sequence's complete blocks.
            tokens: length of the sequence; at least one of its tokens stays to be computed.
        """
        if not self.caching:
            return []
        found = []
        for block_hash in hashes[: max(0, tokens - 1) // self.block_tokens]:
            block = self._by_hash.get(block_hash)
            if block is None:
                break
            found.append(block)
        if found and self._drop_last:
            found.pop()
        return found

    def cost(self, matched: Sequence[int], needed: int) -> int:
        """Free blocks that taking `matched` and growing to `needed` blocks would use up."""
        return sum(self._references[block] == 0 for block in matched) + max(0, needed - len(matched))

    def take(self, matched: Sequence[int]) -> None:
        """Hold cached blocks for one more sequence."""
        for block in matched:
            if self._references[block] == 0:
                del self._free[block]
            self._references[block] += 1

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks, forgetting what the oldest of them cached; the caller checked `free`."""
        taken = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            block_hash = self._hash_of.pop(block, None)
            if block_hash is not None:
                del self._by_hash[block_hash]
            self._references[block] = 1
            taken.append(block)
        return taken

    def enter(self, block: int, block_hash: int) -> None:
        """Make a complete block findable; the first block under a hash stays."""
        if self.caching and block_hash not in self._by_hash and block not in self._hash_of:
            self._by_hash[block_hash] = block
            self._hash_of[block] = block_hash

    def release(self, blocks: Sequence[int]) -> None:
        """Give back a sequence's blocks; its tail will be evicted first."""
        for block in reversed(blocks):
            self._references[block] -= 1
            if self._references[block] == 0:
                self._free[block] = None

    def reset(self) -> bool:
        """Forget every cached prefix; refused (False) while any block is held, as in vLLM."""
        if len(self._free) != self.usable:
            return False
        self._by_hash.clear()
        self._hash_of.clear()
        return True
