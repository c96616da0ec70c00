"""The seam between who decides (the trunk) and who launches: LaunchSpec in, a live Engine out.

Every runner (local process, container, attached URL, simulated) satisfies these protocols, so that the
trunk never asks which one it has. Nothing here starts anything, knows a knob or imports an HTTP library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from runners.prometheus import Scrape


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One engine to launch.

    Attributes:
        argv: The engine's command with its arguments, without host, port and API key: the runner adds
            those.
        workdir: Private directory of this launch. The engine's current directory; ``engine.log`` and
            ``engine.json`` are written there. Created when missing.
        served_model: Model name that requests must carry.
        study: Marker put on every process of the launch, for ``find_engines`` and ``reap_engines``.
        env: Additions to the environment of the engine.
        ready_timeout_s: Limit from the start of the process to the first completion, in seconds.
        stop_timeout_s: How long the engine may take to end on SIGTERM before its whole tree gets SIGKILL,
            in seconds.
    """

    argv: tuple[str, ...]
    workdir: Path
    served_model: str
    study: str
    env: Mapping[str, str] = field(default_factory=dict)
    ready_timeout_s: float = 600.0
    stop_timeout_s: float = 30.0


@runtime_checkable
class Engine(Protocol):
    """A running engine that has answered a real completion."""

    @property
    def base_url(self) -> str:
        """``http://127.0.0.1:PORT``, without a trailing slash."""

    @property
    def api_key(self) -> str:
        """The key that requests must carry; never logged and never on a command line."""

    @property
    def model(self) -> str:
        """Served model name."""

    @property
    def pid(self) -> int:
        """Process id of the engine's main process."""

    @property
    def version(self) -> str:
        """What the engine's /version says."""

    @property
    def start_s(self) -> float:
        """Seconds from the start of the process to the first completion."""

    @property
    def info(self) -> Mapping[str, Any]:
        """/server_info as JSON; empty when the engine does not offer it."""

    @property
    def log_path(self) -> Path:
        """The engine's combined stdout and stderr."""

    async def scrape(self) -> Scrape:
        """Read /metrics once.

        Raises:
            EngineDied: The process is gone.
            EngineUnreachable: It lives, but did not answer.
            MetricsError: What it answered are not vLLM's metrics.
        """

    async def drain(self, timeout_s: float = 10.0) -> Scrape:
        """Wait until no request is in the engine, then read /metrics: so the counters include the last step.

        The answer to a request can arrive a moment before the engine counts it. When requests are still there after
        ``timeout_s`` seconds, the reading says so (``Scrape.idle``). Raises as ``scrape``.
        """

    async def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache; False when the engine refused or cannot."""

    def died(self) -> str | None:
        """Why the engine's process ended, as one sentence; None while it lives."""

    def log_tail(self, lines: int = 50) -> str:
        """The last lines of the engine's log."""


@runtime_checkable
class Runner(Protocol):
    """Something that can launch engines."""

    @property
    def name(self) -> str:
        """Short name for reports, such as ``local``."""

    def launch(
        self, spec: LaunchSpec, *, on_progress: Callable[[str], None] | None = None
    ) -> AbstractAsyncContextManager[Engine]:
        """Start an engine; leaving the context stops it and verifies that nothing of it is left.

        Args:
            spec: What to start.
            on_progress: Called with a short text whenever the start-up enters another phase.

        Raises:
            LaunchFailure: On entering, when the engine does not become ready.
            EngineNotStopped: On leaving, when a process survived.
        """
