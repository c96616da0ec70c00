"""Launches and stops of the real engine in a row: is anything left behind?

    .venv/bin/python -m bench.launches               # 30 of the demo pair on the CPU engine, about 15 minutes

Without speculation and with K=7 in turns; every third engine is stopped while it answers requests, every third while
it still starts. As root it runs in namespaces of its own (processes, /dev/shm, network), so that whatever is there
after a stop is ours. What is looked for: processes by id, session, group and our environment marker; /dev/shm;
listeners on the port; the tuner's own descriptors; the launch's scratch directory. Prints a row per launch and exits
with 1 when anything was left. It measures no speed.
"""

import argparse
import asyncio
import fcntl
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import psutil

from bench.demo_engine import demo_config, launch_spec, serve_config
from runners import Engine, LaunchFailure, LaunchSpec, LocalRunner
from tuner.plan import make_plan

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's mount point, not a temporary file of ours
MARKER = b"DFLASH_TUNER_STUDY=bench"
STOPS = ("idle", "answering", "starting")
START_CUT_S = 12.0
SETTLE_S = 2.0
_LISTEN, _SIOCSIFFLAGS, _IFF_UP = "LISTEN", 0x8914, 0x1


@dataclass(slots=True)
class Seen:
    """What a launch had while it ran; filled by a thread, because the event loop may be busy when it matters."""

    pids: set[tuple[int, float]] = field(default_factory=set)
    groups: set[int] = field(default_factory=set)
    ports: set[int] = field(default_factory=set)
    segments: set[int] = field(default_factory=set)
    over: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        """Looks at the tree below this process until it is told that the launch is over."""
        me = psutil.Process()
        while not self.over.wait(0.2):
            for process in me.children(recursive=True):
                with suppress(psutil.Error, OSError):
                    self._remember(process)

    def _remember(self, process: psutil.Process) -> None:
        self.pids.add((process.pid, process.create_time()))
        # Between fork and setsid a child is in our own group still; 0 is a group outside of a namespace of our own.
        self.groups |= {os.getpgid(process.pid), os.getsid(process.pid)} - {0, os.getpgid(0), os.getsid(0)}
        self.ports |= {c.laddr.port for c in process.net_connections("inet") if c.status == _LISTEN}
        for line in Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines():
            if f" {SHARED_MEMORY}/" in line:
                self.segments.add(int(line.split(maxsplit=5)[4]))


def main() -> int:
    """Launches, stops and looks."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--launches", type=int, default=30)
    parser.add_argument("--shared", action="store_true", help="no namespaces of its own")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if os.geteuid() == 0 and not options.shared and not options.inside:
        apart = ["unshare", "--fork", "--pid", "--mount-proc", "--mount", "--net"]
        again = [sys.executable, "-m", "bench.launches", "--launches", str(options.launches), "--inside"]
        return subprocess.run([*apart, *again], check=False).returncode
    if options.inside:
        subprocess.run(["mount", "-t", "tmpfs", "bench", str(SHARED_MEMORY)], check=True)
        loopback_up()
    with tempfile.TemporaryDirectory(prefix="launches-") as directory:
        tempfile.tempdir = directory  # where runners put what goes with a launch
        return asyncio.run(launch_all(options.launches))


def loopback_up() -> None:
    """A new network namespace has its loopback down; 127.0.0.1 answers once it is up."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14s", b"lo", _IFF_UP, b""))


async def launch_all(count: int) -> int:
    """All launches; how many left something is the exit code's question."""
    plan = make_plan(demo_config(requests=4))
    own = psutil.Process()
    segments_before = set(SHARED_MEMORY.iterdir())  # noqa: ASYNC240 - before anything runs
    # A first look makes what is made once (threads of the default pool, modules); descriptors are compared with it.
    descriptors_before, threads_before = descriptors(), own.num_threads()
    dirty = failed = 0
    print("launch config      stopped while  start s  stop s  killed  processes ports segments  descriptors  MB  left")
    for number in range(count):
        k, how = (0, 7)[number % 2], STOPS[number % len(STOPS)]
        seen = Seen()
        with watched(seen), tempfile.TemporaryDirectory() as directory:
            try:
                report = await one_launch(launch_spec(plan, serve_config(plan, k), Path(directory)), how)
            except LaunchFailure as failure:  # what it left is looked for all the same
                report, failed = f"{failure.kind:>23s}", failed + 1
        left = [*left_of(seen, segments_before), *(f"fd {name}" for name in sorted(descriptors() - descriptors_before))]
        dirty += bool(left)
        print(
            f"{number + 1:6d} {f'dflash K={k}' if k else 'none':11s} {how:13s} {report} {len(seen.pids):10d} "
            f"{len(seen.ports):5d} {len(seen.segments):8d} {len(descriptors()):12d} "
            f"{own.memory_full_info().uss / 1e6:4.0f}  {'; '.join(left) or 'nothing'}",
            flush=True,
        )
    print(
        f"{count} launches, {failed} did not start, {dirty} left something; "
        f"the tuner's descriptors {len(descriptors_before)} before, "
        f"{len(descriptors())} after; its threads {threads_before} before, {own.num_threads()} after"
    )
    return 1 if dirty or failed else 0


