"""What can go wrong with an engine.

RunnerError
├── LaunchFailure            the engine did not become ready; ``kind`` says why
│   └── ReadinessTimeout     ... because it was still starting when its time was over
├── EngineDied               the engine's process ended while it was in use
├── EngineHung               the process lives and holds requests, but computes nothing any more
├── EngineUnreachable        the process lives, but a request to it failed
├── EngineNotStopped         a process of the launch survived SIGKILL
└── MetricsError             /metrics is not vLLM's, or its counters ran backwards

A message is one sentence: what, where, which value, what to do. What a failure means for the search (teach
the sampler or try again) is decided by the caller; ``infrastructure`` is the runner's advice on it.
"""

from __future__ import annotations

from typing import Literal

FailureKind = Literal[
    "bad_command",
    "bad_flag",
    "crash",
    "disk_full",
    "draft_mismatch",
    "driver",
    "dtype",
    "foreign_server",
    "gated_model",
    "gpu_busy",
    "hung",
    "killed",
    "kv_too_small",
    "missing_model",
    "nccl",
    "no_completion",
    "oom_graph_capture",
    "oom_host",
    "oom_kv",
    "oom_weights",
    "port",
    "timeout",
    "tokenizer",
    "unsupported",
    "workdir",
    "wrong_output",
]


class RunnerError(Exception):
    """Base of every error that this package raises on purpose."""


class LaunchFailure(RunnerError):  # noqa: N818 - names the event that ended the launch
    """The engine did not become ready.

    Attributes:
        kind: Failure class, stable across engine releases.
        message: One sentence: what failed and what to do about it.
        log_tail: The last lines of the engine's log; empty when it wrote nothing.
        infrastructure: True when the host is to blame and the same configuration may work on another try;
            False when the configuration itself is to blame.
    """

    def __init__(self, kind: FailureKind, message: str, *, log_tail: str = "", infrastructure: bool = False) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.message = message
        self.log_tail = log_tail
        self.infrastructure = infrastructure


class ReadinessTimeout(LaunchFailure):
    """The engine was still starting when the time of a phase, or of the whole start, was over; ``phase`` says which."""

    def __init__(self, message: str, *, phase: str, log_tail: str = "") -> None:
        super().__init__("timeout", message, log_tail=log_tail)
        self.phase = phase


class EngineDied(RunnerError):  # noqa: N818 - names the event that ended the launch
    """The engine's process ended while it was in use.

    Attributes:
        kind: Failure class, as for a launch.
        message: One sentence with the reason.
        log_tail: The last lines of the engine's log.
        infrastructure: The host is to blame, as for a launch.
    """

    def __init__(
        self, message: str, *, kind: FailureKind = "crash", log_tail: str = "", infrastructure: bool = False
    ) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.message = message
        self.log_tail = log_tail
        self.infrastructure = infrastructure


class EngineHung(RunnerError):  # noqa: N818 - names the event that ended the launch
    """The engine holds requests and has computed nothing for a while, whatever its /health says."""


class EngineUnreachable(RunnerError):  # noqa: N818 - names the event that ended the launch
    """A request to the engine failed although its process lives."""


class EngineNotStopped(RunnerError):  # noqa: N818 - names the event that ended the launch
    """A process of the launch survived SIGKILL; the next measurement on this host cannot be trusted."""


class MetricsError(RunnerError):
    """/metrics is missing, is not vLLM's, or a counter ran backwards (the engine was restarted)."""
