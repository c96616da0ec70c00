"""Numbers that follow from what a replay observed. Pure: nothing here sends, waits or reads a clock.

Block windows divide one continuous run, so that blocks can be compared without pauses between them: a block's window
opens when its first request is sent and closes when the next block's is. The last window of a closed loop closes at
the first completion at which no request is left to be sent, before the load falls; that of an open loop at the last
completion. The tokens of a window are those that arrived in it, whichever request they belong to.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workloads.errors import WorkloadError
from workloads.outcome import RequestOutcome
from workloads.replay import ReplayResult

Floats = npt.NDArray[np.float64]
Window = tuple[float, float]
SLO_KEYS = ("ttft_s", "tpot_s", "e2e_s")


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean and quantiles of a quantity in its own unit (linear interpolation between ranks, as numpy's default)."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    maximum: float


@dataclass(frozen=True, slots=True)
class BlockMetrics:
    """One block of a replay.

    Attributes:
        block: Its position in the sequence given to the replay.
        window_s: Length of its window; 0 if no request of it was sent.
        output_tok_s: Tokens that arrived in the window per second; None for an empty window.
        requests: Requests of the block.
        failed: Those of them that failed.
        ttft_s: Of the block's own successful requests, as are the next two; None if there is none to measure.
        tpot_s: Time per output token.
        e2e_s: Time from sending to the end.
    """

    block: int
    window_s: float
    output_tok_s: float | None
    requests: int
    failed: int
    ttft_s: Distribution | None
    tpot_s: Distribution | None
    e2e_s: Distribution | None


@dataclass(frozen=True, slots=True)
class ReplayMetrics:
    """A whole replay. Distributions are over successful requests; None where there is nothing to measure.

    Attributes:
        requests: All requests; `completed + failed`.
        completed: Those without an error.
        failed: Those with one, abandoned ones included.
        errors: Failed requests by class.
        duration_s: From the start to the end of the last request.
        window_s: Length of the union of the block windows.
        output_tok_s: Tokens that arrived in the windows per second of them; None without windows.
        request_rate: Successful completions in the windows per second of them; None without windows.
        prompt_tokens: Of all requests, where the server said.
        completion_tokens: Of all requests.
        cached_tokens: Prompt tokens from the prefix cache; None if the server never said.
        ttft_s: First event with tokens minus sending.
        tpot_s: See `RequestOutcome.tpot_s`.
        chunk_gap_s: Between events that carry tokens; not a time per token, because an event carries several.
        tokens_per_chunk: Mean tokens of an event after a request's first; None without such events.
        e2e_s: End minus sending.
        e2e_scheduled_s: End minus the time it was due; None in a closed loop, where nothing is due.
        goodput_share: Share of all requests that completed within every SLO; None without SLOs.
        goodput_rate: Those requests per second of the whole replay; None without SLOs.
        in_flight_mean: Mean number of requests between their sending and their end, over the windows.
        full_load_s: Start and end of the time at full load: in a closed loop from the first to the last moment at which
            the most requests were in flight; in an open loop the whole of the windows. None if nothing was sent.
        send_lag_s: How late requests left the client; None if none was sent.
        loop_lag_s: How late the client's event loop ran; None in a replay shorter than a heartbeat.
        client_cpu_share: CPU time of the client per second of the replay; near 1 it is the client that is measured.
        chunk_tokens_estimated: Some server answers had no running token counts, so that tokens within a request are
            placed in time by estimate.
        blocks: One for each block that was replayed, in its order.
    """

    requests: int
    completed: int
    failed: int
    errors: Mapping[str, int]
    duration_s: float
    window_s: float
    output_tok_s: float | None
    request_rate: float | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None
    ttft_s: Distribution | None
    tpot_s: Distribution | None
    chunk_gap_s: Distribution | None
    tokens_per_chunk: float | None
    e2e_s: Distribution | None
    e2e_scheduled_s: Distribution | None
    goodput_share: float | None
    goodput_rate: float | None
    in_flight_mean: float | None
    full_load_s: Window | None
    send_lag_s: Distribution | None
    loop_lag_s: Distribution | None
    client_cpu_share: float
    chunk_tokens_estimated: bool
    blocks: tuple[BlockMetrics, ...]


def summarise(result: ReplayResult, *, slo: Mapping[str, float] | None = None) -> ReplayMetrics:
    """Compute the metrics of a replay.

    Args:
        result: What the replay observed.
        slo: Upper limits in seconds, by any of `ttft_s`, `tpot_s` and `e2e_s`.

    Raises:
        WorkloadError: if an SLO is on anything else.
    """
    _check_slo(slo or {})
    outcomes = result.outcomes
    completed = [outcome for outcome in outcomes if outcome.error is None]
    windows = block_windows(outcomes, open_loop=result.load.is_open_loop)
    union = _union(windows)
    length_s = union[1] - union[0] if union else 0.0
    arrivals = _token_arrivals(outcomes)
    good = None if not slo else sum(_meets(outcome, slo) for outcome in completed)
    gaps_s, tokens_per_chunk = _chunk_gaps(completed)
    return ReplayMetrics(
        requests=len(outcomes),
        completed=len(completed),
        failed=len(outcomes) - len(completed),
        errors=dict(Counter(outcome.error for outcome in outcomes if outcome.error is not None)),
        duration_s=result.duration_s,
        window_s=length_s,
        output_tok_s=_rate(_tokens_in(arrivals, union, closed=True), length_s),
        request_rate=_rate(_completions_in(completed, union), length_s),
        prompt_tokens=sum(outcome.prompt_tokens or 0 for outcome in outcomes),
        completion_tokens=sum(outcome.completion_tokens for outcome in outcomes),
        cached_tokens=_sum_known(outcome.cached_tokens for outcome in outcomes),
        ttft_s=_distribution(outcome.ttft_s for outcome in completed),
        tpot_s=_distribution(outcome.tpot_s for outcome in completed),
        chunk_gap_s=_distribution(gaps_s),
        tokens_per_chunk=tokens_per_chunk,
        e2e_s=_distribution(outcome.e2e_s for outcome in completed),
        e2e_scheduled_s=_distribution(o.e2e_scheduled_s for o in completed if result.load.is_open_loop),
        goodput_share=None if good is None or not outcomes else good / len(outcomes),
        goodput_rate=None if good is None else _rate(good, result.duration_s),
        in_flight_mean=in_flight_mean(outcomes, union) if union else None,
        full_load_s=union if result.load.is_open_loop else _peak_span(outcomes),
        send_lag_s=_distribution(lag for lag in result.send_lag_s if not math.isnan(lag)),
        loop_lag_s=_distribution(result.loop_lag_s),
        client_cpu_share=result.client_cpu_s / result.duration_s if result.duration_s else 0.0,
        chunk_tokens_estimated=any(outcome.chunk_tokens_estimated for outcome in outcomes),
        blocks=_blocks(outcomes, windows, arrivals),
    )


def block_windows(outcomes: Sequence[RequestOutcome], *, open_loop: bool) -> dict[int, Window]:
    """Start and end of each block's window, by block; blocks of which nothing was sent have none."""
    starts_s: dict[int, float] = {}
    for outcome in outcomes:
        if outcome.sent_s is not None:
            starts_s[outcome.block] = min(outcome.sent_s, starts_s.get(outcome.block, math.inf))
    if not starts_s:
        return {}
    ends_s = [outcome.end_s for outcome in outcomes if outcome.sent_s is not None]
    if open_loop:
        end_s = max(ends_s)
    else:
        last_sent_s = max(outcome.sent_s for outcome in outcomes if outcome.sent_s is not None)
        # Strictly later: a completion at that very instant is the one that made room for the last sending.
        end_s = min((end for end in ends_s if end > last_sent_s), default=last_sent_s)
    order = sorted(starts_s, key=lambda block: (starts_s[block], block))
    bounds_s = [starts_s[block] for block in order] + [end_s]
    return {block: (bounds_s[place], bounds_s[place + 1]) for place, block in enumerate(order)}


