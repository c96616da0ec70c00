"""Engines: what is launched and watched.

Starts an engine under a supervisor, proves that it serves, reads its counters, stops it and verifies that
nothing is left. Knows no knob, no workload and no objective. Names are resolved on first use (PEP 562),
because the HTTP library behind them costs more start-up time than the commands that do without an engine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runners.attached import AttachedRunner
    from runners.container import ContainerRunner, reap_containers
    from runners.errors import (
        EngineDied,
        EngineHung,
        EngineNotStopped,
        EngineUnreachable,
        FailureKind,
        LaunchFailure,
        MetricsError,
        ReadinessTimeout,
        RunnerError,
    )
    from runners.failures import classify_failure, read_log, tail_of
    from runners.local import LocalEngine, LocalRunner
    from runners.page_cache import warm_page_cache
    from runners.processes import EngineProcess, find_engines, reap_engines
    from runners.prometheus import EngineMetrics, Scrape
    from runners.spec import Engine, LaunchSpec, Runner
    from runners.supervised import StopReport

_MODULE_OF = {
    "AttachedRunner": "runners.attached",
    "ContainerRunner": "runners.container",
    "Engine": "runners.spec",
    "EngineDied": "runners.errors",
    "EngineHung": "runners.errors",
    "EngineMetrics": "runners.prometheus",
    "EngineNotStopped": "runners.errors",
    "EngineProcess": "runners.processes",
    "EngineUnreachable": "runners.errors",
    "FailureKind": "runners.errors",
    "LaunchFailure": "runners.errors",
    "LaunchSpec": "runners.spec",
    "LocalEngine": "runners.local",
    "LocalRunner": "runners.local",
    "MetricsError": "runners.errors",
    "ReadinessTimeout": "runners.errors",
    "Runner": "runners.spec",
    "RunnerError": "runners.errors",
    "Scrape": "runners.prometheus",
    "StopReport": "runners.supervised",
    "classify_failure": "runners.failures",
    "find_engines": "runners.processes",
    "read_log": "runners.failures",
    "reap_containers": "runners.container",
    "reap_engines": "runners.processes",
    "tail_of": "runners.failures",
    "warm_page_cache": "runners.page_cache",
}

__all__ = [
    "AttachedRunner",
    "ContainerRunner",
    "Engine",
    "EngineDied",
    "EngineHung",
    "EngineMetrics",
    "EngineNotStopped",
    "EngineProcess",
    "EngineUnreachable",
    "FailureKind",
    "LaunchFailure",
    "LaunchSpec",
    "LocalEngine",
    "LocalRunner",
    "MetricsError",
    "ReadinessTimeout",
    "Runner",
    "RunnerError",
    "Scrape",
    "StopReport",
    "classify_failure",
    "find_engines",
    "read_log",
    "reap_containers",
    "reap_engines",
    "tail_of",
    "warm_page_cache",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'runners' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value
