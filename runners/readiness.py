"""From "the process runs" to "it serves": the proof that an engine is ready, is ours, and works.

Polls /health, then checks in this order that only the launched process tree listens on the port, that /version answers,
that a wrong API key is refused, and that a real completion comes back; a 200 from /health alone proves none of it. The
engine's log says what it is doing meanwhile. A process that dies is noticed by the caller, who races this against it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runners import supervisor
from runners.client import EngineClient
from runners.errors import LaunchFailure
from runners.phases import PROOF_STEP, READ_BACK_STEP, LogFollower
from runners.port import only_listener

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Readiness:
    """What was learnt while the engine was proved ready.

    Attributes:
        version: What /version says.
        info: /server_info as JSON, empty when there is none.
        phases_s: Seconds of each phase of the start.
    """

    version: str
    info: Mapping[str, Any]
    phases_s: Mapping[str, float]


async def prove_ready(
    client: EngineClient, *, port: int, root_pid: int | None, log: LogFollower, timeout_s: float
) -> Readiness:
    """Wait until the engine serves.

    Args:
        client: For the launched engine.
        port: Where it must listen.
        root_pid: Root of the launched process tree; None when it lives in a container, where the port is the daemon's
            and the key of the launch has to prove whose engine it is.
        log: For the phases.
        timeout_s: Limit of the completion and of /server_info; the limit of the whole is the caller's.

    Raises:
        LaunchFailure: Something answers, but it is not the engine that was launched, or it does not work.
    """
    while not await client.healthy():
        log.update()
        await asyncio.sleep(_POLL_S)
    log.update()
    log.enter("first_token", PROOF_STEP)
    if root_pid is not None and not only_listener(port, supervisor.descendants([root_pid])):
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
    log.enter("first_token", READ_BACK_STEP)
    info = await client.server_info(timeout_s=timeout_s)
    return Readiness(version=version, info=info, phases_s=log.finish())


async def until_overdue(log: LogFollower, limits: Mapping[str, float]) -> None:
    """Return once a phase of the start has taken longer than it may."""
    while True:
        if log.overdue(limits):
            return
        await asyncio.sleep(_POLL_S)
