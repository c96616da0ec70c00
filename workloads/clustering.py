"""`--profile-by auto`: a few kinds of requests, told apart by what is plainly different between them.

A decision tree that is grown only where a feature falls into two clearly separate heaps, so that each kind is
explained by the few conditions on its way, and homogeneous traffic stays whole. Whole sessions are divided, never their
turns. The result depends on the set of sessions, not on their order. Nothing is drawn at random.
"""

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from workloads.columns import Ints, Numbers
from workloads.prefixes import BLOCK_TOKENS, HEAD_DEPTHS, Floats

MOST_KINDS = 6

FEWEST_SESSIONS = 8
"""Sessions of a kind: as many as two times four blocks need, so that the kind can be searched and confirmed."""

SMALLEST_SHARE = 0.05
"""Share of all requests below which a kind is not worth launches of its own; also the least share of sessions that a
division must cut off, because the few longest of many are always far away."""

SHARED_TOKENS = 64
"""Beginnings that are shared for fewer tokens are turns of phrase, not a shared prompt."""

SEPARATION = 5.0
"""Difference of the heaps' means over the root mean square of their deviations (Ashman's D, AJ 108:2348, 1994).

Two halves of a normal distribution are 2.7 apart, of a uniform one 3.5, the tail of an exponential one 3. Chance makes
more of it: of 500 samples of 16 to 30 sessions from one of these distributions, up to 3% are beyond 5.
"""

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Feature:
    """Something that a session has a number for.

    Attributes:
        values: One a session; NaN where it is not known.
        low, high: How a condition on it reads; `{}` is the threshold.
        apart: Least difference of two heaps' means. None: the feature is yes or no, and any difference counts.
        is_log: Values are binary logarithms.
    """

    values: Floats
    low: str
    high: str
    apart: float | None = None
    is_log: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests of one kind.

    Attributes:
        name: What they are, in words joined by `-`.
        because: The conditions that every request's session of this kind meets, and no other's.
    """

    name: str
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of a traffic.

    Attributes:
        kinds: In the order of their first request.
        of_request: Position in `kinds` of each request.
    """

    kinds: tuple[Kind, ...]
    of_request: Ints


@dataclass(slots=True, eq=False)
class _Leaf:
    sessions: Bools
    because: tuple[str, ...] = ()
    split: "_Split | None" = None


@dataclass(frozen=True, slots=True)
class _Split:
    """A way to divide a leaf; the better of two is the one whose smaller side has more requests."""

    smaller_side: int
    rank: int
    upper: Bools = field(repr=False)
    low: str
    high: str


def find_kinds(numbers: Numbers) -> Kinds:
    """Tell the kinds of requests apart; one kind named `all` where nothing divides them clearly."""
    _, session, turns = np.unique(numbers.session, return_inverse=True, return_counts=True)
    features = _features(numbers, session, turns)
    leaves = [_Leaf(np.ones(len(turns), dtype=np.bool_))]
    leaves[0].split = _best_split(leaves[0], features, turns)
    while len(leaves) < MOST_KINDS:
        divisible = [(leaf, leaf.split) for leaf in leaves if leaf.split]
        if not divisible:
            break
        leaf, split = max(divisible, key=lambda pair: (pair[1].smaller_side, -pair[1].rank, pair[0].because))
        leaves.remove(leaf)
        leaves += _divide(leaf, split, features, turns)
    position = np.zeros(len(turns), dtype=np.int64)
    first_request = np.full(len(turns), len(session))
    np.minimum.at(first_request, session, np.arange(len(session)))
    leaves.sort(key=lambda leaf: int(first_request[leaf.sessions].min()))
    for number, leaf in enumerate(leaves):
        position[leaf.sessions] = number
    of_request = position[session]
    names = _names([_words(numbers.where(of_request == number)) for number in range(len(leaves))], leaves)
    kinds = tuple(Kind(name, leaf.because) for name, leaf in zip(names, leaves, strict=True))
    return Kinds(kinds, of_request)


