"""A replay's requests sent from several processes, for loads beyond what one core can send and read.

Each process is a fresh interpreter that runs `loops.drive` on its share; all of them count from one clock
reading (CLOCK_MONOTONIC is the host's). Sessions of an open loop are dealt out; those of a closed loop are
taken one by one from a common count, so that the load falls only when nothing is left.
"""

import asyncio
import multiprocessing
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.sharedctypes import Synchronized

import uvloop

from workloads.errors import WorkloadError
from workloads.loops import Share, ShareResult, drive

START_PAUSE_S = 0.05
"""From when all processes are ready to the start: enough for the message to reach each of them."""

END_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class _Worker:
    """A client process and the pipe to it."""

    number: int
    process: SpawnProcess
    pipe: "Connection[object, object]"


async def drive_here(share: Share) -> list[ShareResult]:
    """Send all of it from this process."""

    async def start() -> float:
        return time.perf_counter()

    return [await drive(share, start, count().__next__)]


async def drive_in_processes(share: Share, processes: int) -> list[ShareResult]:
    """Send a share from this many processes, or fewer where there is less to send at once.

    Raises:
        WorkloadError: a process ended before it had said what it observed.
        asyncio.CancelledError: when cancelled; the processes are ended before.
    """
    context = multiprocessing.get_context("spawn")
    shares = deal(share, processes)
    taken = context.Value("q", 0)
    workers: list[_Worker] = []
    try:
        for number, _ in enumerate(shares, start=1):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, taken), name=f"client-{number}", daemon=True)
            process.start()
            theirs.close()
            workers.append(_Worker(number, process, ours))
        await asyncio.gather(*(asyncio.to_thread(w.pipe.send, s) for w, s in zip(workers, shares, strict=True)))
        for worker in workers:
            await _receive(worker)
        started_s = time.perf_counter() + START_PAUSE_S
        for worker in workers:
            worker.pipe.send(started_s)
        results = [await _receive(worker) for worker in workers]
    finally:
        await asyncio.shield(asyncio.to_thread(_end, workers))
    return [result for result in results if isinstance(result, ShareResult)]


def deal(share: Share, processes: int) -> list[Share]:
    """Divide a share: sessions of an open loop in turn, the places of a closed loop as evenly as they go."""
    if share.concurrency is None:
        shares = max(1, min(processes, len(share.sessions)))
        in_order = sorted(share.sessions, key=lambda turns: turns[0].due_s or 0.0)
        connections = -(-share.connections // shares)
        return [
            replace(share, sessions=tuple(in_order[number::shares]), connections=connections)
            for number in range(shares)
        ]
    shares = max(1, min(processes, share.concurrency))
    places = [share.concurrency // shares + (number < share.concurrency % shares) for number in range(shares)]
    return [replace(share, concurrency=each, connections=min(each, share.connections)) for each in places]


async def _receive(worker: _Worker) -> object:
    try:
        return await asyncio.to_thread(worker.pipe.recv)
    except (EOFError, OSError) as error:
        await asyncio.to_thread(worker.process.join, END_TIMEOUT_S)
        raise WorkloadError(
            f"client process {worker.number} ended with exit code {worker.process.exitcode} during the replay; "
            "see its message above, or use fewer --client-processes if the host is short of memory"
        ) from error


def _end(workers: Sequence[_Worker]) -> None:
    """End what still runs. Its connections close with it, so the server sees its requests end."""
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        worker.process.join(END_TIMEOUT_S)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.pipe.close()


def _work(pipe: "Connection[object, object]", taken: "Synchronized[int]") -> None:
    """The life of a client process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the tuner ends its processes
    share = pipe.recv()
    if isinstance(share, Share):
        result = uvloop.run(_drive_when_told(share, pipe, taken))
        pipe.send(result)


async def _drive_when_told(share: Share, pipe: "Connection[object, object]", taken: "Synchronized[int]") -> ShareResult:
    loop = asyncio.get_running_loop()
    told: asyncio.Future[float] = loop.create_future()
    driving = asyncio.current_task()

    def listen() -> None:
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            message = None
        if isinstance(message, float):
            told.set_result(message)
        elif driving is not None:
            loop.remove_reader(pipe.fileno())
            driving.cancel()  # the one who asked is gone; nothing of it may go on

    async def start() -> float:
        pipe.send("ready")
        return await told

    def next_session() -> int:
        with taken.get_lock():
            position = taken.value
            taken.value = position + 1
        return position

    loop.add_reader(pipe.fileno(), listen)
    try:
        return await drive(share, start, next_session)
    finally:
        loop.remove_reader(pipe.fileno())
