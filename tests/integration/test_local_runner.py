"""The life of one engine under LocalRunner, with a real server process in the engine's place."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from runners import (
    EngineDied,
    LaunchFailure,
    LaunchSpec,
    LocalRunner,
    ReadinessTimeout,
    find_engines,
)

SCRIPT = Path(__file__).with_name("scripted_engine.py")
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the kernel's mount point


def spec_for(tmp_path: Path, *switches: str, ready_timeout_s: float = 60.0, stop_timeout_s: float = 5.0) -> LaunchSpec:
    """A launch of the scripted engine; the study is the test's own, so that what is found is its own."""
    return LaunchSpec(
        argv=(sys.executable, str(SCRIPT), *switches),
        workdir=tmp_path / "launch",
        served_model="tiny",
        study=str(tmp_path),
        ready_timeout_s=ready_timeout_s,
        stop_timeout_s=stop_timeout_s,
    )


async def failure_of(spec: LaunchSpec) -> LaunchFailure:
    """The failure of a launch that must fail, after which nothing may be left."""
    with pytest.raises(LaunchFailure) as caught:
        async with LocalRunner().launch(spec):
            pass
    assert find_engines(spec.study) == ()
    return caught.value


def accepts_connections(base_url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(base_url.rpartition(":")[2]))) == 0


def shared_memory_has(name: str) -> bool:
    return Path(SHARED_MEMORY, name).exists()


async def test_a_launched_engine_answers_and_tells_about_itself(tmp_path: Path) -> None:
    async with LocalRunner().launch(spec_for(tmp_path)) as engine:
        scrape = await engine.scrape()
        facts = (engine.version, engine.model, scrape.counters["generation_tokens"], engine.died())
    assert facts == ("0.32.0+scripted", "tiny", 4, None)
    assert 0 < engine.start_s < 60


async def test_after_the_context_no_process_and_no_listener_is_left(tmp_path: Path) -> None:
    spec = spec_for(tmp_path, "--grandchild")
    async with LocalRunner().launch(spec) as engine:
        assert {process.role for process in find_engines(spec.study)} == {"supervisor", "engine"}
        assert accepts_connections(engine.base_url)
    assert find_engines(spec.study) == ()
    assert not accepts_connections(engine.base_url)
    assert engine.stop_report is not None
    assert engine.stop_report.returncode == -signal.SIGTERM


async def test_an_engine_that_ends_on_sigterm_is_gone_without_waiting(tmp_path: Path) -> None:
    async with LocalRunner().launch(spec_for(tmp_path)) as engine:
        pass
    assert engine.stop_report is not None
    assert engine.stop_report.stop_s < 4  # the stop timeout is 5
    assert engine.stop_report.killed == ()


async def test_the_environment_is_private_to_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("KEPT", "yes")
    async with LocalRunner().launch(spec_for(tmp_path)) as engine:
        environ = engine.info["environ"]
        config = engine.info["vllm_config"]
    assert "PYTHONPATH" not in environ
    assert (environ["KEPT"], environ["PYTHONSAFEPATH"], environ["VLLM_SERVER_DEV_MODE"]) == ("yes", "1", "1")
    assert config["cwd"] == str(tmp_path / "launch")


async def test_the_key_is_on_no_command_line_and_in_no_file(tmp_path: Path) -> None:
    spec = spec_for(tmp_path)
    async with LocalRunner().launch(spec) as engine:
        commands = " ".join(process.command for process in find_engines(spec.study))
        written = b"".join(path.read_bytes() for path in spec.workdir.iterdir())
    assert len(engine.api_key) >= 32
    assert engine.api_key not in commands
    assert engine.api_key.encode() not in written


async def test_two_launches_have_ports_and_keys_of_their_own(tmp_path: Path) -> None:
    runner = LocalRunner()
    first_spec, second_spec = spec_for(tmp_path / "a"), spec_for(tmp_path / "b")
    async with runner.launch(first_spec) as first, runner.launch(second_spec) as second:
        assert first.base_url != second.base_url
        assert first.api_key != second.api_key


async def test_the_engine_is_out_of_reach_of_the_terminal(tmp_path: Path) -> None:
    async with LocalRunner().launch(spec_for(tmp_path)) as engine:
        assert os.getsid(engine.pid) != os.getsid(0)
        assert os.getpgid(engine.pid) != os.getpgid(0)


