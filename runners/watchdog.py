"""Whether a running engine still computes: the watchdog of a replay.

/health answers 200 in a server whose engine hangs, so the engine's own counters are looked at: while it holds requests,
its steps or tokens must go on counting. Looks seldom and reads three lines of /metrics, because it shares the client's
core with a measurement.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import NoReturn

from runners.client import EngineClient
from runners.errors import EngineHung, EngineUnreachable

_LOOKS_PER_LIMIT = 4
_LONGEST_PAUSE_S = 15.0
# Tokens alone would not do: a long prompt takes many steps before its first token.
_PROGRESS = re.compile(
    rb"^vllm:(?P<name>generation_tokens_total|iteration_tokens_total_count|request_success_total|"
    rb"num_requests_running|num_requests_waiting)(?:\{[^}]*\})? (?P<value>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Progress:
    """One look.

    Attributes:
        requests: Running or waiting now.
        computed: Grows with everything that the engine does.
    """

    requests: float
    computed: float


def read_progress(metrics: bytes) -> Progress:
    """The few figures out of the text of /metrics, without parsing all of it."""
    requests = computed = 0.0
    for match in _PROGRESS.finditer(metrics):
        if match["name"].startswith(b"num_requests"):
            requests += float(match["value"])
        else:
            computed += float(match["value"])
    return Progress(requests, computed)


async def watch_progress(client: EngineClient, *, silence_s: float) -> NoReturn:
    """Look at the engine until it hangs.

    Raises:
        EngineHung: It held requests for ``silence_s`` seconds and computed nothing, or did not answer for as long.
    """
    pause_s = min(silence_s / _LOOKS_PER_LIMIT, _LONGEST_PAUSE_S)
    computed, since_s = -1.0, time.perf_counter()
    answers = True
    while True:
        try:
            progress = read_progress(await client.metrics_text(timeout_s=pause_s))
        except EngineUnreachable:
            answers = False
        else:
            answers = True
            if progress.requests == 0 or progress.computed != computed:
                computed, since_s = progress.computed, time.perf_counter()
        silent_s = time.perf_counter() - since_s
        if silent_s >= silence_s:
            raise EngineHung(_message(silent_s, answers=answers))
        await asyncio.sleep(pause_s)


def _message(silent_s: float, *, answers: bool) -> str:
    what = "held requests and computed nothing" if answers else "did not answer"
    return (
        f"the engine {what} for {silent_s:.0f} s, so it was taken for hung whatever its /health says; see its log, or "
        "allow longer silence with --hang-timeout"
    )
