"""The seam between who decides (the trunk) and who launches: LaunchSpec in, a live Engine out.

Every runner (local process, container, attached URL, simulated) satisfies these protocols, so that the
trunk never asks which one it has. Nothing here starts anything, knows a knob or imports an HTTP library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, runtime_checkable

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
        phase_limits_s: Limits of single phases of the start (``runners.phases.PHASES``), in seconds; those not given
            are shares of ``ready_timeout_s``.
        stop_timeout_s: How long the engine may take to end on SIGTERM before its whole tree gets SIGKILL,
            in seconds.
    """

    argv: tuple[str, ...]
    workdir: Path
    served_model: str
    study: str
    env: Mapping[str, str] = field(default_factory=dict)
    ready_timeout_s: float = 600.0
    phase_limits_s: Mapping[str, float] = field(default_factory=dict)
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
        """Process id of the engine's main process, or of what runs its container; 0 when it is not ours."""

    @property
    def version(self) -> str:
        """What the engine's /version says."""

    @property
    def start_s(self) -> float:
        """Seconds from the start of the process to the first completion."""

    @property
    def phases_s(self) -> Mapping[str, float]:
        """Seconds of each phase of the start; empty for an engine that was there before."""

    @property
    def info(self) -> Mapping[str, Any]:
        """/server_info as JSON; empty when the engine does not offer it."""

    @property
    def log_path(self) -> Path:
        """The engine's combined stdout and stderr; a file that does not exist for an engine that was there before."""

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

    async def watch(self, *, silence_s: float) -> NoReturn:
        """Look at the engine until something is wrong with it; to be raced against whatever uses it.

        Args:
            silence_s: How long it may hold requests without computing anything.

        Raises:
            EngineDied: Its process has ended; at once.
            EngineHung: It held requests for ``silence_s`` seconds and took no step, or did not answer for as long.
        """

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
