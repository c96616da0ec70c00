"""Engines as processes on this host.

``LocalRunner.launch`` is the life of one engine: a reserved port and a key of its own, a supervised process with a
private directory and environment, the proof that it serves, and an end that leaves nothing. It decides nothing about
what is launched and sends no traffic.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from runners.client import EngineClient
from runners.errors import (
    EngineDied,
    EngineNotStopped,
    EngineUnreachable,
    FailureKind,
    LaunchFailure,
    ReadinessTimeout,
)
from runners.failure_rules import Failure
from runners.failures import classify_failure, read_log, tail_of
from runners.port import PortReservation
from runners.processes import LOG_NAME, MARKER_LAUNCH, MARKER_STUDY, RECORD_NAME, find_engines, reap_engines
from runners.prometheus import Scrape
from runners.readiness import LogFollower, Readiness, prove_ready
from runners.spec import LaunchSpec
from runners.supervised import StopReport, SupervisedProcess

# A connection breaks a little before the process that broke it is seen to have ended.
_DEATH_NOTICE_S = 1.0
_DRAIN_POLL_S = 0.05
_SECRET_FLAGS = ("--api-key", "--hf-token")
_REMOVED_FROM_ENV = ("PYTHONPATH", "PYTHONHOME", "VLLM_API_KEY")
_ADDED_TO_ENV = {
    "PYTHONSAFEPATH": "1",  # the current directory must not shadow the engine's modules
    "PYTHONUNBUFFERED": "1",  # the last words of an engine that dies
    "VLLM_SERVER_DEV_MODE": "1",  # /reset_prefix_cache and /server_info
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


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
        return classify_failure(read_log(self._log_path), self._process.returncode)

    async def _raise_if_dead(self) -> None:
        await _wait_for(self._process.exited, _DEATH_NOTICE_S)
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
            process = await _start(spec, launch_id, api_key, reservation.port)
            try:
                ready = await _until_ready(spec, process, client, reservation, on_progress)
                process.note_shared_memory()
                start_s = time.perf_counter() - began
                engine = LocalEngine(client, process, spec.workdir / LOG_NAME, ready, start_s)
                yield engine
            finally:
                report = await _stop(process, spec, launch_id)
                if engine is not None:
                    engine.stop_report = report
        finally:
            reservation.release()
            await client.close()


async def _start(spec: LaunchSpec, launch_id: str, api_key: str, port: int) -> SupervisedProcess:
    record: dict[str, Any] = {
        "study": spec.study,
        "launch": launch_id,
        "port": port,
        "argv": _without_secrets(spec.argv),
        "created_at": time.time(),
    }
    try:
        spec.workdir.mkdir(parents=True, exist_ok=True)
        # Before the start too: it is what tells a process of this launch when its environment no longer does.
        _write_record(spec.workdir, record)
    except OSError as error:
        message = f"the launch directory {spec.workdir} cannot be written ({error.strerror}); free or choose another"
        kind: FailureKind = "disk_full" if error.errno == errno.ENOSPC else "workdir"
        raise LaunchFailure(kind, message, infrastructure=True) from error
    # Short, because the path of a Unix socket is limited to 107 bytes and vLLM puts its sockets here.
    scratch = Path(tempfile.mkdtemp(prefix="dflash-tuner-"))
    env = {name: value for name, value in os.environ.items() if name not in _REMOVED_FROM_ENV}
    env |= _ADDED_TO_ENV | {"VLLM_RPC_BASE_PATH": str(scratch)} | dict(spec.env)
    env |= {MARKER_STUDY: spec.study, MARKER_LAUNCH: launch_id, "VLLM_API_KEY": api_key}
    process = await SupervisedProcess.start(
        (*spec.argv, "--host", "127.0.0.1", "--port", str(port)),
        env=env,
        cwd=spec.workdir,
        log=spec.workdir / LOG_NAME,
        stop_timeout_s=spec.stop_timeout_s,
        scratch=scratch,
    )
    _write_record(spec.workdir, record | {"pid": process.pid, "supervisor_pid": process.supervisor_pid})
    return process


async def _until_ready(
    spec: LaunchSpec,
    process: SupervisedProcess,
    client: EngineClient,
    reservation: PortReservation,
    on_progress: Callable[[str], None] | None,
) -> Readiness:
    """Race the proof of readiness against the death of the process and the clock."""
    log_path = spec.workdir / LOG_NAME
    log = LogFollower(log_path, on_progress)
    proof = asyncio.create_task(
        prove_ready(
            client, port=reservation.port, root_pid=process.supervisor_pid, log=log, timeout_s=spec.ready_timeout_s
        )
    )
    death = asyncio.create_task(process.exited.wait())
    try:
        done, _ = await asyncio.wait({proof, death}, timeout=spec.ready_timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if proof in done and not isinstance(proof.exception(), EngineUnreachable):
            return _result(proof, log_path)
        if done:
            await _wait_for(process.exited, _DEATH_NOTICE_S)
            # Its children may still be writing why.
            await _wait_for(process.finished, spec.stop_timeout_s if process.exited.is_set() else 0.0)
        text = read_log(log_path)
        if process.exited.is_set():
            failure = classify_failure(text, process.returncode)
            raise LaunchFailure(
                failure.kind, failure.message, log_tail=tail_of(text), infrastructure=failure.infrastructure
            )
        if proof in done:
            message = f"the engine is up, but does not answer as it should ({proof.exception()}); see its log"
            raise LaunchFailure("no_completion", message, log_tail=tail_of(text))
        message = (
            f"the engine was not ready after {spec.ready_timeout_s:g} s (phase: {log.phase}); "
            "see its log, or allow it more time"
        )
        raise ReadinessTimeout(message, phase=log.phase, log_tail=tail_of(text))
    finally:
        for task in (proof, death):
            task.cancel()
        await asyncio.gather(proof, death, return_exceptions=True)


def _result(proof: asyncio.Task[Readiness], log_path: Path) -> Readiness:
    try:
        return proof.result()
    except LaunchFailure as failure:
        failure.log_tail = tail_of(read_log(log_path))
        raise


async def _stop(process: SupervisedProcess, spec: LaunchSpec, launch_id: str) -> StopReport:
    """End the launch even when this task is cancelled meanwhile, and verify that it is gone."""
    stopping = asyncio.create_task(process.stop())
    try:
        report = await asyncio.shield(stopping)
    except asyncio.CancelledError:
        process.hurry()
        await stopping
        raise
    if left := find_engines(spec.study, launch=launch_id):
        # The supervisor was killed, or something changed its parent and its environment.
        await asyncio.to_thread(reap_engines, spec.study, launch=launch_id, grace_s=1.0)
        if find_engines(spec.study, launch=launch_id):
            raise EngineNotStopped(f"{len(left)} processes of launch {launch_id} could not be ended")
    return report


async def _wait_for(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for the event or for the time to be over; the caller looks which."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({waiting}, timeout=timeout_s)
    waiting.cancel()


def _write_record(workdir: Path, record: Mapping[str, Any]) -> None:
    """Replace engine.json in one step, so that nobody ever reads half of it."""
    path = workdir / RECORD_NAME
    partial = path.with_suffix(".json.partial")
    partial.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def _without_secrets(argv: tuple[str, ...]) -> list[str]:
    shown = []
    for position, argument in enumerate(argv):
        name, equals, _ = argument.partition("=")
        if name in _SECRET_FLAGS and equals:
            shown.append(f"{name}=[redacted]")
        elif position and argv[position - 1] in _SECRET_FLAGS:
            shown.append("[redacted]")
        else:
            shown.append(argument)
    return shown