async def test_progress_follows_the_log(tmp_path: Path) -> None:
    phases: list[str] = []
    async with LocalRunner().launch(spec_for(tmp_path), on_progress=phases.append):
        pass
    assert phases == ["starting", "loading weights", "first completion", "reading settings back"]


async def test_engine_json_names_the_processes_and_hides_secrets(tmp_path: Path) -> None:
    spec = spec_for(tmp_path)
    secret = LaunchSpec(
        argv=(*spec.argv, "--last-words", "x", "--hf-token", "hf_secret", "--hf-token=hf_secret"),
        workdir=spec.workdir,
        served_model="tiny",
        study=spec.study,
    )
    await failure_of(secret)  # the scripted engine does not know --hf-token
    record = json.loads((spec.workdir / "engine.json").read_bytes())
    assert record["argv"][-3:] == ["--hf-token", "[redacted]", "--hf-token=[redacted]"]
    assert record["pid"] > 0


async def test_an_engine_that_is_never_ready_times_out_with_its_phase(tmp_path: Path) -> None:
    failure = await failure_of(spec_for(tmp_path, "--never-ready", ready_timeout_s=2.0))
    assert isinstance(failure, ReadinessTimeout)
    assert (failure.kind, failure.phase, failure.infrastructure) == ("timeout", "loading weights", False)


async def test_a_completion_that_hangs_times_out_in_its_phase(tmp_path: Path) -> None:
    failure = await failure_of(spec_for(tmp_path, "--hang-completions", ready_timeout_s=3.0))
    assert isinstance(failure, ReadinessTimeout)
    assert failure.phase == "first completion"


async def test_a_death_before_readiness_is_noticed_at_once_and_classified(tmp_path: Path) -> None:
    words = "api_server.py: error: unrecognized arguments: --num-speculative-tokenz 3"
    began = time.perf_counter()
    failure = await failure_of(spec_for(tmp_path, "--exit-with", "2", "--last-words", words))
    assert time.perf_counter() - began < 15  # the ready timeout is 60
    assert failure.kind == "bad_flag"
    assert "--num-speculative-tokenz 3" in failure.message
    assert words in failure.log_tail


async def test_a_server_that_takes_any_key_is_not_ours(tmp_path: Path) -> None:
    assert (await failure_of(spec_for(tmp_path, "--any-key"))).kind == "foreign_server"


async def test_health_alone_is_not_readiness(tmp_path: Path) -> None:
    failure = await failure_of(spec_for(tmp_path, "--no-tokens"))
    assert failure.kind == "no_completion"
    assert "no tokens today" in failure.message


class ForeignHandler(BaseHTTPRequestHandler):
    """Healthy, whoever asks."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Silent."""


async def test_a_foreign_server_on_the_port_is_an_infrastructure_fault(tmp_path: Path) -> None:
    spec = spec_for(tmp_path, "--start-s", "60")
    servers: list[ThreadingHTTPServer] = []

    def occupy(phase: str) -> None:
        if phase == "loading weights":
            port = json.loads((spec.workdir / "engine.json").read_bytes())["port"]
            servers.append(ThreadingHTTPServer(("127.0.0.1", port), ForeignHandler))
            Thread(target=servers[0].serve_forever, daemon=True).start()

    with pytest.raises(LaunchFailure) as caught:
        async with LocalRunner().launch(spec, on_progress=occupy):
            pass
    await asyncio.to_thread(servers[0].shutdown)
    servers[0].server_close()
    assert (caught.value.kind, caught.value.infrastructure) == ("port", True)
    assert find_engines(spec.study) == ()


async def test_a_command_that_cannot_be_executed_says_so(tmp_path: Path) -> None:
    spec = LaunchSpec(argv=("/no/such/vllm", "serve"), workdir=tmp_path / "w", served_model="tiny", study=str(tmp_path))
    failure = await failure_of(spec)
    assert failure.kind == "bad_command"
    assert "/no/such/vllm" in failure.message


async def test_a_relative_command_is_found_from_where_the_tuner_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    spec = spec_for(tmp_path)
    async with LocalRunner().launch(replace(spec, argv=("bin/python", *spec.argv[1:]))) as engine:
        assert engine.died() is None


async def test_a_workdir_that_cannot_be_made_is_an_infrastructure_fault(tmp_path: Path) -> None:
    (tmp_path / "launch").write_text("a file in its place")
    failure = await failure_of(spec_for(tmp_path))
    assert (failure.kind, failure.infrastructure) == ("workdir", True)


