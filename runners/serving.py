"""What every running engine has in common, whoever started it: an HTTP client, counters, a prefix cache to empty.

Runners derive their engines from ``ServedEngine`` and add what they know of the process behind it. Starts and stops
nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from runners.client import EngineClient
from runners.errors import EngineUnreachable, LaunchFailure
from runners.failures import read_log, tail_of
from runners.prometheus import Scrape
from runners.readiness import Readiness
from runners.watchdog import watch_progress

_DRAIN_POLL_S = 0.05
_DRAIN_LIMIT_S = 10.0
# Longer than two KV blocks of 128 tokens, short enough for any model's context.
_PROBE_WORDS = 300


class ServedEngine:
    """A running engine behind one URL (see ``runners.spec.Engine``)."""

    def __init__(self, client: EngineClient, log_path: Path, ready: Readiness, start_s: float) -> None:
        self._client = client
        self._log_path = log_path
        self._ready = ready
        self._start_s = start_s
        self._reset_is_true: bool | None = None

    @property
    def base_url(self) -> str:
        """``http://HOST:PORT``."""
        return self._client.base_url

    @property
    def api_key(self) -> str:
        """The key that requests carry."""
        return self._client.api_key

    @property
    def model(self) -> str:
        """Served model name."""
        return self._client.model

    @property
    def pid(self) -> int:
        """Of the engine's main process; 0 when it is not ours."""
        return 0

    @property
    def version(self) -> str:
        """What /version says."""
        return self._ready.version

    @property
    def start_s(self) -> float:
        """Seconds from the start to the first completion."""
        return self._start_s

    @property
    def phases_s(self) -> Mapping[str, float]:
        """Seconds of each phase of the start."""
        return self._ready.phases_s

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

    async def drain(self, timeout_s: float = _DRAIN_LIMIT_S) -> Scrape:
        """Wait until the engine has counted everything (see ``runners.spec.Engine.drain``)."""
        end = time.perf_counter() + timeout_s
        while True:
            scrape = await self.scrape()
            if scrape.idle or time.perf_counter() >= end:
                return scrape
            await asyncio.sleep(_DRAIN_POLL_S)

    async def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache; False when the engine refused, cannot, or was seen to say so without doing it."""
        try:
            if self._reset_is_true is None:
                self._reset_is_true = await self._try_reset()
            return self._reset_is_true and await self._client.reset_prefix_cache()
        except EngineUnreachable:
            await self._raise_if_dead()
            raise

    async def _try_reset(self) -> bool:
        """Once per launch: a prompt that hits before the reset must miss after it.

        Where it does not hit at all (prefix caching is off, or the KV block is longer than the prompt) there is nothing
        to see, and the engine's word is taken.
        """
        prompt = f"{secrets.token_hex(8)} " + "word " * _PROBE_WORDS
        try:
            await self._hits(prompt)
            if await self._hits(prompt) == 0:
                return True
            return await self._client.reset_prefix_cache() and await self._hits(prompt) == 0
        except LaunchFailure:  # the probe does not fit this model's context
            return True

    async def _hits(self, prompt: str) -> float:
        """Prompt tokens that were found in the prefix cache when the prompt was sent."""
        before = (await self.drain()).counters["prefix_hits"]
        await self._client.prove_completion(timeout_s=_DRAIN_LIMIT_S * 6, prompt=prompt, tokens=1)
        return (await self.drain()).counters["prefix_hits"] - before

    async def watch(self, *, silence_s: float) -> NoReturn:
        """Look at the engine until something is wrong with it (see ``runners.spec.Engine.watch``)."""
        await watch_progress(self._client, silence_s=silence_s)

    def died(self) -> str | None:
        """Why the engine's process ended; None while it lives, or when there is no process to look at."""
        return None

    def log_tail(self, lines: int = 50) -> str:
        """The last lines of the engine's log."""
        return tail_of(read_log(self._log_path), lines)

    async def _raise_if_dead(self) -> None:
        """Raise EngineDied when the process behind the URL is known to have ended."""
