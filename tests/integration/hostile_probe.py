"""Attaches to many servers at once, as a study does to one, and tells what came of each; a process for its memory.

Input: ``{"key": KEY, "cases": {NAME: URL}}`` on stdin. Output: JSON on stdout, ``cases`` with [seconds, error] and
``most_mb``, the most memory that the process ever had.
"""

import asyncio
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

from runners import AttachedRunner, LaunchSpec, RunnerError

READY_S = 3.0
SILENCE_S = 4.0
WATCH_S = 5.0
# What it does at a path that nobody reads, such as the body of /health, is nobody's harm.
SERVED = "served"


async def attach(url: str, key: str, directory: Path) -> str:
    """The study's steps with an attached engine; the error that ended them."""
    spec = LaunchSpec(argv=(), workdir=directory, served_model="tiny", study="hostile", ready_timeout_s=READY_S)
    try:
        async with AttachedRunner(url, key).launch(spec) as engine:
            await engine.scrape()
            async with asyncio.timeout(WATCH_S):
                await engine.watch(silence_s=SILENCE_S)
    except RunnerError as error:
        return f"{type(error).__name__}: {error}"
    except TimeoutError:
        return SERVED
    raise AssertionError("watch never returns")


async def main() -> None:
    """All cases beside each other."""
    asked = json.load(sys.stdin)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:

        async def timed(url: str) -> tuple[float, str]:
            try:
                async with asyncio.timeout(40):
                    said = await attach(url, asked["key"], Path(directory))
            except Exception as error:  # noqa: BLE001 - whatever else is raised is a finding
                said = f"NOT A RUNNER ERROR {type(error).__name__}: {str(error)[:200]}"
            return time.monotonic() - began, said

        results = await asyncio.gather(*(timed(url) for url in asked["cases"].values()))
    most_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    json.dump({"cases": dict(zip(asked["cases"], results, strict=True)), "most_mb": most_mb}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
