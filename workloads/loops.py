"""Sending a share of a replay's requests from one process, and accounting for each that was begun.

Open loops send at the scheduled time whatever the server does; closed loops keep N requests in flight. Turns of a
session never overtake each other. What there is to send is `replay.py`; several processes are `processes.py`.
"""

import asyncio
import gc
import time
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace

from workloads.client import Client, Clock, Wire
from workloads.outcome import RequestOutcome
from workloads.stream import StreamLog, read_outcome
from workloads.timer import Timer
from workloads.wire import Target

HEARTBEAT_S = 0.02
"""Period of the task that measures how late the event loop runs."""

MAX_UNREAD_BYTES = 128 * 1024 * 1024
"""Streams are read after the replay, unless this much has piled up."""

READS_AT_ONCE = 64
"""Reads that are parsed between two looks at the sockets, where streams are read during the replay: about 0.2 ms."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request in its place.

    Attributes:
        index: Its position among all requests of the replay.
        block: Position of its block.
        request_id: `Request.id`.
        wire: What is sent.
        due_s: When it is due in an open loop, after the start; None in a closed loop.
        think_s: Seconds after the end of the turn before it, where that is what it waits for.
    """

    index: int
    block: int
    request_id: str
    wire: Wire
    due_s: float | None
    think_s: float | None


@dataclass(frozen=True, slots=True)
class Share:
    """What one process sends.

    Attributes:
        target: The server.
        sessions: Turns that wait for each other, in the order in which they begin.
        concurrency: Requests to hold in flight; None for an open loop.
        connections: How many to make before the start.
        deadline_s: When what is unfinished is given up, after the start.
        request_timeout_s: Limit on one request.
        keep_text: Whether outcomes have the generated text.
    """

    target: Target
    sessions: tuple[tuple[Turn, ...], ...]
    concurrency: int | None
    connections: int
    deadline_s: float
    request_timeout_s: float
    keep_text: bool


@dataclass(frozen=True, slots=True)
class ShareResult:
    """What one process observed.

    Attributes:
        outcomes: By `Turn.index`, of every request that was begun.
        lag_s: By `Turn.index`, how late it left.
        loop_lag_s: Lateness of a task that wakes every 20 ms.
        started_s: Reading of `time.perf_counter` at the start.
        duration_s: From the start to the end of the last request.
        cpu_s: CPU time of this process meanwhile, all threads.
    """

    outcomes: dict[int, RequestOutcome]
    lag_s: dict[int, float]
    loop_lag_s: "array[float]"
    started_s: float
    duration_s: float
    cpu_s: float