@contextmanager
def watched(seen: Seen) -> Iterator[None]:
    """Looks at the launch as long as it lasts."""
    watcher = threading.Thread(target=seen.look)
    watcher.start()
    try:
        yield
    finally:
        seen.over.set()
        watcher.join()


async def one_launch(spec: LaunchSpec, how: str) -> str:
    """A launch and its stop; columns of the table."""
    runner, began = LocalRunner(), time.monotonic()
    if how == "starting":
        starting = asyncio.create_task(_hold(runner, spec))
        await asyncio.wait({starting}, timeout=START_CUT_S)
        began_stop = time.monotonic()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return f"{'-':>7s} {time.monotonic() - began_stop:7.1f} {'-':>7s}"
    async with runner.launch(spec) as engine:
        start_s, requests = time.monotonic() - began, []
        if how == "answering":
            requests = [asyncio.create_task(_ask(engine)) for _ in range(4)]
            await asyncio.sleep(1.5)
            if any(request.done() for request in requests):
                raise SystemExit("a request ended before the engine was stopped; ask for more tokens")
        began_stop = time.monotonic()
    await asyncio.gather(*requests, return_exceptions=True)
    killed = engine.stop_report.killed if engine.stop_report else ()
    return f"{start_s:7.1f} {time.monotonic() - began_stop:7.1f} {len(killed):7d}"


async def _hold(runner: LocalRunner, spec: LaunchSpec) -> None:
    async with runner.launch(spec):
        await asyncio.sleep(3600)


async def _ask(engine: Engine) -> None:
    """A request that is still being answered when the engine is stopped."""
    body = {"model": engine.model, "prompt": "def", "max_tokens": 3000, "ignore_eos": True, "stream": True}
    headers = {"Authorization": f"Bearer {engine.api_key}"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{engine.base_url}/v1/completions", json=body, headers=headers) as response,
    ):
        async for _ in response.content:
            pass


def left_of(seen: Seen, segments_before: set[Path]) -> list[str]:
    """What is still there of a launch; what is about to go has two seconds for it."""
    end = time.monotonic() + SETTLE_S
    while (left := list(_left(seen, segments_before))) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def _left(seen: Seen, segments_before: set[Path]) -> Iterator[str]:
    own = os.getpid()
    for pid in psutil.pids():
        # Gone while we look is what is wanted.
        with suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            ids = {os.getpgid(pid), os.getsid(pid)}
            marked = pid != own and MARKER in Path(f"/proc/{pid}/environ").read_bytes()
            if (pid, process.create_time()) in seen.pids or ids & seen.groups or marked:
                yield f"process {pid} {process.name()} {process.status()}"
    for path in SHARED_MEMORY.iterdir():
        # In namespaces of our own all of it is ours; on a shared host what the launch had mapped.
        with suppress(FileNotFoundError):
            if path not in segments_before and (_alone() or path.stat().st_ino in seen.segments):
                yield f"segment {path.name}"
    for connection in psutil.net_connections("inet"):
        where = connection.laddr
        if where and connection.status == _LISTEN and (where.port in seen.ports or _alone()):
            yield f"port {where.port}"
    for scratch in Path(tempfile.gettempdir()).glob("dflash-tuner-*"):
        yield f"directory {scratch.name}"


def _alone() -> bool:
    return "--inside" in sys.argv


def descriptors() -> set[str]:
    """The tuner's own open files, without the look at them."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the directory itself
            found.add(f"{entry.name} {entry.readlink()}")
    return found


if __name__ == "__main__":
    sys.exit(main())
