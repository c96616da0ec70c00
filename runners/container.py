"""Engines in containers, through the docker or podman command line.

The container is held by ``runners.container_guard`` under the supervisor of every launch, so that it ends with the
tuner; it is named and labelled after the launch, so that what is left can be found and removed. It gets its GPUs,
shared memory, the model read-only, a port on 127.0.0.1, and its key in a file that is gone once it serves. Decides
nothing about what is served.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from runners import container_guard
from runners.client import EngineClient
from runners.errors import EngineNotStopped
from runners.hub import hub_cache
from runners.launch_record import LOG_NAME, LaunchRecord
from runners.launching import ADDED_TO_ENV, host_faults, new_scratch, prepare, stop, until_ready
from runners.local import LocalEngine
from runners.port import PortReservation
from runners.processes import MARKER_LAUNCH, MARKER_STUDY, SCRATCH
from runners.spec import LaunchSpec
from runners.supervised import SupervisedProcess

LABEL_STUDY = "dflash-tuner.study"
LABEL_LAUNCH = "dflash-tuner.launch"
_PORT = 8000  # inside; every container has all ports to itself
_COMMAND_LIMIT_S = 60.0
# What the supervisor waits beyond the container's own time to stop: `stop` and `rm` of the container command.
_GUARD_SLACK_S = 20.0
# Of the tuner's environment the container gets what reaches the hub, and nothing else.
_PASSED_ON = ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True, slots=True)
class ContainerRunner:
    """Launches engines as containers.

    Attributes:
        image: With vLLM in it, whose entry point takes the arguments of ``vllm serve``.
        command: docker or podman, or the path of one.
        read_only: Host directories that the engine reads, mounted at the same place; model and draft.
        writable: Host directories that it may write, mounted at the same place; its compile cache.
        gpus: Devices as docker names them (``all``, ``device=0,1``); None for none.
        shared_memory: Size of /dev/shm; tensor parallelism needs more than docker's 64 MB.
    """

    image: str
    command: str = "docker"
    read_only: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    gpus: str | None = "all"
    shared_memory: str = "16g"

    @property
    def name(self) -> str:
        """Short name for reports."""
        return "container"

    @asynccontextmanager
    async def launch(
        self, spec: LaunchSpec, *, on_progress: Callable[[str], None] | None = None
    ) -> AsyncIterator[LocalEngine]:
        """Run a container, prove that it serves, and leave nothing of it (see ``runners.spec.Runner.launch``)."""
        launch_id, api_key = secrets.token_hex(8), secrets.token_urlsafe(24)
        reservation = PortReservation()
        port = reservation.port
        client = EngineClient(f"http://127.0.0.1:{port}", api_key, spec.served_model)
        engine: LocalEngine | None = None
        try:
            began = time.perf_counter()
            record = prepare(replace(spec, argv=(self.command, "run", self.image, *spec.argv)), launch_id, port)
            # The daemon binds the port itself and would find it taken; should another be faster, it says so.
            reservation.release()
            process, env_file = await self._start(spec, record, api_key)
            try:
                with host_faults(spec.workdir):
                    replace(record, pid=process.pid, supervisor_pid=process.supervisor_pid).write(spec.workdir)
                ready = await until_ready(spec, process, client, port=port, owns_port=False, on_progress=on_progress)
                env_file.unlink(missing_ok=True)
                process.mark_ready()
                start_s = time.perf_counter() - began
                engine = LocalEngine(client, process, spec.workdir / LOG_NAME, ready, start_s)
                yield engine
            finally:
                try:
                    report = await stop(process, spec, launch_id)
                    if engine is not None:
                        engine.stop_report = report
                finally:
                    # Not in a thread: a second Ctrl-C must not leave a container behind.
                    remove_containers(self.command, LABEL_LAUNCH, launch_id)
        finally:
            reservation.release()
            await client.close()

    async def _start(self, spec: LaunchSpec, record: LaunchRecord, api_key: str) -> tuple[SupervisedProcess, Path]:
        with host_faults(spec.workdir), new_scratch() as scratch:
            env_file = scratch / "environment"
            env_file.touch(mode=0o600)
            env_file.write_text(self._environment(spec, record, api_key), encoding="utf-8")
            id_file = scratch / "id"
            guard = (sys.executable, "-I", "-S", container_guard.__file__, str(spec.stop_timeout_s), str(id_file))
            argv = (*guard, self.command, *self._run_arguments(spec, record, env_file, id_file))
            # The tuner's own environment: docker and podman read their configuration from it.
            marks = {MARKER_STUDY: record.study, MARKER_LAUNCH: record.launch, SCRATCH: str(scratch)}
            limit_s = spec.stop_timeout_s + _GUARD_SLACK_S
            process = await SupervisedProcess.start(
                argv,
                env={**os.environ, **marks},
                cwd=spec.workdir,
                log=spec.workdir / LOG_NAME,
                stop_timeout_s=limit_s,
                starting_grace_s=limit_s,
                scratch=scratch,
            )
            return process, env_file

    @staticmethod
    def _environment(spec: LaunchSpec, record: LaunchRecord, api_key: str) -> str:
        """An env file: one NAME=VALUE a line; neither docker nor podman knows quotes in it."""
        env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        if (hub := hub_cache()) is not None:
            env["HF_HUB_CACHE"] = str(hub)
        env |= ADDED_TO_ENV | dict(spec.env)
        env |= {MARKER_STUDY: record.study, MARKER_LAUNCH: record.launch, "VLLM_API_KEY": api_key}
        return "".join(f"{name}={value}\n" for name, value in env.items())

    def _run_arguments(self, spec: LaunchSpec, record: LaunchRecord, env_file: Path, id_file: Path) -> tuple[str, ...]:
        words = ["run", "--rm", "--name", f"dflash-tuner-{record.launch}", "--cidfile", str(id_file)]
        words += ["--label", f"{LABEL_STUDY}={label_of(record.study)}", "--label", f"{LABEL_LAUNCH}={record.launch}"]
        words += ["--env-file", str(env_file), "--publish", f"127.0.0.1:{record.port}:{_PORT}"]
        words += ["--shm-size", self.shared_memory]
        if self.gpus is not None:
            podman = Path(self.command).name.startswith("podman")
            words += ["--device", "nvidia.com/gpu=all"] if podman else ["--gpus", self.gpus]
        hub = hub_cache()
        for directory in dict.fromkeys((*self.read_only, *((hub,) if hub else ()))):
            words += ["--volume", f"{directory}:{directory}:ro"]
        for directory in self.writable:
            words += ["--volume", f"{directory}:{directory}"]
        return (*words, self.image, *spec.argv, "--host", "0.0.0.0", "--port", str(_PORT))  # noqa: S104 - inside; only loopback is published


def label_of(study: str) -> str:
    """A study's marker as a label's value: paths and blanks are nothing for a filter."""
    return hashlib.sha256(study.encode()).hexdigest()[:16]


def reap_containers(study: str, *, command: str = "docker") -> tuple[str, ...]:
    """Remove every container of a study's launches, running or not; their ids.

    Raises:
        EngineNotStopped: One could not be removed.
    """
    return remove_containers(command, LABEL_STUDY, label_of(study))


def remove_containers(command: str, label: str, value: str) -> tuple[str, ...]:
    """Remove the containers with a label and verify that they are gone; their ids.

    Raises:
        EngineNotStopped: One is still there, or nobody can say.
    """
    found = _containers(command, label, value)
    if found:
        _call(command, "rm", "--force", *found)
        if left := _containers(command, label, value):
            raise EngineNotStopped(f"containers {', '.join(left)} are still there; remove them with {command} rm -f")
    return found


def _containers(command: str, label: str, value: str) -> tuple[str, ...]:
    listed = _call(command, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}={value}")
    if listed.returncode != 0:
        # Without a daemon there is no container either, and the launch has said so already.
        return ()
    return tuple(listed.stdout.split())


def _call(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [command, *arguments], capture_output=True, text=True, check=False, timeout=_COMMAND_LIMIT_S
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess([command], 127, "", "")