def in_flight_mean(outcomes: Iterable[RequestOutcome], window: Window) -> float | None:
    """Mean number of requests in flight during `window`; None for an empty one."""
    start_s, end_s = window
    busy_s = sum(
        max(0.0, min(outcome.end_s, end_s) - max(outcome.sent_s, start_s))
        for outcome in outcomes
        if outcome.sent_s is not None
    )
    return _rate(busy_s, end_s - start_s)


def _blocks(
    outcomes: Sequence[RequestOutcome], windows: Mapping[int, Window], arrivals: tuple[Floats, Floats]
) -> tuple[BlockMetrics, ...]:
    by_block: dict[int, list[RequestOutcome]] = {}
    for outcome in outcomes:
        by_block.setdefault(outcome.block, []).append(outcome)
    last = max(windows.values(), key=lambda window: window[1], default=None)
    blocks = []
    for block, own in sorted(by_block.items()):
        window = windows.get(block)
        length_s = window[1] - window[0] if window else 0.0
        completed = [outcome for outcome in own if outcome.error is None]
        blocks.append(
            BlockMetrics(
                block=block,
                window_s=length_s,
                output_tok_s=_rate(_tokens_in(arrivals, window, closed=window == last), length_s),
                requests=len(own),
                failed=len(own) - len(completed),
                ttft_s=_distribution(outcome.ttft_s for outcome in completed),
                tpot_s=_distribution(outcome.tpot_s for outcome in completed),
                e2e_s=_distribution(outcome.e2e_s for outcome in completed),
            )
        )
    return tuple(blocks)


