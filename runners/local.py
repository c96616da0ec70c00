"""Engines as processes on this host.

``LocalRunner.launch`` is the life of one engine: a reserved port and a key of its own, a supervised process with a
private directory and environment, the proof that it serves, and an end that leaves nothing. It decides nothing about
what is launched and sends no traffic.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from runners.client import EngineClient
from runners.errors import EngineDied, EngineUnreachable
from runners.failure_rules import Failure
from runners.failures import read_log, tail_of
from runners.launch_record import LOG_NAME
from runners.launching import DEATH_NOTICE_S, failure_of, host_faults, prepare, start, stop, until_ready, wait_for
from runners.port import PortReservation
from runners.prometheus import Scrape
from runners.readiness import Readiness
from runners.spec import LaunchSpec
from runners.supervised import StopReport, SupervisedProcess

_DRAIN_POLL_S = 0.05


class LocalEngine:
    """A running engine on this host; made by ``LocalRunner.launch`` (see ``runners.spec.Engine``).

    Attributes:
        stop_report: How it ended; None until the launch context is left.
    """

    def __init__(
        self, client: EngineClient, process: SupervisedProcess, log_path: Path, ready: Readiness, start_s: float
    ) -> None:
        self._client = client
        self._process = process
        self._log_path = log_path
        self._ready = ready
        self._start_s = start_s
        self.stop_report: StopReport | None = None

    @property
    def base_url(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return self._client.base_url

    @property
    def api_key(self) -> str:
        """The random key of this launch."""
        return self._client.api_key

    @property
    def model(self) -> str:
        """Served model name."""
        return self._client.model

    @property
    def pid(self) -> int:
        """Process id of the engine's main process."""
        return self._process.pid

    @property
    def version(self) -> str:
        """What /version says."""
        return self._ready.version

    @property
    def start_s(self) -> float:
        """Seconds from the start of the process to the first completion."""
        return self._start_s

    @property
    def info(self) -> Mapping[str, Any]:
        """/server_info as JSON; empty when the engine does not offer it."""
        return self._ready.info

    @property
    def log_path(self) -> Path:
        """The engine's combined stdout and stderr."""
        return self._log_path

    async def scrape(self) -> Scrape:
        """Read /metrics once (see ``runners.spec.Engine.scrape``)."""
        try:
            return await self._client.scrape()
        except EngineUnreachable:
            await self._raise_if_dead()
            raise

    async def drain(self, timeout_s: float = 10.0) -> Scrape:
        """Wait until the engine has counted everything (see ``runners.spec.Engine.drain``)."""
        end = time.perf_counter() + timeout_s
        while True:
            scrape = await self.scrape()
            if scrape.idle or time.perf_counter() >= end:
                return scrape
            await asyncio.sleep(_DRAIN_POLL_S)

    async def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache; False when the engine refused or cannot."""
        try:
            return await self._client.reset_prefix_cache()
        except EngineUnreachable:
            await self._raise_if_dead()
            raise

    def died(self) -> str | None:
        """Why the engine's process ended, as one sentence; None while it lives."""
        failure = self._failure()
        return None if failure is None else failure.message

    def log_tail(self, lines: int = 50) -> str:
        """The last lines of the engine's log."""
        return tail_of(read_log(self._log_path), lines)

    def _failure(self) -> Failure | None:
        if not self._process.exited.is_set():
            return None
        return failure_of(self._process, read_log(self._log_path))

    async def _raise_if_dead(self) -> None:
        await wait_for(self._process.exited, DEATH_NOTICE_S)
        if failure := self._failure():
            raise EngineDied(failure.message, kind=failure.kind, log_tail=self.log_tail())


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
                ready = await until_ready(spec, process, client, reservation, on_progress)
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