@dataclass(slots=True)
class _Run:
    """A share while it is being sent."""

    share: Share
    client: Client
    clock: Clock
    timer: Timer
    logs: dict[int, StreamLog] = field(default_factory=dict)
    ended: deque[StreamLog] = field(default_factory=deque)
    unread_bytes: int = 0

    async def send(self, turn: Turn, *, ready_s: float | None = None) -> None:
        """Send a turn and see it through; `ready_s` is when it should have left, None for at once."""
        log = StreamLog(keep_text=self.share.keep_text)
        self.logs[turn.index] = log
        if turn.due_s is not None:
            log.scheduled_s = ready_s if turn.think_s is not None else turn.due_s
        log.ready_s = ready_s
        await self.client.send(turn.wire, log, self.clock)
        self.unread_bytes += log.noted_bytes
        self.ended.append(log)

    async def sleep_until(self, moment_s: float) -> None:
        """Wait until so many seconds after the start."""
        await self.timer.until(self.clock.started_s + moment_s)

    async def read_early(self) -> None:
        """Parse ended streams while the replay goes on, whenever too much has piled up."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            while self.unread_bytes > MAX_UNREAD_BYTES and self.ended:
                while self.ended[0].reads:
                    self.unread_bytes -= self.ended[0].digest(READS_AT_ONCE)
                    await asyncio.sleep(0)
                self.ended.popleft()


async def drive(share: Share, start: Callable[[], Awaitable[float]], next_session: Callable[[], int]) -> ShareResult:
    """Send a share.

    Args:
        share: What to send.
        start: Called when everything is ready; its result is the clock reading that times count from.
        next_session: Gives the position of the next session that a closed loop takes.

    Raises:
        asyncio.CancelledError: when cancelled; all requests are cancelled and connections closed before.
    """
    client, timer = Client(share.target, share.request_timeout_s), Timer()
    # What exists by now is not looked at by the garbage collector while streams are timed.
    gc.freeze()
    try:
        await client.open(share.connections)
        cpu_started_s = time.process_time()
        run = _Run(share, client, Clock(await start()), timer)
        drive_all = _open_loop(run) if share.concurrency is None else _closed_loop(run, share.concurrency, next_session)
        loop_lag_s = await _until_deadline(run, drive_all)
        duration_s, cpu_s = run.clock.now_s(), time.process_time() - cpu_started_s
    finally:
        await client.close()
        timer.close()
        gc.unfreeze()
    turns = {turn.index: turn for session in share.sessions for turn in session}
    outcomes = {
        index: _without_key(read_outcome(log, turns[index].request_id, turns[index].block), share.target.api_key)
        for index, log in run.logs.items()
    }
    lag_s = {index: log.lag_s for index, log in run.logs.items() if log.lag_s is not None}
    return ShareResult(outcomes, lag_s, loop_lag_s, run.clock.started_s, duration_s, cpu_s)


def _without_key(outcome: RequestOutcome, api_key: str) -> RequestOutcome:
    """A server may quote the request's own headers in its refusal."""
    if not api_key or outcome.error_detail is None or api_key not in outcome.error_detail:
        return outcome
    return replace(outcome, error_detail=outcome.error_detail.replace(api_key, "[redacted]"))


async def _until_deadline(run: _Run, sending: Coroutine[None, None, None]) -> "array[float]":
    """Let the replay run until it is done or its time is up; returns how late the event loop was meanwhile."""
    loop_lag_s: array[float] = array("d")
    aside = [asyncio.create_task(_heartbeat(loop_lag_s)), asyncio.create_task(run.read_early())]
    try:
        async with asyncio.timeout(run.share.deadline_s - run.clock.now_s()):
            await sending
    except TimeoutError:
        pass  # whatever has no outcome by now is accounted for as abandoned
    finally:
        for task in aside:
            task.cancel()
        await asyncio.wait(aside)
    return loop_lag_s


async def _closed_loop(run: _Run, concurrency: int, next_session: Callable[[], int]) -> None:
    """As many workers as requests in flight; each takes the next session and sends its turns one after the other."""
    sessions = run.share.sessions
    await run.sleep_until(0.0)

    async def work() -> None:
        while (position := next_session()) < len(sessions):
            for turn in sessions[position]:
                if turn.think_s is None:
                    await run.send(turn)
                else:
                    ready_s = run.clock.now_s() + turn.think_s
                    await run.sleep_until(ready_s)
                    await run.send(turn, ready_s=ready_s)

    async with asyncio.TaskGroup() as workers:
        for _ in range(min(concurrency, len(sessions))):
            workers.create_task(work())


async def _open_loop(run: _Run) -> None:
    """Each session starts when its first turn is due; a later turn waits for its time and for the turn before it."""

    async def play(turns: tuple[Turn, ...]) -> None:
        previous_end_s = 0.0
        for turn in turns:
            ready_s = max(turn.due_s or 0.0, previous_end_s)
            if turn.think_s is not None:
                ready_s = previous_end_s + turn.think_s
            await run.sleep_until(ready_s)
            await run.send(turn, ready_s=ready_s)
            previous_end_s = run.clock.now_s()

    async with asyncio.TaskGroup() as players:
        for turns in sorted(run.share.sessions, key=lambda turns: turns[0].due_s or 0.0):
            await run.sleep_until(turns[0].due_s or 0.0)
            players.create_task(play(turns))


async def _heartbeat(lag_s: "array[float]") -> None:
    while True:
        expected_s = time.perf_counter() + HEARTBEAT_S
        await asyncio.sleep(HEARTBEAT_S)
        lag_s.append(max(0.0, time.perf_counter() - expected_s))