def _token_arrivals(outcomes: Sequence[RequestOutcome]) -> tuple[Floats, Floats]:
    """Arrival times in order, and the number of tokens that had arrived by each of them."""
    with_tokens = [outcome for outcome in outcomes if outcome.chunk_s]
    if not with_tokens:
        return np.empty(0), np.empty(0)
    times_s = np.concatenate([np.asarray(outcome.chunk_s) for outcome in with_tokens])
    tokens = np.concatenate([np.diff(np.asarray(outcome.chunk_tokens), prepend=0) for outcome in with_tokens])
    order = np.argsort(times_s, kind="stable")
    return times_s[order], np.cumsum(tokens[order]).astype(np.float64)


def _tokens_in(arrivals: tuple[Floats, Floats], window: Window | None, *, closed: bool) -> float:
    """Tokens that arrived in a window; its end belongs to it only if it is `closed`, so that windows do not overlap."""
    times_s, running = arrivals
    if window is None or not times_s.size:
        return 0.0
    first = int(np.searchsorted(times_s, window[0], side="left"))
    end = int(np.searchsorted(times_s, window[1], side="right" if closed else "left"))
    return float((running[end - 1] if end else 0.0) - (running[first - 1] if first else 0.0))


def _completions_in(completed: Iterable[RequestOutcome], window: Window | None) -> int:
    return sum(window[0] <= outcome.end_s <= window[1] for outcome in completed) if window else 0


def _union(windows: Mapping[int, Window]) -> Window | None:
    """The windows divide one run without gaps, so their union is an interval."""
    if not windows:
        return None
    return min(start for start, _ in windows.values()), max(end for _, end in windows.values())


def _peak_span(outcomes: Sequence[RequestOutcome]) -> Window | None:
    """From the first to the last moment at which the most requests were in flight."""
    # An end before a sending at the same instant: the freed place is taken again.
    moves = sorted(move for o in outcomes if o.sent_s is not None for move in ((o.sent_s, 1), (o.end_s, -1)))
    level, peak, first_s, last_s = 0, 0, 0.0, 0.0
    for moment_s, change in moves:
        if change < 0 and level == peak:
            last_s = moment_s
        level += change
        if level > peak:
            peak, first_s, last_s = level, moment_s, moment_s
    return (first_s, last_s) if peak else None


def _chunk_gaps(outcomes: Iterable[RequestOutcome]) -> tuple[list[float], float | None]:
    gaps_s: list[float] = []
    tokens = 0
    for outcome in outcomes:
        if len(outcome.chunk_s) > 1:
            gaps_s.extend(np.diff(np.asarray(outcome.chunk_s)).tolist())
            tokens += outcome.chunk_tokens[-1] - outcome.chunk_tokens[0]
    return gaps_s, (tokens / len(gaps_s) if gaps_s else None)


def _meets(outcome: RequestOutcome, slo: Mapping[str, float]) -> bool:
    """Whether a successful request kept every limit. Fewer than two tokens have no time per token to break one."""
    values = {
        "ttft_s": outcome.e2e_s if outcome.ttft_s is None else outcome.ttft_s,
        "tpot_s": outcome.tpot_s or 0.0,
        "e2e_s": outcome.e2e_s,
    }
    return all((value := values[name]) is not None and value <= limit_s for name, limit_s in slo.items())


def _check_slo(slo: Mapping[str, float]) -> None:
    for name in slo:
        if name not in SLO_KEYS:
            raise WorkloadError(f'an SLO on "{name}" cannot be judged per request; use one of {", ".join(SLO_KEYS)}')


def _distribution(values: Iterable[float | None]) -> Distribution | None:
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    if not known.size:
        return None
    p50, p90, p99 = np.quantile(known, (0.5, 0.9, 0.99))
    return Distribution(known.size, float(known.mean()), float(p50), float(p90), float(p99), float(known.max()))


def _rate(amount: float, length_s: float) -> float | None:
    return amount / length_s if length_s > 0 else None


def _sum_known(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