def shared_head_tokens(numbers: Numbers) -> Floats:
    """Tokens of each prompt's beginning that another session's prompt has too, rounded down to `HEAD_DEPTHS`.

    0 where they are fewer than `SHARED_TOKENS`.
    """
    shared = np.zeros(len(numbers))
    for column, depth in enumerate(HEAD_DEPTHS):
        if depth * BLOCK_TOKENS < SHARED_TOKENS:
            continue
        hashes = numbers.heads[:, column]
        there = np.flatnonzero(hashes)
        pairs = np.unique(np.stack([hashes[there], numbers.session[there]], axis=1), axis=0)
        values, sessions = np.unique(pairs[:, 0], return_counts=True)
        several = values[sessions > 1]
        shared[np.isin(hashes, several) & (hashes != 0)] = depth * BLOCK_TOKENS
    return shared


def _features(numbers: Numbers, session: Ints, turns: Ints) -> list[_Feature]:
    """In the order in which they are preferred where they divide equally well: what moves acceptance most, first."""

    def mean(values: Floats) -> Floats:
        # Rounded, because a sum depends on the order of its terms in the last digit.
        return np.round(np.bincount(session, values) / turns, 9)

    def flag(values: Bools, yes: str, no: str) -> _Feature:
        return _Feature((mean(values.astype(np.float64)) >= 0.5).astype(np.float64), no, yes)

    def log(values: Floats) -> Floats:
        return mean(np.log2(np.maximum(values, 1)))

    unset = np.isnan(numbers.temperature)
    share = np.minimum(shared_head_tokens(numbers) / np.maximum(numbers.prompt_tokens, 1), 1)
    known = np.isnan(numbers.output_tokens).mean() <= 0.1
    outputs, what = (numbers.output_tokens, "output") if known else (numbers.max_tokens, "output limit")
    return [
        flag(numbers.temperature == 0, "temperature 0", "temperature not 0"),
        flag(unset, "the server's own temperature", "a temperature of its own"),
        _Feature(mean(numbers.temperature), "temperature below {}", "temperature of {} or more", apart=0.3),
        flag(numbers.has("structured_output"), "structured output", "free output"),
        flag(numbers.has("code"), "asks in code or about code", "asks in prose"),
        _Feature(log(numbers.prompt_tokens), "prompt below {} tokens", "prompt of {} tokens or more", 1.5, is_log=True),
        _Feature(
            mean(share), "below {} of the prompt shared with others", "{} or more of the prompt shared with others", 0.4
        ),
        _Feature(log(outputs), what + " below {} tokens", what + " of {} tokens or more", 1.5, is_log=True),
        flag(numbers.has("tools"), "offers tools", "no tools"),
        _Feature(np.log2(turns), "fewer than {} requests a session", "{} or more requests a session", 2.0, is_log=True),
    ]


def _best_split(leaf: _Leaf, features: list[_Feature], turns: Ints) -> _Split | None:
    splits = [_split(leaf, feature, rank, turns) for rank, feature in enumerate(features)]
    return max(
        (split for split in splits if split),
        key=lambda split: (split.smaller_side, -split.rank),
        default=None,
    )


def _divide(leaf: _Leaf, split: _Split, features: list[_Feature], turns: Ints) -> list[_Leaf]:
    halves = [
        _Leaf(leaf.sessions & ~split.upper, (*leaf.because, split.low)),
        _Leaf(leaf.sessions & split.upper, (*leaf.because, split.high)),
    ]
    for half in halves:
        half.split = _best_split(half, features, turns)
    return halves


