"""A real vLLM under LocalRunner: started from a config file, used, stopped, gone; and killed with its tuner."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from runners import (
    Engine,
    EngineMetrics,
    LaunchSpec,
    LocalRunner,
    Scrape,
    StopReport,
    find_engines,
    reap_engines,
    supervisor,
)

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
VLLM = ROOT / ".engine" / "bin" / "vllm"
TARGET, DRAFT = (ROOT / "demo" / "models" / name for name in ("target", "draft"))
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's mount point
ENV = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
K = 7
CONFIG = {
    "model": str(TARGET),
    "served-model-name": "demo",
    "dtype": "float32",
    "enforce-eager": True,
    "max-model-len": 2048,
    "block-size": 32,
    "max-num-seqs": 4,
    "speculative-config": {"method": "dflash", "model": str(DRAFT), "num_speculative_tokens": K},
}
WORKLOAD = ROOT / "workloads" / "samples" / "api_traffic.jsonl"
PROMPTS = 3
TOKENS = 64


@dataclass(frozen=True)
class Life:
    """What was seen of one engine, from its start to after its end."""

    study: str
    start_s: float
    version: str
    info: Mapping[str, Any]
    phases: list[str]
    commands: list[str]
    greedy: EngineMetrics
    warm: EngineMetrics
    abandoned: Scrape
    after: Scrape
    reset: bool
    stop: StopReport
    left_in_shared_memory: list[str]
    segments_used: int
    scratch_left: bool


def code_prompts() -> list[dict[str, Any]]:
    """Bodies of recorded requests that the draft knows well."""
    with WORKLOAD.open(encoding="utf-8") as lines:
        requests = (json.loads(line) for line in lines)
        return [request["body"] for request in requests if request["route"] == "code"][:PROMPTS]


async def complete(engine: Engine, *, temperature: float) -> EngineMetrics:
    """Send the prompts one after another; what the engine counted meanwhile."""
    before = await engine.drain()
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {engine.api_key}"}) as session:
        for seed, prompt in enumerate(code_prompts()):
            settings = {"model": engine.model, "temperature": temperature, "seed": seed, "max_tokens": TOKENS}
            body = prompt | settings | {"ignore_eos": True, "stream": False, "stream_options": None}
            async with session.post(f"{engine.base_url}/v1/chat/completions", json=body) as response:
                assert response.status == 200, await response.text()
                await response.read()
    return (await engine.drain()).since(before)


async def abandon_a_request(engine: Engine) -> Scrape:
    """Hang up on a long request; how the engine looks after draining."""
    body = code_prompts()[0] | {"model": engine.model, "max_tokens": 1500, "ignore_eos": True, "stream": False}
    timeout = aiohttp.ClientTimeout(total=0.5)
    headers = {"Authorization": f"Bearer {engine.api_key}"}
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        with pytest.raises(TimeoutError):
            async with session.post(f"{engine.base_url}/v1/chat/completions", json=body | {"stream_options": None}):
                pass
    return await engine.drain(timeout_s=60)


async def live(directory: Path) -> Life:
    config = directory / "serve.yaml"
    config.write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    spec = LaunchSpec(
        argv=(str(VLLM), "serve", "--config", str(config)),
        workdir=directory / "launch",
        served_model="demo",
        study=str(directory),
        env=ENV,
        ready_timeout_s=400,
    )
    phases: list[str] = []
    async with LocalRunner().launch(spec, on_progress=phases.append) as engine:
        processes = find_engines(spec.study)
        segments = supervisor.shared_memory_of(process.pid for process in processes)
        environ = Path(f"/proc/{engine.pid}/environ").read_text(encoding="utf-8").split("\0")  # noqa: ASYNC240 - /proc
        scratch = next(entry.partition("=")[2] for entry in environ if entry.startswith("VLLM_RPC_BASE_PATH="))
        greedy = await complete(engine, temperature=0.0)
        warm = await complete(engine, temperature=0.3)
        abandoned = await abandon_a_request(engine)
        reset = await engine.reset_prefix_cache()
        after = await engine.scrape()
    assert engine.stop_report is not None
    return Life(
        study=spec.study,
        start_s=engine.start_s,
        version=engine.version,
        info=engine.info,
        phases=phases,
        commands=[process.command for process in processes],
        greedy=greedy,
        warm=warm,
        abandoned=abandoned,
        after=after,
        reset=reset,
        stop=engine.stop_report,
        # By inode, because other engines may run on this host.
        left_in_shared_memory=[entry.name for entry in os.scandir(SHARED_MEMORY) if entry.inode() in segments],
        segments_used=len(segments),
        scratch_left=os.path.exists(scratch),  # noqa: PTH110, ASYNC240 - one look
    )


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """One launch for all tests here, because it takes half a minute."""
    return asyncio.run(live(tmp_path_factory.mktemp("life")))


def test_vllm_serve_starts_from_a_config_file(life: Life) -> None:
    assert life.version.startswith("0.32.0")
    assert {"loading weights", "first completion"} <= set(life.phases)


def test_every_setting_of_the_config_file_is_in_force(life: Life) -> None:
    config = life.info["vllm_config"]
    in_force = (
        config["speculative_config"]["method"],
        config["speculative_config"]["num_speculative_tokens"],
        config["cache_config"]["block_size"],
        config["scheduler_config"]["max_num_seqs"],
        config["model_config"]["max_model_len"],
        life.after.cache_config["block_size"],
    )
    assert in_force == ("dflash", K, 32, 4, 2048, "32")


def test_all_processes_of_the_engine_are_found_even_renamed_ones(life: Life) -> None:
    assert any("VLLM::EngineCore" in command for command in life.commands)
    assert any("VLLM::Worker" in command for command in life.commands)


def test_the_counters_are_complete_after_draining(life: Life) -> None:
    assert (life.greedy.finished, life.greedy.generation_tokens) == (PROMPTS, TOKENS * PROMPTS)
    assert life.greedy.draft_tokens == K * life.greedy.drafts
    assert sum(life.greedy.accepted_per_position) == life.greedy.accepted_tokens


def test_sampling_is_as_good_as_greedy_for_a_draft_at_low_temperature(life: Life) -> None:
    """Without the repair of vllm#55005 the sampling values are garbage and next to no draft is accepted."""
    assert life.greedy.acceptance_length is not None
    assert life.warm.acceptance_length is not None
    assert life.greedy.acceptance_length > 2
    assert life.warm.acceptance_length > 0.6 * life.greedy.acceptance_length


