"""A replay: what is to be sent for which request, and one outcome for every request whatever happens.

Sending is `loops.py`, on several processes `processes.py`. Which numbers follow from the outcomes is `metrics.py`;
whether they are valid is the caller's.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from workloads.client import Wire
from workloads.errors import WorkloadError
from workloads.load import Load
from workloads.loops import Share, ShareResult, Turn
from workloads.outcome import RequestOutcome
from workloads.processes import drive_here, drive_in_processes
from workloads.profile import Block
from workloads.request import Request
from workloads.schedule import schedule, think_times
from workloads.stream import StreamLog, read_outcome
from workloads.wire import Overrides, Target, wire_body

OPEN_LOOP_CONNECTIONS = 32
"""Connections made before an open loop starts; further ones are made when needed."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Everything that a replay observed.

    Attributes:
        outcomes: One for each request, in the order of the blocks.
        duration_s: From the start to the end of the last request.
        load: How the replay was driven.
        started_s: `time.perf_counter()` at the start; lets a caller place its own observations in time.
        send_lag_s: How late each request left the client, as the outcomes are ordered: against its schedule, or the
            end of the turn before it where that came later. 0 in a closed loop, NaN for a request never sent.
        loop_lag_s: Lateness of a task that wakes every 20 ms: the event loop's own delay, in every client process.
        client_cpu_s: CPU time of the client processes during the replay, all threads.
        busiest_cpu_s: CPU time of the client process that needed most; None where it is all of it.
    """

    outcomes: tuple[RequestOutcome, ...]
    duration_s: float
    load: Load
    started_s: float
    send_lag_s: "array[float]"
    loop_lag_s: "array[float]"
    client_cpu_s: float
    busiest_cpu_s: float | None = None


async def replay(
    target: Target,
    blocks: Sequence[Block],
    load: Load,
    *,
    temperature: float | None = None,
    seed: int | None = 0,
    arrival_seed: int = 0,
    cache_salt: str | None = None,
    deadline_s: float = 600,
    request_timeout_s: float = 300,
    keep_text: bool = False,
    client_processes: int = 1,
) -> ReplayResult:
    """Send all requests of `blocks` in one continuous run.

    Args:
        target: The server.
        blocks: Sent in this order, without a pause between them.
        load: How they are sent.
        temperature: Replaces the recorded temperature; None sends what was recorded.
        seed: Seeds the sampling of requests that have no seed of their own. None leaves it to the server (per-request
            seeds cost an engine some speed).
        arrival_seed: Seeds the arrivals of a rate.
        cache_salt: Separates this measurement's prefix cache from all others.
        deadline_s: After this time the replay stops; what is unfinished is abandoned, on the server too.
        request_timeout_s: Limit on one request.
        keep_text: Keep the generated text in the outcomes.
        client_processes: Processes to send from: 1 is this one, more are processes of their own.

    Raises:
        LoadError: if the load needs recorded times and a request has none.
        WorkloadError: if the number of client processes is below 1, or one of them died.
        asyncio.CancelledError: when cancelled; all requests are cancelled and connections closed before.
    """
    if client_processes < 1:
        raise WorkloadError(f"the number of client processes is {client_processes}; it must be at least 1")
    placed = [(position, request) for position, block in enumerate(blocks) for request in block.requests]
    requests = [request for _, request in placed]
    due_s = schedule(requests, load, arrival_seed) if load.is_open_loop else None
    sessions = _sessions(placed, load, due_s, target.model, Overrides(temperature, seed, cache_salt))
    share = Share(
        target=target,
        sessions=sessions,
        concurrency=None if load.is_open_loop else int(load.value),
        connections=min(OPEN_LOOP_CONNECTIONS if load.is_open_loop else int(load.value), len(sessions)),
        deadline_s=deadline_s,
        request_timeout_s=request_timeout_s,
        keep_text=keep_text,
    )
    if client_processes == 1 or not sessions:
        parts = await drive_here(share)
    else:
        parts = await drive_in_processes(share, client_processes)
    return _merge(parts, sessions, len(placed), load)


def _merge(parts: Sequence[ShareResult], sessions: Sequence[Sequence[Turn]], requests: int, load: Load) -> ReplayResult:
    """The parts as one result, in which what nobody sent is accounted for too."""
    duration_s = max(part.duration_s for part in parts)
    outcomes = {index: outcome for part in parts for index, outcome in part.outcomes.items()}
    lag_s = {index: lag for part in parts for index, lag in part.lag_s.items()}
    for turns in sessions:
        for turn in turns:
            if turn.index not in outcomes:
                outcomes[turn.index] = _never_sent(turn, duration_s)
    return ReplayResult(
        outcomes=tuple(outcomes[index] for index in range(requests)),
        duration_s=duration_s,
        load=load,
        started_s=parts[0].started_s,
        send_lag_s=array("d", (lag_s.get(index, math.nan) for index in range(requests))),
        loop_lag_s=array("d", (lag for part in parts for lag in part.loop_lag_s)),
        client_cpu_s=sum(part.cpu_s for part in parts),
        busiest_cpu_s=max(part.cpu_s for part in parts) if len(parts) > 1 else None,
    )


def _never_sent(turn: Turn, end_s: float) -> RequestOutcome:
    log = StreamLog(scheduled_s=turn.due_s, end_s=end_s, error="abandoned", error_detail="not sent before the deadline")
    return read_outcome(log, turn.request_id, turn.block)


def _sessions(
    placed: Sequence[tuple[int, Request]],
    load: Load,
    due_s: "array[float] | None",
    model: str,
    overrides: Overrides,
) -> tuple[tuple[Turn, ...], ...]:
    """Turns of one session of one block together, sessions in the order of their first turn.

    Grouped within a block, because a caller may replay the same block twice.
    """
    groups: dict[tuple[int, str] | int, list[int]] = {}
    for index, (block, request) in enumerate(placed):
        groups.setdefault(index if request.session is None else (block, request.session), []).append(index)
    sessions = []
    for indices in groups.values():
        think_s = think_times([placed[index][1] for index in indices], load)
        sessions.append(
            tuple(
                Turn(
                    index=index,
                    block=placed[index][0],
                    request_id=placed[index][1].id,
                    wire=Wire(placed[index][1].endpoint, wire_body(placed[index][1], model, overrides)),
                    due_s=None if due_s is None else due_s[index],
                    think_s=think,
                )
                for index, think in zip(indices, think_s, strict=True)
            )
        )
    return tuple(sessions)
