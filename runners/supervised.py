"""The tuner's end of the line to one supervisor: start it, hear from it, order it to stop.

Knows processes and nothing of HTTP or of what an engine is.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners import supervisor
from runners.errors import EngineNotStopped, LaunchFailure

# What the supervisor itself may need after the engine's time to stop is over: orphans' grace, SIGKILL, clean-up.
_SUPERVISOR_LIMIT_S = 15.0


@dataclass(frozen=True, slots=True)
class StopReport:
    """How an engine ended.

    Attributes:
        returncode: Of its main process, negative for a signal; None when the supervisor itself was killed.
        stop_s: From the order to stop (or the engine's own end) until nothing was left, in seconds.
        killed: Processes that had to be killed, each ``PID name``.
        segments: Shared-memory segments that it left and that were removed.
    """

    returncode: int | None
    stop_s: float
    killed: tuple[str, ...]
    segments: tuple[str, ...]


class SupervisedProcess:
    """An engine's main process under a supervisor of its own.

    Attributes:
        pid: Of the engine's main process.
        supervisor_pid: Of the supervisor: the root of the launch's process tree.
        exited: Set when the main process has ended, or the supervisor has.
        finished: Set when the whole tree has.
        returncode: Of the main process, negative for a signal; None while it runs.
    """

    def __init__(self, process: Process, stop_timeout_s: float, scratch: Path | None) -> None:
        self._process = process
        self._scratch = scratch
        self._stop_timeout_s = stop_timeout_s
        self._stopped: dict[str, Any] | None = None
        self._started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read_events())
        self.pid = 0
        self.supervisor_pid = process.pid
        self.exited = asyncio.Event()
        self.finished = asyncio.Event()
        self.returncode: int | None = None

    @classmethod
    async def start(
        cls,
        argv: tuple[str, ...],
        *,
        env: Mapping[str, str],
        cwd: Path,
        log: Path,
        stop_timeout_s: float,
        starting_grace_s: float = supervisor.STARTING_GRACE_S,
        scratch: Path | None = None,
    ) -> SupervisedProcess:
        """Start ``argv``; its stdout and stderr go to ``log``, and ``scratch`` is removed when all of it has ended.

        Before it serves it gets at most ``starting_grace_s`` of its ``stop_timeout_s`` to end.

        Raises:
            LaunchFailure: It cannot be executed.
        """
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                supervisor.__file__,
                stdin=PIPE,
                stdout=PIPE,
                stderr=output,
                env=env,
                cwd=cwd,
                # Away from the terminal's process group: Ctrl-C is the tuner's to handle.
                start_new_session=True,
            )
        supervised = cls(process, stop_timeout_s, scratch)
        supervised._send(
            argv=argv,
            tuner_pid=os.getpid(),
            stop_timeout_s=stop_timeout_s,
            starting_grace_s=starting_grace_s,
            scratch=None if scratch is None else str(scratch),
        )
        try:
            supervised.pid = await supervised._started
        except BaseException:
            await supervised.abandon()
            raise
        return supervised

    def mark_ready(self) -> None:
        """Tell the supervisor that the engine serves: from now on it gets its whole time to stop."""
        self._send(command="ready")

    def hurry(self) -> None:
        """Have a stop that is under way kill at once."""
        self._send(command="stop", timeout_s=0.0)

    async def stop(self) -> StopReport:
        """End the whole tree: SIGTERM to the main process, the stop timeout, SIGKILL to all that is left.

        Raises:
            EngineNotStopped: A process survived.
        """
        self._send(command="stop", timeout_s=self._stop_timeout_s)
        with suppress(TimeoutError):  # said below
            async with asyncio.timeout(self._stop_timeout_s + _SUPERVISOR_LIMIT_S):
                await self.finished.wait()
        await self.abandon()
        report = self._stopped
        if report is None:
            # The supervisor was killed, so what it would have removed is still there.
            if self._scratch is not None:
                shutil.rmtree(self._scratch, ignore_errors=True)
            return StopReport(returncode=self.returncode, stop_s=0.0, killed=(), segments=())
        if report["left"]:
            names = ", ".join(report["left"])
            raise EngineNotStopped(f"processes of the engine survived SIGKILL: {names}; free what they wait for")
        return StopReport(
            returncode=report["returncode"],
            stop_s=report["stop_s"],
            killed=tuple(report["killed"]),
            segments=tuple(report["segments"]),
        )

    async def abandon(self) -> None:
        """Hang up and collect the supervisor, killing it when it does not end on that; idempotent."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_SUPERVISOR_LIMIT_S if not self.finished.is_set() else 2.0):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reader

    def _send(self, **order: Any) -> None:
        # A supervisor that has ended needs no orders; its end is seen by the reader.
        if self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(json.dumps(order).encode() + b"\n")

    async def _read_events(self) -> None:
        stdout = self._process.stdout
        while stdout is not None and (line := await stdout.readline()):
            event = json.loads(line)
            if event["event"] == "started":
                self._started.set_result(event["pid"])
            elif event["event"] == "failed":
                message = f"the engine command cannot be started: {event['error']}; check it"
                self._started.set_exception(LaunchFailure("bad_command", message))
            else:
                self.returncode = event["returncode"]
                self.exited.set()
                if event["event"] == "stopped":
                    self._stopped = event
        if not self._started.done():
            message = "the supervisor of the engine ended before it started anything; see the engine's log"
            self._started.set_exception(LaunchFailure("crash", message, infrastructure=True))
        self.exited.set()
        self.finished.set()
