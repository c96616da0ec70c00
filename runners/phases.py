"""What an engine is doing while it starts, told from its log: six phases, each with a limit of its own.

A phase that takes longer than its share of the whole limit is stuck, and waiting for the rest of the time would teach
nothing. Reads the log; starts, stops and decides nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

PHASES = ("import", "weights", "compile", "kv_cache", "graphs", "first_token")
# Share of the whole limit that one phase may take. Weights may come over a network, compilation and graph capture grow
# with the model; imports, sizing the cache and the first token do not.
_SHARES: Mapping[str, float] = {
    "import": 1 / 3,
    "weights": 2 / 3,
    "compile": 2 / 3,
    "kv_cache": 1 / 3,
    "graphs": 2 / 3,
    "first_token": 1 / 3,
}
# Below this a share says more about the host's load than about the phase.
_SMALLEST_LIMIT_S = 60.0
FIRST_STEP = "starting"
PROOF_STEP = "first completion"
READ_BACK_STEP = "reading settings back"
# What vLLM 0.28 to 0.33 writes when it enters a step; the last line that matches tells the step.
_STEPS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("import", "reading configuration", re.compile(r"non-default args|Resolved architecture")),
    ("import", "starting engine core", re.compile(r"Initializing a V1 LLM engine")),
    ("weights", "loading weights", re.compile(r"Starting to load model|Loading safetensors|Loading weights")),
    ("weights", "loading draft", re.compile(r"Loading drafter model")),
    (
        "compile",
        "compiling",
        re.compile(
            r"Compiling a graph|Dynamo bytecode transform|Warming up model|"
            r"Starting torch\.compile|torch\.compile t(?:akes|ook)"
        ),
    ),
    ("kv_cache", "sizing KV cache", re.compile(r"Available KV cache memory|KV cache size")),
    ("graphs", "capturing graphs", re.compile(r"Capturing CUDA graph|Graph capturing")),
    ("first_token", "starting server", re.compile(r"init engine .* took|Starting vLLM server")),
)
# Looked at ten times a second.
_READ_BYTES = 1024 * 1024
_LINE_CHARACTERS = 1000
_PERCENT = re.compile(r"(?:Loading safetensors|Capturing CUDA graph).*?(?P<percent>\d{1,3})%")


def phase_limits(ready_timeout_s: float, own: Mapping[str, float]) -> dict[str, float]:
    """Seconds that each phase may take: the caller's own limits, else shares of the whole."""
    shares = {phase: max(share * ready_timeout_s, _SMALLEST_LIMIT_S) for phase, share in _SHARES.items()}
    return {**shares, **own}


class LogFollower:
    """Reads what an engine adds to its log and tells the step of the start-up.

    Attributes:
        phase: One of ``PHASES``.
        step: What is being done, in words.
        seconds: Time spent so far by phase, without the one that goes on.
    """

    def __init__(self, path: Path, on_progress: Callable[[str], None] | None) -> None:
        self._path = path
        self._on_progress = on_progress
        self._offset = 0
        self._said = ""
        self._since_s = time.perf_counter()
        self.phase = "import"
        self.step = FIRST_STEP
        self.seconds: dict[str, float] = {}
        self._tell(FIRST_STEP)

    def update(self) -> None:
        """Look at the complete lines written since the last call."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            new = log.read(_READ_BYTES)
        # A progress bar ends its states with a carriage return.
        complete = new[: max(new.rfind(b"\n"), new.rfind(b"\r")) + 1]
        if not complete and len(new) == _READ_BYTES:
            complete = new  # no line of an engine is that long: what it tells nobody can read
        self._offset += len(complete)
        for line in (line[:_LINE_CHARACTERS] for line in complete.decode(errors="replace").splitlines()):
            for phase, step, pattern in _STEPS:
                if pattern.search(line):
                    self.enter(phase, step)
            if bar := _PERCENT.search(line):
                self._tell(f"{self.step} {bar['percent']}%")

    def enter(self, phase: str, step: str) -> None:
        """Set the step and tell the listener when it is another one."""
        if phase != self.phase:
            now_s = time.perf_counter()
            self.seconds[self.phase] = self.seconds.get(self.phase, 0.0) + now_s - self._since_s
            self.phase, self._since_s = phase, now_s
        if step != self.step:
            self.step = step
            self._tell(step)

    def in_phase_s(self) -> float:
        """Seconds spent in the present phase, earlier visits included."""
        return self.seconds.get(self.phase, 0.0) + time.perf_counter() - self._since_s

    def overdue(self, limits: Mapping[str, float]) -> bool:
        """The present phase has had more than its limit."""
        return self.in_phase_s() > limits[self.phase]

    def finish(self) -> dict[str, float]:
        """Seconds by phase, now that the start is over."""
        self.seconds[self.phase] = self.in_phase_s()
        self._since_s = time.perf_counter()
        return dict(self.seconds)

    def _tell(self, text: str) -> None:
        if text != self._said and self._on_progress is not None:
            self._on_progress(text)
        self._said = text
