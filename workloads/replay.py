"""Sending the requests of blocks to a server under a load, and accounting for each of them exactly once.

Open loops send at the scheduled time whatever the server does; closed loops keep N requests in flight. Turns of a
session never overtake each other. Which numbers follow from the outcomes is `metrics.py`; whether they are valid is
the caller's.
"""

import asyncio
import time
from array import array
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field

import aiohttp
from yarl import URL

from workloads.client import Clock, Wire, open_connections, open_session, send
from workloads.load import Load
from workloads.outcome import RequestOutcome, StreamLog, read_outcome
from workloads.profile import Block
from workloads.request import Request
from workloads.schedule import schedule
from workloads.wire import Overrides, Target, wire_body

HEARTBEAT_S = 0.02
"""Period of the task that measures how late the event loop runs."""

OPEN_LOOP_CONNECTIONS = 32
"""Connections made before an open loop starts; further ones are made when needed."""

MAX_UNREAD_BYTES = 128 * 1024 * 1024
"""Streams are read after the replay, unless this much has piled up."""


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
        loop_lag_s: Lateness of a task that wakes every 20 ms: the event loop's own delay.
        client_cpu_s: CPU time of this process during the replay, all threads.
    """

    outcomes: tuple[RequestOutcome, ...]
    duration_s: float
    load: Load
    started_s: float
    send_lag_s: "array[float]"
    loop_lag_s: "array[float]"
    client_cpu_s: float


@dataclass(frozen=True, slots=True)
class _Turn:
    """One request in its place; `index` is its position among all requests of the replay."""

    index: int
    block: int
    request: Request


@dataclass(slots=True)
class _Run:
    """A replay while it runs."""

    session: aiohttp.ClientSession
    turns: list[_Turn]
    wires: list[Wire]
    keep_text: bool
    clock: Clock
    logs: list[StreamLog] = field(default_factory=list)
    outcomes: dict[int, RequestOutcome] = field(default_factory=dict)
    unread_bytes: int = 0

    async def send(self, turn: _Turn) -> None:
        log = self.logs[turn.index]
        await send(self.session, self.wires[turn.index], log, self.clock)
        size = sum(map(len, log.reads))
        if self.unread_bytes + size > MAX_UNREAD_BYTES:
            self.read(turn)
        else:
            self.unread_bytes += size

    def read(self, turn: _Turn) -> None:
        """Turn the notes of a request that will not change any more into its outcome."""
        if turn.index not in self.outcomes:
            log = self.logs[turn.index]
            self.outcomes[turn.index] = read_outcome(log, turn.request.id, turn.block, keep_text=self.keep_text)
            log.reads.clear()


async def replay(
    target: Target,
    blocks: Sequence[Block],
    load: Load,
    *,
    temperature: float | None = None,
    seed: int | None = 0,
    cache_salt: str | None = None,
    deadline_s: float = 600,
    request_timeout_s: float = 300,
    keep_text: bool = False,
) -> ReplayResult:
    """Send all requests of `blocks` in one continuous run.

    Args:
        target: The server.
        blocks: Sent in this order, without a pause between them.
        load: How they are sent.
        temperature: Replaces the recorded temperature; None sends what was recorded.
        seed: Seeds the arrivals of a rate, and the sampling of requests that have no seed of their own. None leaves
            their sampling to the server (per-request seeds cost an engine some speed).
        cache_salt: Separates this measurement's prefix cache from all others.
        deadline_s: After this time the replay stops; what is unfinished is abandoned, on the server too.
        request_timeout_s: Limit on one request.
        keep_text: Keep the generated text in the outcomes.

    Raises:
        LoadError: if the load is recorded time and a request has no timestamp.
        asyncio.CancelledError: when cancelled; all requests are cancelled and connections closed before.
    """
    turns = _turns(blocks)
    requests = [turn.request for turn in turns]
    due_s = schedule(requests, load, seed or 0) if load.is_open_loop else None
    sessions = _sessions(turns)
    wires = _wires(requests, target, Overrides(temperature, seed, cache_salt))
    async with open_session(target, request_timeout_s) as session:
        await open_connections(session, target, _connection_count(load, len(sessions)))
        cpu_started_s = time.process_time()
        run = _Run(session, turns, wires, keep_text, Clock(), [StreamLog() for _ in turns])
        drive = _closed_loop(run, sessions, int(load.value)) if due_s is None else _open_loop(run, sessions, due_s)
        loop_lag_s = await _until_deadline(run, drive, deadline_s)
        duration_s, client_cpu_s = run.clock.now_s(), time.process_time() - cpu_started_s
    for turn in turns:
        run.read(turn)
    return ReplayResult(
        outcomes=tuple(run.outcomes[turn.index] for turn in turns),
        duration_s=duration_s,
        load=load,
        started_s=run.clock.started_s,
        send_lag_s=array("d", (log.lag_s for log in run.logs)),
        loop_lag_s=loop_lag_s,
        client_cpu_s=client_cpu_s,
    )


async def _until_deadline(run: _Run, drive: Coroutine[None, None, None], deadline_s: float) -> "array[float]":
    """Let the replay run until it is done or its time is up; returns how late the event loop was meanwhile."""
    loop_lag_s: array[float] = array("d")
    heartbeat = asyncio.create_task(_heartbeat(loop_lag_s))
    try:
        async with asyncio.timeout(deadline_s):
            await drive
    except TimeoutError:
        _abandon_unsent(run)
    finally:
        heartbeat.cancel()
        await asyncio.wait([heartbeat])
    return loop_lag_s


async def _closed_loop(run: _Run, sessions: list[list[_Turn]], concurrency: int) -> None:
    """As many workers as requests in flight; each takes the next session and sends its turns without think time."""
    waiting = deque(sessions)

    async def work() -> None:
        while waiting:
            for turn in waiting.popleft():
                await run.send(turn)
                run.logs[turn.index].lag_s = 0.0

    async with asyncio.TaskGroup() as workers:
        for _ in range(min(concurrency, len(sessions))):
            workers.create_task(work())


async def _open_loop(run: _Run, sessions: list[list[_Turn]], due_s: "array[float]") -> None:
    """Each session starts when its first turn is due; a later turn waits for its time and for the turn before it."""

    async def play(turns: list[_Turn]) -> None:
        previous_end_s = 0.0
        for turn in turns:
            log = run.logs[turn.index]
            ready_s = max(due_s[turn.index], previous_end_s)
            await _sleep_until(ready_s, run.clock)
            log.lag_s = run.clock.now_s() - ready_s
            await run.send(turn)
            previous_end_s = run.clock.now_s()

    for turns in sessions:
        for turn in turns:
            run.logs[turn.index].scheduled_s = due_s[turn.index]
    async with asyncio.TaskGroup() as players:
        for turns in sorted(sessions, key=lambda turns: due_s[turns[0].index]):
            await _sleep_until(due_s[turns[0].index], run.clock)
            players.create_task(play(turns))


async def _sleep_until(due_s: float, clock: Clock) -> None:
    remaining_s = due_s - clock.now_s()
    if remaining_s > 0:
        await asyncio.sleep(remaining_s)


async def _heartbeat(lag_s: "array[float]") -> None:
    while True:
        expected_s = time.perf_counter() + HEARTBEAT_S
        await asyncio.sleep(HEARTBEAT_S)
        lag_s.append(max(0.0, time.perf_counter() - expected_s))


def _abandon_unsent(run: _Run) -> None:
    now_s = run.clock.now_s()
    for log in run.logs:
        if log.sent_s is None:
            log.error, log.error_detail, log.end_s = "abandoned", "not sent before the deadline", now_s


def _turns(blocks: Sequence[Block]) -> list[_Turn]:
    placed = [(position, request) for position, block in enumerate(blocks) for request in block.requests]
    return [_Turn(index, position, request) for index, (position, request) in enumerate(placed)]


def _sessions(turns: list[_Turn]) -> list[list[_Turn]]:
    """Turns of one session of one block together, sessions in the order of their first turn.

    Grouped within a block, because a caller may replay the same block twice.
    """
    groups: dict[tuple[int, str] | int, list[_Turn]] = {}
    for turn in turns:
        session = turn.request.session
        groups.setdefault(turn.index if session is None else (turn.block, session), []).append(turn)
    return list(groups.values())


def _wires(requests: list[Request], target: Target, overrides: Overrides) -> list[Wire]:
    urls = {endpoint: URL(target.base_url + endpoint) for endpoint in {request.endpoint for request in requests}}
    return [Wire(urls[request.endpoint], wire_body(request, target.model, overrides)) for request in requests]


def _connection_count(load: Load, sessions: int) -> int:
    return min(OPEN_LOOP_CONNECTIONS if load.is_open_loop else int(load.value), sessions)
