"""The process between the tuner and one engine: whatever ends the tuner, nothing of the engine is left.

Run as a lone file, ``python -I -S supervisor.py``, so that neither the current directory nor site-packages can shadow
anything and it starts in milliseconds; it must therefore import nothing but light standard modules. Its stdin is the
tuner's end of the line: one JSON object says what to run, later lines are commands, and end of file means that the
tuner is gone. Its stdout carries one JSON event a line; its stderr is the engine's log.

Being the subreaper of its descendants (prctl(2), PR_SET_CHILD_SUBREAPER), it is the ancestor of everything the engine
starts, in whatever process group or session, so a walk over parent ids finds all of it. It judges nothing: why an
engine ended is told from the log by somebody else.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator

# prctl(2), from linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the kernel's mount point, not a temporary file of ours
_POLL_S = 0.02
# After the main process ended by itself: what its children (and multiprocessing's resource tracker) may still need.
_ORPHAN_GRACE_S = 1.0
_KILL_LIMIT_S = 10.0
# An engine that has not served yet has nothing to finish, and vLLM may ignore SIGTERM for ever while it starts.
STARTING_GRACE_S = 3.0


def read_stat(pid: int) -> tuple[int, int] | None:
    """Parent id and start time (clock ticks since boot) from /proc/PID/stat; None for a process gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib is too slow to import here
            # The command name is in parentheses and may contain anything; fields are counted after the last one.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]))


def living() -> Iterator[int]:
    """Ids of all processes that this /proc shows, zombies included."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - as above


def descendants(ancestors: Iterable[int]) -> list[int]:
    """Living descendants of ``ancestors``, not these themselves."""
    children: dict[int, list[int]] = {}
    for pid in living():
        if stat := read_stat(pid):
            children.setdefault(stat[0], []).append(pid)
    found: list[int] = []
    queue = list(ancestors)
    while queue:
        offspring = children.pop(queue.pop(), [])
        found += offspring
        queue += offspring
    return found


def shared_memory_of(pids: Iterable[int]) -> set[int]:
    """Inodes under /dev/shm that the processes have mapped.

    Inodes and not names, because glibc maps a new semaphore under a passing name before it gives it its own.
    """
    inodes: set[int] = set()
    for pid in pids:
        # Gone, or another user's: nothing of ours to see there.
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:  # noqa: PTH123 - as above
            inodes.update(int(line.split(maxsplit=5)[4]) for line in maps if f" {_SHARED_MEMORY}/" in line)
    return inodes


def send(pid: int, number: int) -> None:
    """Send a signal; a process that is gone already is what was wanted."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Supervisor:
    """One engine, from its start to the end of the last of its processes."""

    def __init__(
        self, argv: list[str], *, tuner_pid: int, stop_timeout_s: float, starting_grace_s: float, scratch: str | None
    ) -> None:
        self._started_at = time.time() - 1.0  # file times are coarser than the clock
        self._scratch = scratch
        self._stop_timeout_s = stop_timeout_s
        self._starting_grace_s = starting_grace_s
        self._ready = False
        self._deadline: float | None = None  # set once the engine has to end, monotonic clock
        self._returncode: int | None = None
        self._killed: list[str] = []
        self._segments: set[int] = set()
        self._pending = b""
        self._poll = select.poll()
        self._wakeup, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        # A handler that does nothing, and not SIG_IGN: the engine would inherit that.
        signal.signal(signal.SIGINT, lambda *_: None)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")
        self._tuner = os.pidfd_open(tuner_pid)
        if os.getppid() != tuner_pid:
            raise ProcessLookupError("the tuner ended before the supervisor began")
        for descriptor in (0, self._wakeup, self._tuner):
            self._poll.register(descriptor, select.POLLIN)
        self._engine = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            stderr=sys.stderr,
            process_group=0,
            # Last resort, for a supervisor that is itself killed: the engine's main process is told to end.
            preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0),  # noqa: PLW1509 - no threads here
        )
        report("started", pid=self._engine.pid)

    def run(self) -> None:
        """Wait for the engine or for the order to stop it, then end all of it and report how that went."""
        while self._returncode is None and self._deadline is None:
            self._pump(None)
        began = time.monotonic()
        if self._returncode is None:
            self._segments |= shared_memory_of(self._tree())
            send(self._engine.pid, signal.SIGTERM)
            self._pump_until(lambda: self._returncode is not None, limit=None)
        else:
            report("exited", returncode=self._returncode)
        self._sweep()
        left = [describe(pid) for pid in self._tree()]
        report(
            "stopped",
            returncode=self._returncode,
            killed=self._killed,
            left=left,
            segments=remove_segments(self._segments, since=self._started_at),
            stop_s=time.monotonic() - began,
        )
        remove_directory(self._scratch)

    def _tree(self) -> list[int]:
        return descendants([os.getpid()])

    def _sweep(self) -> None:
        """End what outlived the main process, and the main process if it did not heed SIGTERM."""
        tree = self._tree()
        self._segments |= shared_memory_of(tree)
        if self._returncode is not None and tree:
            for pid in tree:
                send(pid, signal.SIGTERM)
            self._pump_until(lambda: not self._tree(), limit=time.monotonic() + _ORPHAN_GRACE_S)
        give_up = time.monotonic() + _KILL_LIMIT_S
        named: set[int] = set()
        # Again and again, because a process may have forked between the look and the signal.
        while (tree := self._tree()) and time.monotonic() < give_up:
            for pid in tree:
                if pid not in named:
                    named.add(pid)
                    self._killed.append(describe(pid))
                send(pid, signal.SIGKILL)
            self._pump(0.005)
        # A process that is dying is in no list any more, but may not be ready to be collected yet.
        self._pump_until(lambda: self._returncode is not None, limit=time.monotonic() + _ORPHAN_GRACE_S)

    def _pump_until(self, done: Callable[[], bool], *, limit: float | None) -> None:
        """Handle events until ``done`` or ``limit``; without a limit, until the deadline, which an event may move."""
        while not done():
            end = self._deadline if limit is None else limit
            if end is not None and time.monotonic() >= end:
                return
            self._pump(_POLL_S)

    def _pump(self, timeout_s: float | None) -> None:
        for descriptor, _ in self._poll.poll(None if timeout_s is None else timeout_s * 1000):
            if descriptor == self._wakeup:
                os.read(self._wakeup, 4096)
            elif descriptor == self._tuner:
                self._poll.unregister(descriptor)
                self._order_stop(self._stop_timeout_s)
            else:
                self._read_commands()
        self._reap()

    def _read_commands(self) -> None:
        data = os.read(0, 65536)
        if not data:
            self._poll.unregister(0)
            self._order_stop(self._stop_timeout_s)
        self._pending += data
        *lines, self._pending = self._pending.split(b"\n")
        for line in lines:
            command = json.loads(line)
            if command["command"] == "stop":
                self._order_stop(float(command["timeout_s"]))
            elif command["command"] == "ready":
                self._ready = True
                # Remembered, because an engine that later dies at once takes the knowledge with it.
                self._segments |= shared_memory_of(self._tree())

    def _order_stop(self, timeout_s: float) -> None:
        """Begin to stop, or hurry a stop that has begun; never prolong one."""
        deadline = time.monotonic() + (timeout_s if self._ready else min(timeout_s, self._starting_grace_s))
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)

    def _on_signal(self, number: int, _frame: object) -> None:
        if number != signal.SIGCHLD:
            self._order_stop(self._stop_timeout_s)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):  # no child left
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._engine.pid:
                    self._returncode = self._engine.returncode = os.waitstatus_to_exitcode(status)


