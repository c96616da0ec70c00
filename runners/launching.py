"""The steps of a launch on this host: prepare its directory, start it, wait until it serves, stop it.

``runners.local`` puts them in order. Each step turns what can go wrong in it into a LaunchFailure that says what to do.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from runners.client import EngineClient
from runners.errors import EngineNotStopped, EngineUnreachable, FailureKind, LaunchFailure, ReadinessTimeout
from runners.failure_rules import Failure
from runners.failures import classify_failure, read_log, tail_of
from runners.launch_record import LOG_NAME, LaunchRecord, argv_without_secrets
from runners.phases import LogFollower, phase_limits
from runners.processes import (
    MARKER_LAUNCH,
    MARKER_STUDY,
    SCRATCH,
    SCRATCH_PREFIX,
    find_engines,
    reap_engines,
)
from runners.readiness import Readiness, prove_ready, until_overdue
from runners.redaction import redact_file, secrets_of
from runners.spec import LaunchSpec
from runners.supervised import StopReport, SupervisedProcess

# A connection breaks a little before the process that broke it is seen to have ended.
DEATH_NOTICE_S = 1.0
# vLLM's own limit for its engine core, 600 s by default: it must not end a start that may take longer.
ENGINE_LIMIT = "VLLM_ENGINE_READY_TIMEOUT_S"
_REMOVED_FROM_ENV = ("PYTHONPATH", "PYTHONHOME", "VLLM_API_KEY")
ADDED_TO_ENV = {
    "PYTHONSAFEPATH": "1",  # the current directory must not shadow the engine's modules
    "PYTHONUNBUFFERED": "1",  # the last words of an engine that dies
    "VLLM_SERVER_DEV_MODE": "1",  # /reset_prefix_cache and /server_info
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


def prepare(spec: LaunchSpec, launch_id: str, port: int) -> LaunchRecord:
    """Make the launch directory and the record in it, before anything starts that could outlive its own environment."""
    record = LaunchRecord(spec.study, launch_id, port, argv_without_secrets(spec.argv), time.time())
    with host_faults(spec.workdir):
        spec.workdir.mkdir(parents=True, exist_ok=True)
        record.write(spec.workdir)
    return record


def command_line(argv: tuple[str, ...], port: int) -> tuple[str, ...]:
    """The whole command; a relative path to the executable is meant from here, not from the launch directory."""
    command, *arguments = argv
    if "/" in command:
        # Not resolve(): the link to its interpreter is what makes a virtual environment's python.
        command = str(Path(command).absolute())
    return (command, *arguments, "--host", "127.0.0.1", "--port", str(port))


async def start(spec: LaunchSpec, record: LaunchRecord, api_key: str) -> SupervisedProcess:
    """Start the engine under a supervisor, with a private environment and directories."""
    with host_faults(spec.workdir), new_scratch() as scratch:
        env = {name: value for name, value in os.environ.items() if name not in _REMOVED_FROM_ENV}
        env |= ADDED_TO_ENV | {SCRATCH: str(scratch), ENGINE_LIMIT: str(math.ceil(spec.ready_timeout_s))}
        env |= dict(spec.env)
        env |= {MARKER_STUDY: record.study, MARKER_LAUNCH: record.launch, "VLLM_API_KEY": api_key}
        return await SupervisedProcess.start(
            command_line(spec.argv, record.port),
            env=env,
            cwd=spec.workdir,
            log=spec.workdir / LOG_NAME,
            stop_timeout_s=spec.stop_timeout_s,
            scratch=scratch,
        )


@contextmanager
def new_scratch() -> Iterator[Path]:
    """A private directory that goes with the launch: left to its supervisor, or removed where nothing was started.

    Short, because the path of a Unix socket is limited to 107 bytes and vLLM puts its sockets here.
    """
    scratch = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX))
    try:
        yield scratch
    except BaseException:  # a container's key lies in it
        shutil.rmtree(scratch, ignore_errors=True)
        raise


@contextmanager
def host_faults(workdir: Path) -> Iterator[None]:
    """Say what is wrong with the host when a file or a process cannot be made."""
    try:
        yield
    except OSError as error:
        where = error.filename or workdir
        message = (
            f"the launch in {workdir} cannot begin: {error.strerror} ({where}); free it or choose another directory"
        )
        kind: FailureKind = "disk_full" if error.errno == errno.ENOSPC else "workdir"
        raise LaunchFailure(kind, message, infrastructure=True) from error


def failure_of(process: SupervisedProcess, log: str) -> Failure:
    """Why the process ended."""
    if process.returncode is None:
        message = "the supervisor of the engine was killed, and the engine with it; look who kills processes here"
        return Failure("killed", message, infrastructure=True)
    return classify_failure(log, process.returncode)


async def until_ready(
    spec: LaunchSpec,
    process: SupervisedProcess,
    client: EngineClient,
    *,
    port: int,
    owns_port: bool,
    on_progress: Callable[[str], None] | None,
) -> Readiness:
    """Race the proof of readiness against the death of the process and the clocks of phase and whole.

    Args:
        spec: What is launched.
        process: What was started.
        client: For the engine.
        port: Where it must listen.
        owns_port: Whether the listener must be a process of the launch; not so behind a container's daemon.
        on_progress: As in ``runners.spec.Runner.launch``.
    """
    log_path = spec.workdir / LOG_NAME
    log = LogFollower(log_path, on_progress)
    limits = phase_limits(spec.ready_timeout_s, spec.phase_limits_s)
    root_pid = process.supervisor_pid if owns_port else None
    proof = asyncio.create_task(
        prove_ready(client, port=port, root_pid=root_pid, log=log, timeout_s=spec.ready_timeout_s)
    )
    death = asyncio.create_task(process.exited.wait())
    clock = asyncio.create_task(until_overdue(log, limits))
    try:
        done, _ = await asyncio.wait(
            {proof, death, clock}, timeout=spec.ready_timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        if proof in done and not isinstance(proof.exception(), EngineUnreachable):
            return _result(proof, log_path)
        if done - {clock}:
            await wait_for(process.exited, DEATH_NOTICE_S)
            # Its children may still be writing why.
            await wait_for(process.finished, spec.stop_timeout_s if process.exited.is_set() else 0.0)
        text = read_log(log_path)
        if process.exited.is_set():
            failure = failure_of(process, text)
            raise LaunchFailure(
                failure.kind, failure.message, log_tail=tail_of(text), infrastructure=failure.infrastructure
            )
        if proof in done:
            message = f"the engine is up, but does not answer as it should ({proof.exception()}); see its log"
            raise LaunchFailure("no_completion", message, log_tail=tail_of(text))
        raise ReadinessTimeout(
            _timeout_message(spec, log, limits, overdue=clock in done), phase=log.step, log_tail=tail_of(text)
        )
    finally:
        for task in (proof, death, clock):
            task.cancel()
        await asyncio.gather(proof, death, clock, return_exceptions=True)


def _timeout_message(spec: LaunchSpec, log: LogFollower, limits: Mapping[str, float], *, overdue: bool) -> str:
    if overdue:
        what = f"spent more than {limits[log.phase]:g} s in the phase {log.phase} ({log.step})"
    else:
        what = f"was not ready after {spec.ready_timeout_s:g} s (phase: {log.phase}, {log.step})"
    return f"the engine {what}; see its log, or allow it more time"


def _result(proof: asyncio.Task[Readiness], log_path: Path) -> Readiness:
    try:
        return proof.result()
    except LaunchFailure as failure:
        failure.log_tail = tail_of(read_log(log_path))
        raise


async def stop(process: SupervisedProcess, spec: LaunchSpec, launch_id: str) -> StopReport:
    """End the launch even when this task is cancelled meanwhile, verify that it is gone, and clear its log."""
    stopping = asyncio.create_task(process.stop())
    try:
        report = await asyncio.shield(stopping)
    except asyncio.CancelledError:
        process.hurry()
        await stopping
        raise
    finally:
        redact_file(spec.workdir / LOG_NAME, secrets_of({**os.environ, **spec.env}))
    if left := find_engines(spec.study, launch=launch_id):
        # The supervisor was killed, or something changed its parent and its environment.
        await asyncio.to_thread(reap_engines, spec.study, launch=launch_id, grace_s=1.0)
        if find_engines(spec.study, launch=launch_id):
            raise EngineNotStopped(f"{len(left)} processes of launch {launch_id} could not be ended")
    return report


async def wait_for(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for the event or for the time to be over; the caller looks which."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({waiting}, timeout=timeout_s)
    waiting.cancel()
