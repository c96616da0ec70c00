"""The main job on a real vLLM: a small study, and what its export starts.

One study serves all tests here; it is the slowest thing in the suite, so its assertions are many and its launches few.
"""

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from runners import find_engines
from runners.port import PortReservation
from search_spaces import load_space
from tuner.readback import Readings, read_back
from tuner.records import Recommendation, TrialRecord
from tuner.store import Store

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

Json = dict[str, dict[str, int]]
ROOT = Path(__file__).resolve().parents[2]
ENGINE_ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
SPACE = """
name: small
extends: dflash
knobs:
  kv_block_size: {choices: [null, 32]}
  max_num_seqs: {remove: true}
  max_num_batched_tokens: {remove: true}
seeds:
  - {method: dflash, num_speculative_tokens: half_block, disable_eagle_block_drop: true, kv_block_size: 32}
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Baseline, recipe and one seed on one profile, then two rounds of confirmation."""
    directory = tmp_path_factory.mktemp("real")
    space = directory / "space.yaml"
    space.write_text(SPACE, encoding="utf-8")
    workload = directory / "code.jsonl"
    lines = (ROOT / "workloads/samples/api_traffic.jsonl").read_text(encoding="utf-8").splitlines()
    workload.write_text("".join(f"{line}\n" for line in lines if json.loads(line)["route"] == "code"), encoding="utf-8")
    command = [
        str(ROOT / ".venv/bin/tune"),
        *("--workload", str(workload), "--model", "demo/models/target", "--draft", "demo/models/draft"),
        *("--engine-python", str(ROOT / ".engine/bin/python")),
        *("--engine-args", "--dtype float32 --enforce-eager --max-model-len 2048 --enable-prompt-tokens-details"),
        *(part for name, value in ENGINE_ENV.items() for part in ("--engine-env", f"{name}={value}")),
        *("--space", str(space), "--load", "concurrency=1", "--trials", "3", "--rounds", "2", "--finalists", "1"),
        *("--requests", "8", "--blocks", "4", "--study", "real", "--out", str(directory / "runs"), "--debug"),
    ]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=850, check=False)
    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-3000:]
    return Store(directory / "runs" / "real")


@pytest.fixture(scope="module")
def answer(study: Store) -> Recommendation:
    (only,) = study.recommendations()
    return only


def test_every_launch_was_measured_and_nothing_is_left_running(study: Store) -> None:
    records = study.records()

    assert [r.plan.phase for r in records[:3]] == ["baseline", "recipe", "seed"]
    assert {r.status for r in records} == {"measured"}
    assert all(m.valid for r in records for m in r.measurements.values())
    assert find_engines() == ()


def test_every_knob_was_applied_by_the_engine(study: Store) -> None:
    assert [r.applied for r in study.records()] == [{} for _ in study.records()]


def test_greedy_outputs_are_identical_with_and_without_speculation(answer: Recommendation) -> None:
    assert answer.output_check is not None
    assert answer.output_check.verdict == "identical"
    assert answer.output_check.compared >= 16


def test_speculation_is_recommended_for_greedy_code_at_concurrency_one(answer: Recommendation) -> None:
    assert answer.verdict == "change"
    assert answer.serve_config.values["method"] == "dflash"
    assert answer.effect is not None
    assert answer.effect.low > 1
    assert answer.metrics["acceptance_length"] > 2


def test_the_engine_ran_as_many_requests_as_the_load_asked_for(study: Store) -> None:
    means = [m.metrics["running_mean"] for r in study.records() for m in r.measurements.values()]

    assert all(0.8 <= mean <= 1.01 for mean in means), means


def test_the_exported_yaml_starts_an_engine_with_every_knob(study: Store, tmp_path: Path) -> None:
    file = study.recommended_directory("code") / "serve.yaml"
    seed = _seed(study.records())
    config = tmp_path / "serve.yaml"
    # The seed's configuration sets every knob that the space has; the recommended one may not.
    config.write_text(seed.plan.serve_config.to_yaml(), encoding="utf-8")
    assert yaml.safe_load(file.read_text(encoding="utf-8"))["model"].endswith("demo/models/target")

    for info, completion in _served(config, tmp_path):
        asked = {n: v for n, v in seed.values().items() if v is not None}
        knobs = load_space("dflash").knobs
        assert read_back(seed.plan.serve_config, asked, knobs, Readings(info, {}, "")) == {}
        # It tells these, so that the comparison was not empty: another value is seen.
        other = {**asked, "kv_block_size": 7, "num_speculative_tokens": 99, "prefix_caching": None, "method": "none"}
        told = read_back(seed.plan.serve_config, other, knobs, Readings(info, {}, ""))
        assert {"kv_block_size", "prefix_caching", "method", "num_speculative_tokens"} <= set(told)
        assert completion["usage"]["completion_tokens"] == 8


def _seed(records: list[TrialRecord]) -> TrialRecord:
    return next(r for r in records if r.plan.phase == "seed")


def _served(config: Path, directory: Path) -> Iterator[tuple[Json, Json]]:
    """Starts `vllm serve --config` as a user would and asks it for its settings and for a completion."""
    reservation = PortReservation()
    port = reservation.port
    reservation.release()
    environment = {**os.environ, **ENGINE_ENV, "VLLM_SERVER_DEV_MODE": "1", "VLLM_CACHE_ROOT": str(directory)}
    command = [str(ROOT / ".engine/bin/vllm"), "serve", "--config", str(config), "--port", str(port)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_until_healthy(port, process, directory / "log")
        info = _get(f"http://127.0.0.1:{port}/server_info?config_format=json")
        body = {
            "model": str(ROOT / "demo/models/target"),
            "prompt": "def add",
            "max_tokens": 8,
            "temperature": 0,
            "ignore_eos": True,
        }
        yield info, _get(f"http://127.0.0.1:{port}/v1/completions", body)
    finally:
        process.terminate()
        process.wait(timeout=60)


def _wait_until_healthy(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        assert process.poll() is None, log.read_text(encoding="utf-8")[-3000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(log.read_text(encoding="utf-8")[-3000:])


def _get(url: str, body: dict[str, object] | None = None) -> Json:
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})  # noqa: S310 - loopback
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - loopback
        loaded: Json = json.load(response)
        return loaded
