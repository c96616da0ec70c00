"""What only containers have: mounts, labels, an env file, and a daemon that owns the processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners import ContainerRunner, LaunchFailure, LaunchSpec, LocalRunner, find_engines, reap_containers
from runners.launch_record import LOG_NAME
from tests.integration.docker_stand_in import KNOWN_IMAGE, Docker

TUNER = """
import asyncio, sys
from pathlib import Path
from runners import ContainerRunner, LaunchSpec

async def main(study, workdir, command, image, *argv):
    spec = LaunchSpec(argv=argv, workdir=Path(workdir), served_model="tiny", study=study, stop_timeout_s=1.0)
    async with ContainerRunner(image, command=command).launch(spec):
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    stand_in = Docker(tmp_path_factory.mktemp("d"))
    yield stand_in
    stand_in.end()


def spec_for(directory: Path, *argv: str) -> LaunchSpec:
    return LaunchSpec(
        argv=argv, workdir=directory / "launch", served_model="tiny", study=str(directory), stop_timeout_s=1.0
    )


def listed(docker: Docker) -> str:
    words = [str(docker.command), "ps", "--all", "--quiet", "--no-trunc", "--filter", "label="]
    return subprocess.run(words, capture_output=True, check=True, text=True).stdout


async def test_the_command_line_is_what_it_should_be_and_holds_no_secret(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub, model, cache = tmp_path / "hub", tmp_path / "model", tmp_path / "cache"
    for directory in (hub, model, cache):
        directory.mkdir()
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    runner = ContainerRunner(KNOWN_IMAGE, command=str(docker.command), read_only=(model,), writable=(cache,))
    spec = spec_for(tmp_path, "--served-model-name", "tiny")
    async with runner.launch(spec) as engine:
        (words,) = docker.calls("run")
        port = engine.base_url.rpartition(":")[2]
        environ = dict(engine.info["environ"])
        processes = " ".join(process.command for process in find_engines(spec.study))
        scratch = Path(words[words.index("--env-file") + 1]).parent
        left = [path.name for path in scratch.iterdir()]
    launch = words[words.index("--name") + 1].removeprefix("dflash-tuner-")
    study = next(word for word in words if word.startswith("dflash-tuner.study="))
    assert words == [
        *("--rm", "--name", f"dflash-tuner-{launch}", "--cidfile", str(scratch / "id")),
        *("--label", study, "--label", f"dflash-tuner.launch={launch}"),
        *("--env-file", str(scratch / "environment"), "--publish", f"127.0.0.1:{port}:8000", "--shm-size", "16g"),
        *("--gpus", "all", "--volume", f"{model}:{model}:ro", "--volume", f"{hub}:{hub}:ro"),
        *("--volume", f"{cache}:{cache}", KNOWN_IMAGE, "--served-model-name", "tiny"),
        *("--host", "0.0.0.0", "--port", "8000"),
    ]
    # The engine's own key is taken out of what it says of itself; that it has it, its readiness has shown.
    assert (environ["VLLM_API_KEY"], environ["HF_TOKEN"]) == ("[redacted]", "hf_secret")
    written = b"".join(path.read_bytes() for path in spec.workdir.iterdir())
    for secret in (engine.api_key, "hf_secret"):
        assert secret not in docker.calls_path.read_text(encoding="utf-8")
        assert secret not in processes
        assert secret.encode() not in written
    assert left == ["id"]
    assert not scratch.exists()


@pytest.mark.slow
async def test_a_container_that_ignores_sigterm_is_ended_by_its_id(docker: Docker, tmp_path: Path) -> None:
    runner = ContainerRunner(KNOWN_IMAGE, command=str(docker.command))
    async with runner.launch(spec_for(tmp_path, "--ignore-sigterm")):
        (container,) = listed(docker).split()
    assert ["--time", "1", container] in docker.calls("stop")
    assert listed(docker) == ""


async def test_an_image_that_cannot_be_had_and_a_daemon_that_is_not_there_say_so(
    docker: Docker, tmp_path: Path
) -> None:
    with pytest.raises(LaunchFailure, match=r"the image cannot be had .*no/such") as unknown:
        async with ContainerRunner("no/such", command=str(docker.command)).launch(spec_for(tmp_path)):
            pass
    assert (unknown.value.kind, unknown.value.infrastructure) == ("bad_command", False)
    docker.end()
    with pytest.raises(LaunchFailure, match="Cannot connect to the Docker daemon") as dead:
        async with ContainerRunner(KNOWN_IMAGE, command=str(docker.command)).launch(spec_for(tmp_path / "b")):
            pass
    assert (dead.value.kind, dead.value.infrastructure) == ("bad_command", True)


@pytest.mark.slow
@pytest.mark.parametrize("everything", [False, True], ids=["tuner", "tuner, supervisor and guard"])
def test_killing_the_tuner_leaves_no_container_or_one_that_is_found(
    docker: Docker, tmp_path: Path, *, everything: bool
) -> None:
    words = [str(tmp_path), str(tmp_path / "launch"), str(docker.command), KNOWN_IMAGE]
    tuner = subprocess.Popen(
        [sys.executable, "-c", TUNER, *words],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        assert tuner.stdout is not None
        assert tuner.stdout.readline() == b"ready\n"
        tuner.send_signal(signal.SIGSTOP)  # so that it cannot clean up after its supervisor
        held = [process for process in find_engines(str(tmp_path)) if "scripted_engine" not in process.command]
        assert len(held) == 3  # supervisor, guard, docker
        # From the bottom up: a guard that sees its supervisor die ends its container.
        for process in reversed(held) if everything else ():
            os.kill(process.pid, signal.SIGKILL)
    finally:
        tuner.kill()
        tuner.wait()
        if tuner.stdout is not None:
            tuner.stdout.close()
    if everything:
        (container,) = listed(docker).split()
        assert reap_containers(str(tmp_path), command=str(docker.command)) == (container,)
    end = time.monotonic() + 15
    while (listed(docker) or find_engines(str(tmp_path))) and time.monotonic() < end:
        time.sleep(0.05)
    assert (listed(docker), find_engines(str(tmp_path))) == ("", ())


def real_docker() -> str | None:
    """A docker or podman with a daemon behind it."""
    for name in ("docker", "podman"):
        path = shutil.which(name)
        if path and subprocess.run([path, "ps"], capture_output=True, check=False).returncode == 0:
            return path
    return None


@pytest.mark.slow
async def test_a_real_daemon_refuses_an_image_that_is_not_there(tmp_path: Path) -> None:
    command = real_docker()
    if command is None:
        pytest.skip("no docker or podman with a running daemon on this host")
    runner = ContainerRunner("localhost:1/dflash-tuner/none:0", command=command, gpus=None)
    with pytest.raises(LaunchFailure) as caught:
        async with runner.launch(spec_for(tmp_path)):
            pass
    assert caught.value.kind in {"bad_command", "crash"}
    assert reap_containers(str(tmp_path), command=command) == ()


@pytest.mark.parametrize("runner", [LocalRunner(), ContainerRunner(KNOWN_IMAGE)], ids=["local", "container"])
async def test_a_launch_that_cannot_begin_leaves_no_secret_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: LocalRunner | ContainerRunner
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "launch" / LOG_NAME).mkdir(parents=True)  # where the log would be written
    with pytest.raises(LaunchFailure, match="cannot begin"):
        async with runner.launch(spec_for(tmp_path, "true")):
            pass
    assert list((tmp_path / "tmp").iterdir()) == []
