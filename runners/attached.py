"""An engine that somebody else runs: at a URL, to be measured and left alone.

It is not started, not stopped and not configured, so only request knobs and load can be tuned on it. Its process, its
log and its port belong to its owner; that it is vLLM, serves the model and answers is proved as for any other engine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from runners.client import EngineClient
from runners.errors import EngineUnreachable, LaunchFailure
from runners.launch_record import LOG_NAME
from runners.phases import PROOF_STEP, READ_BACK_STEP
from runners.readiness import Readiness
from runners.serving import ServedEngine
from runners.spec import LaunchSpec

_POLL_S = 0.5
_PATIENCE_S = 10.0


class AttachedEngine(ServedEngine):
    """An engine of somebody else's (see ``runners.spec.Engine``)."""

    async def reset_prefix_cache(self) -> bool:
        """False: the cache is its owner's, so every measurement has to bring a salt of its own."""
        return False


@dataclass(frozen=True, slots=True)
class AttachedRunner:
    """Launches nothing: proves that the engine at a URL serves.

    Attributes:
        url: Base URL of the server, with or without ``/v1``.
        api_key: Its key; empty when it asks for none.
    """

    url: str
    api_key: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        """Short name for reports."""
        return "attached"

    @asynccontextmanager
    async def launch(
        self, spec: LaunchSpec, *, on_progress: Callable[[str], None] | None = None
    ) -> AsyncIterator[AttachedEngine]:
        """Prove that the engine serves; leaving the context leaves it running (see ``runners.spec.Runner.launch``).

        Of the launch only ``workdir``, ``served_model`` and ``ready_timeout_s`` are used: the model is asked for under
        that name when the server knows it, else under the server's first name.
        """
        say = on_progress or (lambda _: None)
        client = EngineClient(self.url.rstrip("/").removesuffix("/v1"), self.api_key, spec.served_model)
        try:
            began = time.perf_counter()
            ready = await self._prove(client, spec, say)
            yield AttachedEngine(client, spec.workdir / LOG_NAME, ready, time.perf_counter() - began)
        finally:
            await client.close()

    async def _prove(self, client: EngineClient, spec: LaunchSpec, say: Callable[[str], None]) -> Readiness:
        patience_s = min(_PATIENCE_S, spec.ready_timeout_s)
        end = time.perf_counter() + patience_s
        while not await client.healthy():
            if time.perf_counter() >= end:
                message = f"nothing healthy answers at {client.base_url} in {patience_s:g} s; start the engine first"
                raise LaunchFailure("no_completion", message, infrastructure=True)
            await asyncio.sleep(_POLL_S)
        try:
            say(PROOF_STEP)
            version = await client.version()
            names = await client.models()
            if client.model not in names:
                client.model = names[0]
            await client.prove_completion(timeout_s=spec.ready_timeout_s)
            say(READ_BACK_STEP)
            info = await client.server_info(timeout_s=spec.ready_timeout_s)
        except EngineUnreachable as error:
            raise LaunchFailure("no_completion", f"the engine at {client.base_url} is healthy, but {error}") from error
        return Readiness(version=version, info=info, phases_s={})