async def test_an_engine_that_ignores_sigterm_is_killed_when_its_time_is_over(tmp_path: Path) -> None:
    async with LocalRunner().launch(spec_for(tmp_path, "--ignore-sigterm", stop_timeout_s=0.3)) as engine:
        pass
    assert engine.stop_report is not None
    assert engine.stop_report.returncode == -signal.SIGKILL
    assert engine.stop_report.killed == (f"{engine.pid} python",)
    assert engine.stop_report.stop_s >= 0.3


async def test_an_engine_that_is_still_starting_gets_little_time_to_stop(tmp_path: Path) -> None:
    began = time.perf_counter()
    switches = ("--never-ready", "--ignore-sigterm")
    await failure_of(spec_for(tmp_path, *switches, ready_timeout_s=0.5, stop_timeout_s=60.0))
    assert time.perf_counter() - began < 20


async def test_a_grandchild_in_a_session_of_its_own_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    spec = spec_for(tmp_path, "--grandchild-ignores-sigterm")
    async with LocalRunner().launch(spec) as engine:
        pass
    assert find_engines(spec.study) == ()
    assert engine.stop_report is not None
    assert len(engine.stop_report.killed) == 1


async def test_an_engine_behind_a_wrapper_script_is_stopped_and_owns_the_port(tmp_path: Path) -> None:
    spec = spec_for(tmp_path, "--wrapper")
    async with LocalRunner().launch(spec) as engine:
        assert accepts_connections(engine.base_url)
    assert find_engines(spec.study) == ()


async def test_a_death_in_use_is_told_by_died_and_raised_by_requests(tmp_path: Path) -> None:
    async with LocalRunner().launch(spec_for(tmp_path)) as engine:
        os.kill(engine.pid, signal.SIGKILL)
        with pytest.raises(EngineDied) as caught:
            await engine.scrape()
        assert caught.value.kind == "killed"
        assert engine.died() == caught.value.message
        assert "SIGKILL" in caught.value.message


async def test_a_reset_is_repeated_while_blocks_are_held(tmp_path: Path) -> None:
    async with LocalRunner().launch(spec_for(tmp_path, "--busy-resets", "3")) as engine:
        assert await engine.reset_prefix_cache() is True


async def test_a_reset_that_never_succeeds_is_false(tmp_path: Path) -> None:
    async with LocalRunner().launch(spec_for(tmp_path, "--busy-resets", "1000")) as engine:
        assert await engine.reset_prefix_cache() is False


async def test_a_drained_engine_is_idle(tmp_path: Path) -> None:
    async with LocalRunner().launch(spec_for(tmp_path)) as engine:
        assert (await engine.drain()).idle


async def test_shared_memory_of_a_killed_engine_is_removed(tmp_path: Path) -> None:
    name = f"dflash-test-{os.getpid()}"
    spec = spec_for(tmp_path, "--ignore-sigterm", "--shared-memory", name, stop_timeout_s=0.1)
    async with LocalRunner().launch(spec) as engine:
        assert shared_memory_has(name)
    assert not shared_memory_has(name)
    assert engine.stop_report is not None
    assert engine.stop_report.segments == (f"{SHARED_MEMORY}/{name}",)


async def test_an_exception_in_the_context_still_ends_the_engine(tmp_path: Path) -> None:
    spec = spec_for(tmp_path)
    with pytest.raises(ZeroDivisionError):
        async with LocalRunner().launch(spec):
            _ = 1 / 0
    assert find_engines(spec.study) == ()


@pytest.mark.parametrize("switches", [["--never-ready"], ["--start-s", "60"]])
async def test_cancelling_a_launch_ends_the_engine(tmp_path: Path, switches: list[str]) -> None:
    spec = spec_for(tmp_path, *switches)
    started = asyncio.Event()

    async def launch() -> None:
        async with LocalRunner().launch(spec, on_progress=lambda _: started.set()):
            pass

    task = asyncio.create_task(launch())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert find_engines(spec.study) == ()


async def test_a_second_cancellation_does_not_wait_for_the_stop_timeout(tmp_path: Path) -> None:
    spec = spec_for(tmp_path, "--ignore-sigterm", stop_timeout_s=60.0)
    ready = asyncio.Event()

    async def use() -> None:
        async with LocalRunner().launch(spec):
            ready.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(use())
    await ready.wait()
    task.cancel()
    await asyncio.sleep(0.2)
    task.cancel()
    began = time.perf_counter()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.perf_counter() - began < 30
    assert find_engines(spec.study) == ()
