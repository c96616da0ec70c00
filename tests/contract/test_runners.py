"""Every runner keeps the contract: processes here, simulated engines, containers, engines of somebody else's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from runners import AttachedRunner, ContainerRunner, LaunchSpec, LocalRunner, Runner
from runners.testing import RunnerContract
from tests.integration.docker_stand_in import KNOWN_IMAGE, Docker

SCRIPT = Path(__file__).parents[1] / "integration" / "scripted_engine.py"


def spec_of(directory: Path, *argv: str) -> LaunchSpec:
    return LaunchSpec(
        argv=argv,
        workdir=directory / "launch",
        served_model="tiny",
        study=str(directory),
        ready_timeout_s=60.0,
        stop_timeout_s=5.0,
    )


class TestLocalRunner(RunnerContract):
    """Processes on this host."""

    def runner(self) -> Runner:
        return LocalRunner()

    def spec(self, directory: Path) -> LaunchSpec:
        return spec_of(directory, sys.executable, str(SCRIPT))

    def broken(self, directory: Path) -> tuple[Runner, LaunchSpec]:
        return LocalRunner(), spec_of(directory, sys.executable, str(SCRIPT), "--no-tokens")


@pytest.mark.slow
class TestSimulatedEngine(RunnerContract):
    """The simulated engine, as a process on this host."""

    COMMAND = (sys.executable, "-P", "-m", "runners.simulated", "serve", "m", "--served-model-name", "tiny")

    def runner(self) -> Runner:
        return LocalRunner()

    def spec(self, directory: Path) -> LaunchSpec:
        return replace(spec_of(directory, *self.COMMAND), env={"SIMULATED_TIME_SCALE": "20"})

    def broken(self, directory: Path) -> tuple[Runner, LaunchSpec]:
        return LocalRunner(), replace(spec_of(directory, *self.COMMAND), env={"SIMULATED_FAULTS": "oom_at=kv"})


class TestAttachedRunner(RunnerContract):
    """An engine that was there before and stays."""

    owns_engine: ClassVar[bool] = False
    port: int

    @pytest.fixture(autouse=True)
    def _engine(self) -> Iterator[None]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), "--host", "127.0.0.1", "--port", str(self.port)],
            env=os.environ | {"VLLM_API_KEY": "theirs"},
        )
        yield
        assert process.poll() is None
        process.kill()
        process.wait()

    def runner(self) -> Runner:
        return AttachedRunner(f"http://127.0.0.1:{self.port}/v1", "theirs")

    def spec(self, directory: Path) -> LaunchSpec:
        return spec_of(directory)

    def broken(self, directory: Path) -> tuple[Runner, LaunchSpec]:
        return AttachedRunner(f"http://127.0.0.1:{self.port}", "not theirs"), spec_of(directory)

    async def test_its_prefix_cache_is_left_alone(self, tmp_path: Path) -> None:
        async with self.runner().launch(self.spec(tmp_path)) as engine:
            before = await engine.scrape()
            assert await engine.reset_prefix_cache() is False
            assert (await engine.scrape()).since(before).generation_tokens == 0


class TestContainerRunner(RunnerContract):
    """Containers, under a stand-in for docker that runs them as processes of its own daemon."""

    docker: Docker

    @pytest.fixture(autouse=True)
    def _docker(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        self.docker = Docker(tmp_path_factory.mktemp("d"))
        yield
        listed = subprocess.run(
            [self.docker.command, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label="],
            capture_output=True,
            check=True,
        )
        self.docker.end()
        assert listed.stdout == b""

    def runner(self) -> Runner:
        return ContainerRunner(KNOWN_IMAGE, command=str(self.docker.command))

    def spec(self, directory: Path) -> LaunchSpec:
        return spec_of(directory)

    def broken(self, directory: Path) -> tuple[Runner, LaunchSpec]:
        return ContainerRunner("engine:unknown", command=str(self.docker.command)), spec_of(directory)
