"""One study of the drill: run with its fault, mended, resumed, and looked at afterwards."""

import hashlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bench.drill_faults import Fault
from runners import find_engines
from tests.integration.study_desk import Desk, line, run_tune, write_workload
from tuner.records import TrialRecord
from tuner.store import Store

WRAPPER = Path(__file__).with_name("drill_engine.py")
RECIPE = "dflash K=15"
_LEFT_LIMIT_S = 20.0
INTERRUPTED = 4
_LONG_PROMPT_WORDS = 300
# All prompts differ from their first token on: what hits was sent in another measurement.
_MOST_HITS = 0.02
_FILLED = "filler"
# A step back of an hour after the tuner's first ten looks at the clock.
_CLOCK_STEP = """\
import time
_real, _looks = time.time, [0]
def _stepped():
    _looks[0] += 1
    return _real() - (3600 if _looks[0] > 10 else 0)
time.time = _stepped
"""


class DrillStudy:
    """A study with one fault."""

    def __init__(self, desk: Desk, directory: Path, fault: Fault) -> None:
        self._desk, self._fault, self._scratch = desk, fault, directory
        self._out = directory / "runs"
        self._tries = 0

    @property
    def directory(self) -> Path:
        """The study's own directory."""
        return self._out / "s"

    @contextmanager
    def place(self) -> Iterator[None]:
        """The directory of studies, on a file system of its own where the fault needs one."""
        self._out.mkdir()
        own = self._fault.place in ("small", "read_only")
        if own:
            size = "2m" if self._fault.place == "small" else "32m"
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "drill", str(self._out)], check=True)
        try:
            yield
        finally:
            if own:
                subprocess.run(["umount", "-l", str(self._out)], check=True)

    def run(self) -> tuple[str, bool]:
        """Runs the study, mends what the fault broke outside of it, resumes it; a note, and whether it ended well."""
        if self._fault.place == "read_only":
            return self._run_read_only()
        with self._foreigner():
            ended = self._tune(*self._words())
        said = ended.stdout + ended.stderr
        if ended.returncode == INTERRUPTED and self._fault.place == "small":
            note = f"ended with {ended.returncode}, resumed"
            for filler in self._out.rglob(_FILLED):
                filler.unlink()
            ended = self._tune("resume", "s", "--out", str(self._out))
        else:
            note = ""
        return note or ended.stderr.strip(), ended.returncode == 0 and self._said(said)

    def kind_of_fault(self) -> str:
        """What the record of the trial that was hit says."""
        record = next((r for r in self._records() if r.plan.phase == "recipe"), None)
        if record is None:
            return "no record"
        if record.failure is not None:
            return record.failure.kind
        problems = " ".join(p for m in record.measurements.values() for p in m.problems)
        if problems and "invalid" in self._fault.expected:
            return "invalid" if re.search(self._fault.words, problems) else f"invalid, but: {problems}"
        hits = [m.metrics.get("prefix_hit_rate", 0.0) for m in record.measurements.values()]
        if self._fault.long_prompts and max(hits, default=1.0) > _MOST_HITS:
            return f"stale cache: {max(hits):.0%} hits"
        return "measured" if record.status == "measured" else record.status

    def lost(self) -> int:
        """Measurements on disk that are in no record, or in more than one."""
        in_records = [(r.plan.number, key) for r in self._records() for key in r.measurements]
        store = Store.open(self._out, "s")
        on_disk = [(number, key) for number in _numbers(self.directory) for key in store.measurements(number)]
        return len(set(on_disk) ^ set(in_records)) + len(in_records) - len(set(in_records))

    def left(self) -> tuple[str, ...]:
        """Processes and open ports of the study."""
        return left_of(self._out)

    def _run_read_only(self) -> tuple[str, bool]:
        subprocess.run(["mount", "-o", "remount,ro", str(self._out)], check=True)
        refused = self._tune(*self._words())
        subprocess.run(["mount", "-o", "remount,rw", str(self._out)], check=True)
        ended = self._tune(*self._words())
        told = refused.returncode == 2 and refused.stderr.count("\n") == 1 and self._said(refused.stderr)
        return f"refused with exit {refused.returncode}, then run", told and ended.returncode == 0

    def _words(self) -> list[str]:
        command = f"{shlex.quote(sys.executable)} {shlex.quote(str(WRAPPER))}"
        options = {"trials": "2", "profile_by": "none", "requests": "8", **self._fault.options}
        if self._fault.long_prompts:
            lines = [line(n, "code", prompt=f"{n} " + "word " * _LONG_PROMPT_WORDS) for n in range(24)]
            options["workload"] = str(write_workload(self._scratch / "long.jsonl", lines))
        return [*self._desk.options("s", self._out, engine_command=command, **options), "--no-tracking"]

    def _tune(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {
            "DRILL_FAULTS": self._fault.faults,
            "DRILL_TRICK": self._fault.trick,
            "DRILL_ONCE": str(self._scratch / "once") if self._fault.once else "",
            "DRILL_PORT_FILE": str(self._scratch / "port"),
        }
        if self._fault.place == "clock_step":
            (self._scratch / "sitecustomize.py").write_text(_CLOCK_STEP, encoding="utf-8")
            env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(self._scratch), os.environ.get("PYTHONPATH"))))
        return run_tune(*words, env=env, timeout_s=240)

    def _said(self, text: str) -> bool:
        invalid = "invalid" in self._fault.expected
        return bool(invalid or re.search(self._fault.words, text))

    def _records(self) -> list[TrialRecord]:
        return Store.open(self._out, "s").records()

    @contextmanager
    def _foreigner(self) -> Iterator[None]:
        """A process that is not of the launch and takes the port that the launch was given: this one."""
        over = threading.Event()
        thread = threading.Thread(target=self._take_port, args=(over,))
        if self._fault.trick in ("second_server", "foreign_process"):
            thread.start()
        try:
            yield
        finally:
            over.set()
            if thread.ident is not None:
                thread.join()

    def _take_port(self, over: threading.Event) -> None:
        port_file = self._scratch / "port"
        while not over.is_set() and not port_file.exists():
            time.sleep(0.01)
        if over.is_set():
            return
        port = int(port_file.read_text(encoding="ascii"))
        if self._fault.trick == "second_server":
            server = ThreadingHTTPServer(("127.0.0.1", port), _Healthy)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            over.wait()
            server.shutdown()
            server.server_close()
        else:
            with socket.socket() as held:
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held.bind(("127.0.0.1", port))
                held.listen()
                over.wait()


class _Healthy(BaseHTTPRequestHandler):
    """Healthy, whoever asks."""

    def do_GET(self) -> None:
        """200."""
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Silent."""


def left_of(out: Path) -> tuple[str, ...]:
    """Processes and open ports of a study's launches, after a moment for what is being ended."""
    marker = f"s-{hashlib.sha256(str((out / 's').absolute()).encode()).hexdigest()[:8]}"
    end = time.monotonic() + _LEFT_LIMIT_S
    while (found := find_engines(marker)) and time.monotonic() < end:
        time.sleep(0.05)
    ports = {json.loads(path.read_bytes())["port"] for path in out.glob("s/trials/*/engine.json")}
    return (*(f"{p.pid} {p.command[:60]}" for p in found), *(f"port {port}" for port in ports if _is_open(port)))


def _is_open(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        return probe.connect_ex(("127.0.0.1", port)) == 0
    return False


def _numbers(directory: Path) -> list[int]:
    return [int(path.name) for path in directory.glob("trials/[0-9]*")]
