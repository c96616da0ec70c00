"""Whole studies on engines that are no command: one that runs already, and containers."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docker_stand_in import SIMULATED_IMAGE, Docker
from tests.integration.study_desk import Desk, engines_of, environment, run_tune
from tuner.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "runs"
    assert engines_of(tmp_path / "runs", "s") == []


@pytest.fixture
def theirs() -> Iterator[str]:
    """URL of an engine that somebody else runs; it must live to the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["-P", "-m", "runners.simulated", "serve", "their-model", "--host", "127.0.0.1", "--port", str(port)]
    engine = subprocess.Popen(
        [sys.executable, *words],
        env=environment(VLLM_API_KEY="their-key", VLLM_SERVER_DEV_MODE="1"),
        stderr=subprocess.DEVNULL,
    )
    yield f"http://127.0.0.1:{port}/v1"
    assert engine.poll() is None
    engine.terminate()
    engine.wait()


def test_an_attached_engine_is_measured_as_it_is_and_only_temperature_is_searched(
    desk: Desk, out: Path, theirs: str
) -> None:
    words = desk.options(
        "s",
        out,
        engine_command=None,
        engine_args=None,
        engine_url=theirs,
        engine_api_key_env="THEIR_KEY",
        temperature="search:0.2-0.8",
        trials="2",
        profile_by="none",
    )
    ended = run_tune(*words, "--no-tracking", env={"THEIR_KEY": "their-key"})
    assert ended.returncode == 0, ended.stderr
    assert f"the engine at {theirs} is measured as it is and never restarted" in ended.stdout
    records = Store.open(out, "s").records()
    assert {r.plan.serve_config.label() for r in records} == {"as it is"}
    assert len({r.plan.temperature for r in records if r.plan.phase == "search"}) == 1
    assert not list((out / "s" / "recommended").rglob("serve.*"))
    written = "".join(p.read_text(errors="replace") for p in (out / "s").rglob("*.json"))
    assert "their-key" not in written + ended.stdout


def test_a_key_that_is_not_there_and_two_engines_are_refused(desk: Desk, out: Path, theirs: str) -> None:
    words = desk.options("s", out, engine_command=None, engine_url=theirs, engine_api_key_env="NOT_THERE")
    refused = run_tune(*words, "--no-tracking")
    assert refused.returncode == 2
    assert "NOT_THERE: this variable is not set" in refused.stderr
    both = run_tune(*desk.options("s2", out, engine_url=theirs))
    assert both.returncode == 2
    assert "--engine-command and --engine-url name 2 engines; give one" in both.stderr


def test_a_study_in_containers_ends_with_an_answer_and_without_a_container(
    desk: Desk, out: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    docker = Docker(tmp_path_factory.mktemp("d"))
    try:
        words = desk.options(
            "s",
            out,
            engine_command=None,
            engine_version=None,
            engine_image=SIMULATED_IMAGE,
            container_command=str(docker.command),
            trials="2",
            profile_by="none",
        )
        ended = run_tune(*words, "--no-tracking")
        assert ended.returncode == 0, ended.stderr
        runs = docker.calls("run")
        assert len(runs) == len(Store.open(out, "s").records())
        assert all(f"{desk.target}:{desk.target}:ro" in words for words in runs)
        listing = [str(docker.command), "ps", "--all", "--quiet", "--no-trunc", "--filter", "label="]
        assert subprocess.run(listing, capture_output=True, check=True).stdout == b""
    finally:
        docker.end()
