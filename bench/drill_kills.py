"""SIGINT, SIGTERM and SIGKILL to the tuner at random moments of a study, which is resumed after each."""

import random
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from bench.drill_studies import left_of
from tests.integration.study_desk import Desk, run_tune, start_tune
from tuner.store import Store

_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
# A resumed tuner takes about two seconds to begin; later ones hit launches and measurements.
_MOMENTS_S = (0.2, 7.0)
_STOP_LIMIT_S = 60.0


@dataclass
class Kills:
    """What came of them."""

    survived: int = 0
    lost: int = 0
    wrong: int = 0
    left: tuple[str, ...] = ()
    note: str = ""


def kill_at_random_moments(desk: Desk, directory: Path, *, count: int, seed: int) -> Kills:
    """Sends ``count`` signals; a study that ends before its signal is followed by another one."""
    draw = random.Random(seed)
    result, studies, done = Kills(), 0, 0
    while done < count:
        studies += 1
        out = directory / f"runs-{studies}"
        command: tuple[str, ...] = (
            *desk.options("s", out, trials="2", profile_by="none", requests="6"),
            "--no-tracking",
        )
        kept: dict[str, bytes] = {}
        while done < count:
            number = _SIGNALS[done % len(_SIGNALS)]
            if not _interrupted(command, draw.uniform(*_MOMENTS_S), number, directory / "log", result):
                break
            done += 1
            result.left += left_of(out)
            now = _measurements(out)
            result.lost += sum(now.get(name) != content for name, content in kept.items())
            kept = now
            if (out / "s" / "study.json").exists():
                command = ("resume", "s", "--out", str(out))
        _finish(command, out, kept, result)
    result.note = f"{count} signals over {studies} studies"
    return result


def _interrupted(command: tuple[str, ...], after_s: float, number: signal.Signals, log: Path, result: Kills) -> bool:
    """Whether the tuner still ran when its signal came."""
    tuner = start_tune(*command, log=log)
    try:
        code = tuner.wait(after_s)
    except subprocess.TimeoutExpired:
        tuner.send_signal(number)
        code = tuner.wait(_STOP_LIMIT_S)
        expected = {signal.SIGKILL: (-signal.SIGKILL,)}.get(number, (4, 0, -number))
        result.wrong += code not in expected
        result.survived += 1
        return True
    if code != 0:
        result.wrong += 1
        result.note += f"ended with {code}; "
    return False


def _finish(command: tuple[str, ...], out: Path, kept: dict[str, bytes], result: Kills) -> None:
    """The last run ends the study; every measurement is there once."""
    began = time.monotonic()
    ended = run_tune(*command, timeout_s=300) if "resume" in command else None
    if ended is not None and ended.returncode != 0:
        result.wrong += 1
        result.survived -= 1
        result.note += f"not resumable after {time.monotonic() - began:.0f} s: {ended.stderr.strip()[-200:]}; "
        return
    now = _measurements(out)
    result.lost += sum(now.get(name) != content for name, content in kept.items())
    records = Store.open(out, "s").records()
    told = [(r.plan.number, key) for r in records for key in r.measurements]
    result.lost += len(now) - len(told) + len(told) - len(set(told))
    result.lost += len({r.plan.step for r in records}) != len(records)
    result.left += left_of(out)


def _measurements(out: Path) -> dict[str, bytes]:
    """Every completed measurement's file."""
    return {str(path.relative_to(out)): path.read_bytes() for path in out.glob("s/trials/*/measurements/*.json")}