def test_an_abandoned_request_does_not_keep_the_engine_from_draining(life: Life) -> None:
    assert life.abandoned.idle


def test_the_prefix_cache_can_be_reset(life: Life) -> None:
    assert life.reset is True


def test_nothing_is_left_of_a_stopped_engine(life: Life) -> None:
    assert find_engines(life.study) == ()
    assert life.segments_used > 0
    assert life.left_in_shared_memory == []
    assert life.scratch_left is False


def test_a_stop_takes_seconds_and_no_kill(life: Life) -> None:
    assert life.stop.killed == ()
    assert life.stop.stop_s < 20


def test_killing_the_tuner_while_vllm_starts_leaves_nothing(tmp_path: Path) -> None:
    tuner = (
        "import asyncio, sys; from pathlib import Path; from runners import LaunchSpec, LocalRunner\n"
        "async def main(study, workdir, *argv):\n"
        "    spec = LaunchSpec(argv=argv, workdir=Path(workdir), served_model='demo', study=study)\n"
        "    async with LocalRunner().launch(spec, on_progress=lambda phase: print(phase, flush=True)): pass\n"
        "asyncio.run(main(*sys.argv[1:]))\n"
    )
    study = str(tmp_path)
    command = [str(VLLM), "serve", str(TARGET), "--dtype", "float32", "--enforce-eager", "--max-model-len", "1024"]
    process = subprocess.Popen(
        [sys.executable, "-c", tuner, study, str(tmp_path / "launch"), *command],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | ENV | {"PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "starting engine core":
                break
        assert len(find_engines(study)) >= 3
        process.send_signal(signal.SIGKILL)
        end = time.monotonic() + 45  # the default stop timeout is 30 s
        while find_engines(study) and time.monotonic() < end:
            time.sleep(0.1)
        assert find_engines(study) == ()
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        reap_engines(study)
