"""Numbers that follow from what a replay observed. Pure: nothing here sends, waits or reads a clock.

Latencies are of single requests and follow vLLM's definitions; throughput is of windows of time, see `windows.py`.
Whether a measurement is valid is the caller's to judge, from the lags and the load reported here.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workloads.errors import WorkloadError
from workloads.outcome import RequestOutcome
from workloads.replay import ReplayResult
from workloads.windows import (
    Arrivals,
    Floats,
    Window,
    block_windows,
    in_flight_mean,
    own_times_s,
    peak_span,
    token_arrivals,
    tokens_in,
    union,
)

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
        output_tok_s: Tokens of whichever request that arrived in the window, per second; None for an empty window.
            Means nothing when the block has fewer sessions than requests were in flight.
        own_s: The block's share of the time at full load: each moment divided equally among the requests in flight.
        own_tok_s: Tokens of the block's own requests at full load per second of its own time: the figure to pair
            blocks by, because it is about the same requests whatever else was running. None without such time.
        requests: Requests of the block.
        failed: Those of them that failed.
        ttft_s: Of the block's own successful requests, as are the next two; None if there is none to measure.
        tpot_s: Time per output token.
        e2e_s: Time from sending to the end.
    """

    block: int
    window_s: float
    output_tok_s: float | None
    own_s: float
    own_tok_s: float | None
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
        sent: Those that the client began to send; the rest were abandoned before.
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
    sent: int
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
    whole = union(windows)
    length_s = whole[1] - whole[0] if whole else 0.0
    arrivals = token_arrivals(outcomes)
    tokens = tokens_in(arrivals, whole, closed=True) if whole else 0.0
    good = None if not slo else sum(_meets(outcome, slo) for outcome in completed)
    gaps_s, tokens_per_chunk = _chunk_gaps(completed)
    return ReplayMetrics(
        requests=len(outcomes),
        completed=len(completed),
        failed=len(outcomes) - len(completed),
        sent=sum(outcome.sent_s is not None for outcome in outcomes),
        errors=dict(Counter(outcome.error for outcome in outcomes if outcome.error is not None)),
        duration_s=result.duration_s,
        window_s=length_s,
        output_tok_s=_rate(tokens, length_s),
        request_rate=_rate(_completions_in(completed, whole), length_s),
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
        in_flight_mean=in_flight_mean(outcomes, whole) if whole else None,
        full_load_s=whole if result.load.is_open_loop else peak_span(outcomes),
        send_lag_s=_distribution(lag for lag in result.send_lag_s if not math.isnan(lag)),
        loop_lag_s=_distribution(result.loop_lag_s),
        client_cpu_share=_busiest_share(result),
        chunk_tokens_estimated=any(outcome.chunk_tokens_estimated for outcome in outcomes),
        blocks=_blocks(outcomes, windows, arrivals),
    )


def _blocks(
    outcomes: Sequence[RequestOutcome], windows: Mapping[int, Window], arrivals: Arrivals
) -> tuple[BlockMetrics, ...]:
    by_block: dict[int, list[RequestOutcome]] = {}
    for outcome in outcomes:
        by_block.setdefault(outcome.block, []).append(outcome)
    whole = union(windows)
    own_s = own_times_s(outcomes, whole) if whole else {}
    return tuple(
        _block(block, own, windows.get(block), whole=whole, own_s=own_s.get(block, 0.0), arrivals=arrivals)
        for block, own in sorted(by_block.items())
    )


def _block(
    block: int,
    own: Sequence[RequestOutcome],
    window: Window | None,
    *,
    whole: Window | None,
    own_s: float,
    arrivals: Arrivals,
) -> BlockMetrics:
    length_s = window[1] - window[0] if window else 0.0
    is_last = window is not None and whole is not None and window[1] == whole[1]
    tokens = tokens_in(arrivals, window, closed=is_last) if window else 0.0
    own_tokens = tokens_in(token_arrivals(own), whole, closed=True) if whole else 0.0
    completed = [outcome for outcome in own if outcome.error is None]
    return BlockMetrics(
        block=block,
        window_s=length_s,
        output_tok_s=_rate(tokens, length_s),
        own_s=own_s,
        own_tok_s=_rate(own_tokens, own_s),
        requests=len(own),
        failed=len(own) - len(completed),
        ttft_s=_distribution(outcome.ttft_s for outcome in completed),
        tpot_s=_distribution(outcome.tpot_s for outcome in completed),
        e2e_s=_distribution(outcome.e2e_s for outcome in completed),
    )


def _completions_in(completed: Iterable[RequestOutcome], window: Window | None) -> int:
    return sum(window[0] <= outcome.end_s <= window[1] for outcome in completed) if window else 0


def _chunk_gaps(outcomes: Iterable[RequestOutcome]) -> tuple[Floats, float | None]:
    with_gaps = [outcome for outcome in outcomes if len(outcome.chunk_s) > 1]
    gaps_s = np.concatenate([np.diff(np.asarray(outcome.chunk_s)) for outcome in with_gaps] or [np.empty(0)])
    tokens = sum(outcome.chunk_tokens[-1] - outcome.chunk_tokens[0] for outcome in with_gaps)
    return gaps_s, (tokens / gaps_s.size if gaps_s.size else None)


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
    known = (
        values if isinstance(values, np.ndarray) else np.array([v for v in values if v is not None], dtype=np.float64)
    )
    if not known.size:
        return None
    p50, p90, p99 = np.quantile(known, (0.5, 0.9, 0.99))
    return Distribution(known.size, float(known.mean()), float(p50), float(p90), float(p99), float(known.max()))


def _rate(amount: float, length_s: float) -> float | None:
    return amount / length_s if length_s > 0 else None


def _sum_known(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _busiest_share(result: ReplayResult) -> float:
    busiest_s = result.client_cpu_s if result.busiest_cpu_s is None else result.busiest_cpu_s
    return busiest_s / result.duration_s if result.duration_s else 0.0
