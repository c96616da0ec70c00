"""From "the process runs" to "it serves": the proof that an engine is ready, is ours, and works.

Polls /health, then checks in this order that only the launched process tree listens on the port, that /version answers,
that a wrong API key is refused, and that a real completion comes back; a 200 from /health alone proves none of it. The
engine's log says what it is doing meanwhile. A process that dies is noticed by the caller, who races this against it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners import supervisor
from runners.client import EngineClient
from runners.errors import LaunchFailure
from runners.port import only_listener

_POLL_S = 0.1
FIRST_PHASE = "starting"
_PROOF_PHASE = "first completion"
# What vLLM 0.28 to 0.33 writes when it enters a phase; the last line that matches tells the phase.
_PHASES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("reading configuration", re.compile(r"non-default args|Resolved architecture")),
    ("starting engine core", re.compile(r"Initializing a V1 LLM engine")),
    ("loading weights", re.compile(r"Starting to load model|Loading safetensors|Loading weights")),
    ("loading draft", re.compile(r"Loading drafter model")),
    ("compiling", re.compile(r"Compiling a graph|Dynamo bytecode transform|Warming up model|torch\.compile takes")),
    ("sizing KV cache", re.compile(r"Available KV cache memory|KV cache size")),
    ("capturing graphs", re.compile(r"Capturing CUDA graph|Graph capturing")),
    ("starting server", re.compile(r"init engine .* took|Starting vLLM server")),
)


@dataclass(frozen=True, slots=True)
class Readiness:
    """What was learnt while the engine was proved ready.

    Attributes:
        version: What /version says.
        info: /server_info as JSON, empty when there is none.
    """

    version: str
    info: Mapping[str, Any]


class LogFollower:
    """Reads what an engine adds to its log and tells the phase of the start-up."""

    def __init__(self, path: Path, on_progress: Callable[[str], None] | None) -> None:
        self._path = path
        self._on_progress = on_progress
        self._offset = 0
        self.phase = ""
        self.enter(FIRST_PHASE)

    def update(self) -> None:
        """Look at the complete lines written since the last call."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            new = log.read()
        complete = new[: new.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.decode(errors="replace").splitlines():
            for phase, pattern in _PHASES:
                if pattern.search(line):
                    self.enter(phase)

    def enter(self, phase: str) -> None:
        """Set the phase and tell the listener when it is another one."""
        if phase != self.phase:
            self.phase = phase
            if self._on_progress is not None:
                self._on_progress(phase)


async def prove_ready(
    client: EngineClient, *, port: int, root_pid: int, log: LogFollower, timeout_s: float
) -> Readiness:
    """Wait until the engine serves.

    Args:
        client: For the launched engine.
        port: Where it must listen.
        root_pid: Root of the launched process tree.
        log: For the phases.
        timeout_s: Limit of the completion and of /server_info; the limit of the whole is the caller's.

    Raises:
        LaunchFailure: Something answers, but it is not the engine that was launched, or it does not work.
    """
    while not await client.healthy():
        log.update()
        await asyncio.sleep(_POLL_S)
    log.update()
    log.enter(_PROOF_PHASE)
    if not only_listener(port, supervisor.descendants([root_pid])):
        message = (
            f"port {port} is served by a process that this launch did not start; the engine's answers would be "
            "somebody else's, so it was stopped: launch it again on another port"
        )
        raise LaunchFailure("port", message, infrastructure=True)
    version = await client.version()
    if not await client.refuses_wrong_key():
        message = (
            "the engine accepts a wrong API key, so it was not started with the key of this launch; remove --api-key "
            "from the engine's arguments and let VLLM_API_KEY reach it"
        )
        raise LaunchFailure("foreign_server", message)
    await client.prove_completion(timeout_s=timeout_s)
    log.enter("reading settings back")
    return Readiness(version=version, info=await client.server_info(timeout_s=timeout_s))