def remove_segments(inodes: set[int], *, since: float, folder: str = _SHARED_MEMORY) -> list[str]:
    """Remove shared memory that is not older than ``since`` (Unix seconds) and that no process has mapped any more."""
    left = [entry for entry in os.scandir(folder) if entry.inode() in inodes]
    mapped = shared_memory_of(living()) if left else set()
    removed = []
    for entry in left:
        # Another process may have removed it meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if entry.inode() not in mapped and entry.stat().st_ctime >= since:
                os.unlink(entry.path)  # noqa: PTH108 - as above
                removed.append(entry.path)
    return sorted(removed)


def remove_directory(path: str | None) -> None:
    """Remove a directory with all that is in it."""
    if path is not None:
        subprocess.run(["rm", "-rf", "--", path], check=False)


def describe(pid: int) -> str:
    """``PID name`` for a report."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
            return f"{pid} {file.read().strip()}"
    except OSError:
        return f"{pid} (gone)"


def report(event: str, **fields: object) -> None:
    """Tell the tuner; when it is gone there is nobody to tell and the work goes on."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps({"event": event, **fields}).encode() + b"\n")


def main() -> int:
    """Read the order, run the engine, leave nothing."""
    order = bytearray()
    while not order.endswith(b"\n"):
        byte = os.read(0, 1)  # one at a time: what follows the line belongs to the command reader
        if not byte:  # the tuner ended before it gave an order
            scratch = os.environ.get("VLLM_RPC_BASE_PATH", "")
            remove_directory(scratch if "/dflash-tuner-" in scratch else None)
            return 0
        order += byte
    arguments = json.loads(order)
    try:
        supervisor = Supervisor(**arguments)
    except OSError as error:
        remove_directory(arguments["scratch"])
        report("failed", error=str(error))
        return 1
    supervisor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
