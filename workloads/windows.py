"""Where in a replay the blocks lie, how many requests were in flight, and which tokens arrived when. Pure.

Block windows divide one continuous run, so that blocks can be compared without pauses between them: a block's window
opens when its first request is sent and closes when the next block's is. The last window of a closed loop closes when
the load falls, with the first completion whose place nothing can take; that of an open loop with the last completion.

At a concurrency above the number of a block's sessions windows are too short to mean anything: several blocks start
at once. A block's *own time* has no such limit: every moment is divided equally among the requests then in flight.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from workloads.outcome import RequestOutcome

Floats = npt.NDArray[np.float64]
Window = tuple[float, float]
Arrivals = tuple[Floats, Floats]
"""Times in order, and how many tokens had arrived by each of them."""


def block_windows(outcomes: Sequence[RequestOutcome], *, open_loop: bool) -> dict[int, Window]:
    """Start and end of each block's window, by block; blocks of which nothing was sent have none."""
    starts_s: dict[int, float] = {}
    for outcome in outcomes:
        if outcome.sent_s is not None:
            starts_s[outcome.block] = min(outcome.sent_s, starts_s.get(outcome.block, math.inf))
    span = peak_span(outcomes)
    if span is None:
        return {}
    end_s = max(outcome.end_s for outcome in outcomes if outcome.sent_s is not None) if open_loop else span[1]
    order = sorted(starts_s, key=lambda block: (starts_s[block], block))
    bounds_s = [min(starts_s[block], end_s) for block in order] + [end_s]
    return {block: (bounds_s[place], bounds_s[place + 1]) for place, block in enumerate(order)}


def union(windows: Mapping[int, Window]) -> Window | None:
    """The windows divide one run without gaps, so their union is an interval; None without windows."""
    if not windows:
        return None
    return min(start for start, _ in windows.values()), max(end for _, end in windows.values())


def peak_span(outcomes: Sequence[RequestOutcome]) -> Window | None:
    """From the first to the last moment at which the most requests were in flight; None if nothing was sent."""
    level, peak, first_s, last_s = 0, 0, 0.0, 0.0
    for moment_s, change in _moves(outcomes):
        if change < 0 and level == peak:
            last_s = moment_s
        level += change
        if level > peak:
            peak, first_s = level, moment_s
    return (first_s, last_s) if peak else None


def in_flight_mean(outcomes: Iterable[RequestOutcome], window: Window) -> float | None:
    """Mean number of requests in flight during `window`; None for an empty one."""
    start_s, end_s = window
    busy_s = sum(
        max(0.0, min(outcome.end_s, end_s) - max(outcome.sent_s, start_s))
        for outcome in outcomes
        if outcome.sent_s is not None
    )
    return busy_s / (end_s - start_s) if end_s > start_s else None


def own_times_s(outcomes: Sequence[RequestOutcome], window: Window) -> dict[int, float]:
    """Each block's own time within `window`; together they are the time in which anything was in flight."""
    moves = _moves(outcomes)
    moments_s = np.array([moment_s for moment_s, _ in moves])
    level = np.cumsum([change for _, change in moves])[:-1]
    steps_s = np.diff(moments_s)
    # Time that one request in flight all along would have been given, up to each moment.
    given_s = np.concatenate(([0.0], np.cumsum(np.divide(steps_s, level, out=np.zeros_like(steps_s), where=level > 0))))
    own_s: dict[int, float] = {}
    for outcome in outcomes:
        if outcome.sent_s is not None:
            bounds_s = np.clip((outcome.sent_s, outcome.end_s), *window)
            start_s, end_s = np.interp(bounds_s, moments_s, given_s)
            own_s[outcome.block] = own_s.get(outcome.block, 0.0) + float(end_s - start_s)
    return own_s


def token_arrivals(outcomes: Sequence[RequestOutcome]) -> Arrivals:
    """The tokens of all of these requests, in the order of their arrival."""
    with_tokens = [outcome for outcome in outcomes if outcome.chunk_s]
    if not with_tokens:
        return np.empty(0), np.empty(0)
    times_s = np.concatenate([np.asarray(outcome.chunk_s) for outcome in with_tokens])
    tokens = np.concatenate([np.diff(np.asarray(outcome.chunk_tokens), prepend=0) for outcome in with_tokens])
    order = np.argsort(times_s, kind="stable")
    return times_s[order], np.cumsum(tokens[order]).astype(np.float64)


def tokens_in(arrivals: Arrivals, window: Window, *, closed: bool) -> float:
    """Tokens that arrived in a window; its end belongs to it only if it is `closed`, so that windows do not overlap."""
    times_s, running = arrivals
    if not times_s.size:
        return 0.0
    first = int(np.searchsorted(times_s, window[0], side="left"))
    end = int(np.searchsorted(times_s, window[1], side="right" if closed else "left"))
    return float((running[end - 1] if end else 0.0) - (running[first - 1] if first else 0.0))


def _moves(outcomes: Iterable[RequestOutcome]) -> list[tuple[float, int]]:
    """Sendings (+1) and ends (-1) in order; at the same instant the end comes first, as it frees the place."""
    return sorted(
        move
        for outcome in outcomes
        if outcome.sent_s is not None
        for move in ((outcome.sent_s, 1), (max(outcome.end_s, outcome.sent_s), -1))
    )
