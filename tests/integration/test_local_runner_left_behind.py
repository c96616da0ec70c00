"""What is left of an engine when the tuner, its supervisor, or both are killed: nothing, or something that is found."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from runners import EngineProcess, LaunchSpec, LocalRunner, find_engines, reap_engines

SCRIPT = Path(__file__).with_name("scripted_engine.py")
TUNER = """
import asyncio, sys
from pathlib import Path
from runners import LaunchSpec, LocalRunner

async def main(study, workdir, *argv):
    spec = LaunchSpec(argv=argv, workdir=Path(workdir), served_model="tiny", study=study, stop_timeout_s=1.0)
    async with LocalRunner().launch(spec, on_progress=lambda phase: print(phase, flush=True)):
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


class Tuner:
    """A process that holds an engine, to be killed."""

    def __init__(self, tmp_path: Path, *switches: str) -> None:
        self.study = str(tmp_path)
        repository = Path(__file__).parents[2]
        self.process = subprocess.Popen(
            [sys.executable, "-c", TUNER, self.study, str(tmp_path / "launch"), sys.executable, str(SCRIPT), *switches],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(repository)},
        )

    def wait_for(self, phase: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == phase:
                return
        raise AssertionError(f"the tuner ended before {phase!r}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def processes(self, role: str | None = None) -> list[EngineProcess]:
        return [process for process in find_engines(self.study) if role in (None, process.role)]

    def all_gone_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.02)
        return not left


@pytest.fixture
def tuners() -> Iterator[list[Tuner]]:
    """Tuners of a test; whatever it leaves is killed, so that a failing test leaves nothing either."""
    started: list[Tuner] = []
    yield started
    for tuner in started:
        tuner.kill()
        for process in tuner.processes():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def scratch_of(pid: int) -> Path:
    entries = Path(f"/proc/{pid}/environ").read_text(encoding="utf-8").split("\0")
    return Path(next(entry.partition("=")[2] for entry in entries if entry.startswith("VLLM_RPC_BASE_PATH=")))


@pytest.mark.parametrize(
    ("switches", "phase"),
    [
        ([], "ready"),
        (["--grandchild"], "ready"),
        (["--ignore-sigterm", "--grandchild-ignores-sigterm"], "ready"),
        (["--never-ready"], "loading weights"),
        (["--wrapper"], "ready"),
    ],
    ids=["plain", "grandchild", "nothing heeds SIGTERM", "starting", "wrapper"],
)
def test_killing_the_tuner_leaves_nothing(tmp_path: Path, tuners: list[Tuner], switches: list[str], phase: str) -> None:
    tuner = Tuner(tmp_path, *switches)
    tuners.append(tuner)
    tuner.wait_for(phase)
    assert len(tuner.processes()) >= 2
    tuner.kill()
    assert tuner.all_gone_within(20.0)


def test_killing_the_tuner_removes_the_sockets_of_the_engine(tmp_path: Path, tuners: list[Tuner]) -> None:
    tuner = Tuner(tmp_path)
    tuners.append(tuner)
    tuner.wait_for("ready")
    engine = tuner.processes("engine")[0]
    environ = dict(
        entry.split("=", 1) for entry in Path(f"/proc/{engine.pid}/environ").read_text().split("\0") if entry
    )
    scratch = Path(environ["VLLM_RPC_BASE_PATH"])
    assert scratch.is_dir()
    tuner.kill()
    assert tuner.all_gone_within(20.0)
    assert not scratch.exists()


def test_what_survives_tuner_and_supervisor_is_found_and_reaped(tmp_path: Path, tuners: list[Tuner]) -> None:
    switches = ("--ignore-sigterm", "--grandchild-ignores-sigterm", "--grandchild-forgets-environment")
    tuner = Tuner(tmp_path, *switches)
    tuners.append(tuner)
    tuner.wait_for("ready")
    (supervisor,) = tuner.processes("supervisor")
    os.kill(tuner.process.pid, signal.SIGSTOP)  # so that it cannot clean up after its supervisor
    os.kill(supervisor.pid, signal.SIGKILL)
    tuner.kill()
    for _ in range(200):  # a process that was sent SIGKILL is listed until the kernel has ended it
        left = tuner.processes()
        if "supervisor" not in {process.role for process in left}:
            break
        time.sleep(0.05)
    assert [process.role for process in left] == ["engine", "engine"]
    scratch = scratch_of(left[0].pid)
    assert set(reap_engines(tuner.study, grace_s=0.2)) == set(left)
    assert tuner.processes() == []
    assert not scratch.exists()


def test_reaping_spares_other_studies(tmp_path: Path, tuners: list[Tuner]) -> None:
    tuner = Tuner(tmp_path)
    tuners.append(tuner)
    tuner.wait_for("ready")
    assert reap_engines(f"{tuner.study}-other") == ()
    assert len(tuner.processes()) == 2


def test_without_its_supervisor_the_engine_is_told_to_end(tmp_path: Path, tuners: list[Tuner]) -> None:
    tuner = Tuner(tmp_path)
    tuners.append(tuner)
    tuner.wait_for("ready")
    (supervisor,) = tuner.processes("supervisor")
    os.kill(tuner.process.pid, signal.SIGSTOP)
    os.kill(supervisor.pid, signal.SIGKILL)
    assert tuner.all_gone_within(20.0)


async def test_a_tuner_that_loses_the_supervisor_still_leaves_nothing(tmp_path: Path) -> None:
    spec = LaunchSpec(
        argv=(sys.executable, str(SCRIPT), "--ignore-sigterm", "--grandchild-ignores-sigterm"),
        workdir=tmp_path / "launch",
        served_model="tiny",
        study=str(tmp_path),
        stop_timeout_s=1.0,
    )
    async with LocalRunner().launch(spec) as engine:
        supervisor = next(process for process in find_engines(spec.study) if process.role == "supervisor")
        scratch = scratch_of(engine.pid)
        os.kill(supervisor.pid, signal.SIGKILL)
        for _ in range(200):
            if engine.died() is None:
                await asyncio.sleep(0.1)
        assert engine.died() is not None
    assert find_engines(spec.study) == ()
    assert not scratch.exists()
