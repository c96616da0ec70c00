"""Deterministic randomness: uniform and normal numbers that are functions of integers, never of call order.

The same request must yield the same text and the same accepted drafts whatever else runs beside it, so no generator
with a state is used. The mixer is the finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
"""

import hashlib
import math

__all__ = ["digest64", "mix", "normal", "uniform"]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def mix(*values: int) -> int:
    """Mix integers into 64 pseudo-random bits; order matters."""
    state = 0
    for value in values:
        state = (state ^ (value & _MASK)) + _GOLDEN & _MASK
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


def uniform(*values: int) -> float:
    """Uniform in [0, 1), a function of its arguments."""
    return (mix(*values) >> 11) / 9007199254740992.0


def normal(*values: int) -> float:
    """Standard normal (Box-Muller), a function of its arguments."""
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(*values, 101)))
    return radius * math.cos(2.0 * math.pi * uniform(*values, 202))


def digest64(*parts: bytes) -> int:
    """64 bits of BLAKE2b over the parts, lengths included, equal in every process."""
    state = hashlib.blake2b(digest_size=8)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return int.from_bytes(state.digest(), "little")
