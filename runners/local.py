"""Engines as processes on this host.

``LocalRunner.launch`` is the life of one engine: a reserved port and a key of its own, a supervised process with a
private directory and environment, the proof that it serves, and an end that leaves nothing. It decides nothing about
what is launched and sends no traffic.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from runners.client import EngineClient
from runners.errors import EngineDied
from runners.failure_rules import Failure
from runners.failures import read_log
from runners.launch_record import LOG_NAME
from runners.launching import DEATH_NOTICE_S, failure_of, host_faults, prepare, start, stop, until_ready, wait_for
from runners.port import PortReservation
from runners.readiness import Readiness
from runners.serving import ServedEngine
from runners.spec import LaunchSpec
from runners.supervised import StopReport, SupervisedProcess
from runners.watchdog import watch_progress


class LocalEngine(ServedEngine):
    """A running engine on this host; made by ``LocalRunner.launch`` (see ``runners.spec.Engine``).

    Attributes:
        stop_report: How it ended; None until the launch context is left.
    """

    def __init__(
        self, client: EngineClient, process: SupervisedProcess, log_path: Path, ready: Readiness, start_s: float
    ) -> None:
        super().__init__(client, log_path, ready, start_s)
        self._process = process
        self.stop_report: StopReport | None = None

    @property
    def pid(self) -> int:
        """Process id of the engine's main process."""
        return self._process.pid

    async def watch(self, *, silence_s: float) -> NoReturn:
        """Look at the engine until it dies or hangs (see ``runners.spec.Engine.watch``)."""
        looking = asyncio.create_task(watch_progress(self._client, silence_s=silence_s))
        death = asyncio.create_task(self._process.exited.wait())
        try:
            await asyncio.wait({looking, death}, return_when=asyncio.FIRST_COMPLETED)
            if not death.done():
                looking.result()
            # Its children may still be writing why.
            await wait_for(self._process.finished, DEATH_NOTICE_S)
            raise self._death()
        finally:
            for task in (looking, death):
                task.cancel()
            await asyncio.gather(looking, death, return_exceptions=True)

    def died(self) -> str | None:
        """Why the engine's process ended, as one sentence; None while it lives."""
        return self._failure().message if self._process.exited.is_set() else None

    def _failure(self) -> Failure:
        return failure_of(self._process, read_log(self._log_path))

    def _death(self) -> EngineDied:
        failure = self._failure()
        return EngineDied(
            failure.message, kind=failure.kind, log_tail=self.log_tail(), infrastructure=failure.infrastructure
        )

    async def _raise_if_dead(self) -> None:
        await wait_for(self._process.exited, DEATH_NOTICE_S)
        if self._process.exited.is_set():
            raise self._death()


class LocalRunner:
    """Launches engines as processes on this host."""

    name = "local"

    @asynccontextmanager
    async def launch(
        self, spec: LaunchSpec, *, on_progress: Callable[[str], None] | None = None
    ) -> AsyncIterator[LocalEngine]:
        """Start an engine, prove that it serves, and leave nothing of it (see ``runners.spec.Runner.launch``)."""
        launch_id = secrets.token_hex(8)
        api_key = secrets.token_urlsafe(24)
        reservation = PortReservation()
        client = EngineClient(f"http://127.0.0.1:{reservation.port}", api_key, spec.served_model)
        engine: LocalEngine | None = None
        try:
            began = time.perf_counter()
            record = prepare(spec, launch_id, reservation.port)
            process = await start(spec, record, api_key)
            try:
                with host_faults(spec.workdir):
                    replace(record, pid=process.pid, supervisor_pid=process.supervisor_pid).write(spec.workdir)
                ready = await until_ready(
                    spec, process, client, port=reservation.port, owns_port=True, on_progress=on_progress
                )
                process.mark_ready()
                start_s = time.perf_counter() - began
                engine = LocalEngine(client, process, spec.workdir / LOG_NAME, ready, start_s)
                yield engine
            finally:
                report = await stop(process, spec, launch_id)
                if engine is not None:
                    engine.stop_report = report
        finally:
            reservation.release()
            await client.close()
