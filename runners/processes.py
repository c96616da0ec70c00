"""Finding and ending what an earlier tuner left behind, even when its supervisors were killed too.

Every process of a launch inherits a marker in its environment. vLLM renames its workers with setproctitle, which
overwrites the memory that /proc/PID/environ shows, so a process also counts when its output goes to an ``engine.log``
beside an ``engine.json`` of ours, and so do the descendants of either. Knows nothing of HTTP or of how to launch.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runners import supervisor
from runners.errors import EngineNotStopped
from runners.launch_record import LOG_NAME, read_marker

MARKER_STUDY = "DFLASH_TUNER_STUDY"
MARKER_LAUNCH = "DFLASH_TUNER_LAUNCH"
SCRATCH = "VLLM_RPC_BASE_PATH"
SCRATCH_PREFIX = "dflash-tuner-"
SUPERVISOR_PATH = Path(supervisor.__file__)
_POLL_S = 0.05
_KILL_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """A living process that belongs to a launch.

    Attributes:
        pid: Process id.
        start_ticks: Start time in clock ticks since boot; with the pid it names one process for ever.
        study: Study that launched it.
        launch: Id of the launch.
        role: Our supervisor, or anything below it.
        command: Command line, as the process shows it.
    """

    pid: int
    start_ticks: int
    study: str
    launch: str
    role: Literal["supervisor", "engine"]
    command: str


def find_engines(study: str | None = None, *, launch: str | None = None) -> tuple[EngineProcess, ...]:
    """Living processes of launches on this host that this user may see, supervisors first.

    Args:
        study: Only those of this study; all studies when None.
        launch: Only those of this launch.
    """
    own = set(_ancestry(os.getpid()))
    parents = {pid: stat[0] for pid in supervisor.living() if (stat := supervisor.read_stat(pid))}
    markers = {pid: marker for pid in parents if pid not in own and (marker := _marker(pid))}
    for pid in parents.keys() - markers.keys() - own:
        ancestor = pid
        while ancestor in parents and ancestor not in markers:
            ancestor = parents[ancestor]
        if ancestor in markers:
            markers[pid] = markers[ancestor]
    found = [
        process
        for pid, (its_study, its_launch) in markers.items()
        if study in (None, its_study) and launch in (None, its_launch)
        if (process := _process(pid, its_study, its_launch))
    ]
    return tuple(sorted(found, key=lambda process: (process.role != "supervisor", process.pid)))


def reap_engines(study: str, *, launch: str | None = None, grace_s: float = 10.0) -> tuple[EngineProcess, ...]:
    """End every process of a study's launches: SIGTERM, ``grace_s`` seconds, SIGKILL; blocks until they are gone.

    Returns:
        The processes that were there.

    Raises:
        EngineNotStopped: One survived SIGKILL.
    """
    found = find_engines(study, launch=launch)
    segments = supervisor.shared_memory_of(process.pid for process in found)
    scratches = {scratch for process in found if (scratch := _scratch(process.pid))}
    oldest = min((_started_at(process) for process in found), default=0.0)
    for process in found:
        _send(process, signal.SIGTERM)
    everything = set(found)
    left = _wait_gone(everything, grace_s)
    give_up = time.monotonic() + _KILL_LIMIT_S
    while left and time.monotonic() < give_up:
        for process in left:
            _send(process, signal.SIGKILL)
        left = _wait_gone(left, _POLL_S)
        # What was started after the first look; supervisors are gone by now, so this ends.
        started_since = set(find_engines(study, launch=launch)) - everything
        everything |= started_since
        left = {*left, *started_since}
    if left:
        names = ", ".join(f"{process.pid} ({process.command[:60]})" for process in left)
        raise EngineNotStopped(
            f"processes of study {study!r} survived SIGKILL: {names}; reboot or free what they wait for"
        )
    supervisor.remove_segments(segments, since=oldest)
    for scratch in scratches:
        shutil.rmtree(scratch, ignore_errors=True)
    return found


def is_alive(process: EngineProcess) -> bool:
    """The same process, not another one that got its id, still runs."""
    stat = supervisor.read_stat(process.pid)
    return stat is not None and stat[1] == process.start_ticks


def _started_at(process: EngineProcess) -> float:
    """Unix seconds, rounded down generously: file times are coarser than the clock."""
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME) - process.start_ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - up_s - 1.0


def _wait_gone(processes: Collection[EngineProcess], limit_s: float) -> set[EngineProcess]:
    """Those that still live when ``limit_s`` is over; returns as soon as none does."""
    end = time.monotonic() + limit_s
    while (left := {process for process in processes if is_alive(process)}) and time.monotonic() < end:
        time.sleep(_POLL_S)
    return left


def _send(process: EngineProcess, number: int) -> None:
    if is_alive(process):
        supervisor.send(process.pid, number)


def _process(pid: int, study: str, launch: str) -> EngineProcess | None:
    stat = supervisor.read_stat(pid)
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return None
    if stat is None:
        return None
    role: Literal["supervisor", "engine"] = "supervisor" if str(SUPERVISOR_PATH) in argv else "engine"
    return EngineProcess(pid, stat[1], study, launch, role, " ".join(argv).strip())


def _marker(pid: int) -> tuple[str, str] | None:
    """Study and launch of a process, if it shows any."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        values = dict(
            entry.split("=", 1) for entry in environment if entry.startswith("DFLASH_TUNER_") and "=" in entry
        )
        if MARKER_STUDY in values and MARKER_LAUNCH in values:
            return values[MARKER_STUDY], values[MARKER_LAUNCH]
        return _marker_from_log(pid)
    except (FileNotFoundError, PermissionError, ProcessLookupError):  # gone, or another user's
        return None


def _environment(pid: int) -> dict[str, str]:
    """What a process was started with, as far as it still shows it."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _scratch(pid: int) -> Path | None:
    """The directory for sockets that the runner made for the process's launch."""
    with suppress(FileNotFoundError, PermissionError, ProcessLookupError):
        path = Path(_environment(pid).get(SCRATCH, ""))
        if path.name.startswith(SCRATCH_PREFIX):
            return path
    return None


def _marker_from_log(pid: int) -> tuple[str, str] | None:
    for descriptor in (1, 2):
        with suppress(FileNotFoundError):  # it has closed that one
            log = Path(f"/proc/{pid}/fd/{descriptor}").readlink()
            if log.name == LOG_NAME and (marker := read_marker(log.parent)):
                return marker
    return None


def _ancestry(pid: int) -> Iterator[int]:
    """A process and its ancestors: never to be taken for something left behind."""
    while pid > 0:
        yield pid
        stat = supervisor.read_stat(pid)
        pid = stat[0] if stat else 0
