"""Log lines on stderr in the manner of vLLM's, so that log tails and failure classes have something to read."""

import os
import sys
import time

__all__ = ["log", "log_failure"]


def log(process: str, level: str, message: str) -> None:
    """Write one line.

    Args:
        process: "APIServer" or "EngineCore".
        level: INFO, WARNING or ERROR.
        message: one line of text.
    """
    stamp = time.strftime("%m-%d %H:%M:%S")
    sys.stderr.write(f"({process} pid={os.getpid()}) {level} {stamp} [simulated] {message}\n")
    sys.stderr.flush()


def log_failure(exception: str, message: str, *, in_engine: bool) -> None:
    """Write a failed start: the traceback of the engine process, then that of the API server that waited for it."""
    if in_engine:
        log("EngineCore", "ERROR", "EngineCore failed to start.")
        for line in (
            "Traceback (most recent call last):",
            '  File "core.py", line 1, in run_engine_core',
            f"{exception}: {message}",
        ):
            log("EngineCore", "ERROR", line)
        exception, message = (
            "RuntimeError",
            "Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        )
    prefix = f"(APIServer pid={os.getpid()}) "
    lines = [
        "Traceback (most recent call last):",
        '  File "api_server.py", line 1, in run_server',
        f"{exception}: {message}",
    ]
    sys.stderr.write("".join(f"{prefix}{part}\n" for line in lines for part in line.splitlines()))
    sys.stderr.flush()
