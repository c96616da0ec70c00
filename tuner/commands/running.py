"""Running a study from the command line: signals, the event loop, what is printed at the end."""

import asyncio
import errno
import json
import re
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from tuner.config import TuneConfig
from tuner.console import Narrator
from tuner.errors import StudyInterrupted
from tuner.plan import make_plan
from tuner.records import Recommendation
from tuner.session import tune

# A full, read-only or failing disk: nothing is wrong with the study, which can go on when the disk can.
DISK_FAULTS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


def run_tune(config: TuneConfig, *, dry_run: bool, as_json: bool) -> int:
    """Runs a new study, or prints what it would do."""
    if dry_run:
        plan = make_plan(config)
        narrator = Narrator()
        narrator.plan(plan)
        looked_at = min(plan.space.size(), 5_000)
        narrator.refused(plan.space.refused(looked_at), looked_at=looked_at)
        return 0
    return run_study(config, resume=False, as_json=as_json)


def run_study(config: TuneConfig, *, resume: bool, as_json: bool) -> int:
    """Runs a study to its end or to a signal."""
    answers = uvloop.run(_until_signal(config, resume=resume, quiet=as_json))
    if as_json:
        print(json.dumps([a.model_dump(mode="json") for a in answers], indent=2))
    return 0


def new_study_name(workload: Path) -> str:
    """A name that sorts by time."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", workload.stem).strip("-._") or "study"
    return f"{stem[:60]}-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}"


async def _until_signal(config: TuneConfig, *, resume: bool, quiet: bool) -> list[Recommendation]:
    """Ctrl-C and SIGTERM stop the study in order: requests are cancelled and the engine is ended before we leave."""
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    received: list[str] = []

    def stop(name: str) -> None:
        if task is not None and not received:
            received.append(name)
            print(f"tune: {name} received, ending the engine ...", file=sys.stderr)
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, signal.Signals(number).name)
    try:
        return await tune(config, resume=resume, narrator=Narrator(quiet=quiet))
    except OSError as error:
        if error.errno not in DISK_FAULTS:
            raise
        raise StudyInterrupted(
            f"the study cannot be written: {error.strerror} ({error.filename or config.directory}); mend that "
            f"and go on with `tune resume {config.study} --out {config.out}`"
        ) from error
    except asyncio.CancelledError:
        if not received:
            raise
        raise StudyInterrupted(
            f"stopped by {received[0]}; go on with `tune resume {config.study} --out {config.out}`"
        ) from None