def _split(leaf: _Leaf, feature: _Feature, rank: int, turns: Ints) -> _Split | None:
    """The clearest division of a leaf by a feature, if it is clear enough and leaves both sides large enough."""
    values = feature.values[leaf.sessions]
    if np.isnan(values).any():
        return None
    threshold = 0.5 if feature.apart is None else _threshold(values, feature.apart)
    if threshold is None:
        return None
    upper = feature.values >= threshold
    sides = [leaf.sessions & ~upper, leaf.sessions & upper]
    smaller_side = min(int(turns[side].sum()) for side in sides)
    fewest = min(int(side.sum()) for side in sides)
    if fewest < FEWEST_SESSIONS or smaller_side < SMALLEST_SHARE * turns.sum():
        return None
    shown = f"{2**threshold:,.3g}" if feature.is_log and threshold < 9 else f"{threshold:.2g}"
    if feature.is_log and threshold >= 9:
        shown = f"{round(2**threshold):,}"
    return _Split(smaller_side, rank, upper, feature.low.format(shown), feature.high.format(shown))


def _threshold(values: Floats, apart: float) -> float | None:
    """Half way between the two heaps that are furthest apart in relation to their widths; None if they touch."""
    ordered = np.sort(values)
    count = len(ordered)
    fewest = max(FEWEST_SESSIONS, math.ceil(SMALLEST_SHARE * count))
    sizes = np.arange(fewest, count - fewest + 1)
    sizes = sizes[ordered[sizes - 1] < ordered[np.minimum(sizes, count - 1)]] if len(sizes) else sizes
    if not len(sizes):
        return None
    sums, squares = np.cumsum(ordered), np.cumsum(ordered**2)
    low_mean, high_mean = sums[sizes - 1] / sizes, (sums[-1] - sums[sizes - 1]) / (count - sizes)
    low_variance = squares[sizes - 1] / sizes - low_mean**2
    high_variance = (squares[-1] - squares[sizes - 1]) / (count - sizes) - high_mean**2
    width = np.sqrt(np.maximum(low_variance + high_variance, 1e-9) / 2)
    separation = np.where(high_mean - low_mean >= apart, (high_mean - low_mean) / width, 0)
    best = int(np.argmax(separation))
    if separation[best] < SEPARATION:
        return None
    return float((ordered[sizes[best] - 1] + ordered[sizes[best]]) / 2)


def _words(numbers: Numbers) -> list[str]:
    """What is true of most requests of a kind, as adjectives."""

    def median(values: Floats) -> float:
        return float(np.nanmedian(values)) if not np.isnan(values).all() else math.nan

    def most(values: Bools) -> bool:
        return bool(values.mean() >= 0.5)

    prompt, output = median(numbers.prompt_tokens), median(numbers.output_tokens)
    share = median(shared_head_tokens(numbers) / np.maximum(numbers.prompt_tokens, 1))
    turns = Counter(numbers.session.tolist())
    told = {
        "long": prompt >= 1024,
        "short": prompt < 256,
        "shared": share >= 0.25,
        "prompt": prompt >= 1024 or prompt < 256 or share >= 0.25,
        "code": most(numbers.has("code")),
        "structured": most(numbers.has("structured_output")),
        "tools": most(numbers.has("tools")),
        "conversation": median(np.array(list(turns.values()), dtype=np.float64)) >= 2,
        "greedy": most(numbers.temperature == 0),
        "sampled": most(numbers.temperature > 0),
        "long-output": output >= 512,
        "short-output": output < 64,
    }
    return [word for word, holds in told.items() if holds]


def _names(words: list[list[str]], leaves: list[_Leaf]) -> list[str]:
    """Names of the words that not all kinds have; kinds with the same words are told apart by their last condition."""
    if len(words) == 1:
        return ["all"]
    common = set.intersection(*map(set, words)) - {"prompt"}
    names = ["-".join(_tidy([word for word in each if word not in common])) for each in words]
    alike = Counter(names)
    return [
        name if name and alike[name] == 1 else "-".join(filter(None, (name, leaf.because[-1].replace(" ", "-"))))
        for name, leaf in zip(names, leaves, strict=True)
    ]


def _tidy(words: list[str]) -> list[str]:
    """Without a "prompt" that no adjective is left for."""
    return words if {"long", "short", "shared"} & set(words) else [word for word in words if word != "prompt"]
