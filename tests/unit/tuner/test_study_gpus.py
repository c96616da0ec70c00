"""Which GPUs a study uses, and what a launch on them may raise."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runners import EngineDied, LaunchFailure, Runner
from runners.gpu import (
    GpuError,
    GpuMemoryHeldError,
    GpuSample,
    Nvml,
    RecordedNvml,
    usable_gpus,
    wait_for_memory,
    wait_until_free,
)
from search_spaces import ServeConfig
from tuner import gpus as study_gpus
from tuner.breakdown import ENGINE_STOP, Breakdown
from tuner.config import TuneConfig, build_config
from tuner.errors import UsageError
from tuner.gpus import Observation, StudyGpus, engine_size, find_gpus
from tuner.host import describe_gpus, device
from tuner.plan import Plan
from tuner.records import TrialPlan
from tuner.store import Store
from tuner.trial import Bench, _running_engine

RECORDINGS = Path(__file__).resolve().parents[2] / "data" / "nvml"


@pytest.fixture
def h100s() -> RecordedNvml:
    return RecordedNvml.read(RECORDINGS / "two_h100_nvlink.json")


@pytest.fixture
def a10() -> RecordedNvml:
    return RecordedNvml.read(RECORDINGS / "one_a10_idle.json")


def study(nvml: RecordedNvml) -> StudyGpus:
    return StudyGpus(nvml, usable_gpus(nvml.gpus()))


def serve(**fixed: Any) -> ServeConfig:
    arguments = {name.replace("_", "-"): value for name, value in fixed.items()}
    return ServeConfig(model="m", values={}, fixed_args=arguments, tuned_args={}, identity={})


def config(**changes: Any) -> TuneConfig:
    return build_config(workload="w", model="m", engine_argv=("vllm", "serve"), study="s", **changes)


def test_an_engine_needs_the_product_of_its_parallel_sizes() -> None:
    assert engine_size(serve()) == 1
    assert engine_size(serve(tensor_parallel_size=2, pipeline_parallel_size=2, data_parallel_size=3)) == 12


def test_a_configuration_gets_as_many_gpus_as_it_needs_or_is_refused(h100s: RecordedNvml) -> None:
    gpus = study(h100s)
    for size in (1, 2):
        slot = gpus.slot(serve(tensor_parallel_size=size))
        assert slot is not None
        assert len(slot.gpus) == size
    with pytest.raises(LaunchFailure, match="needs 4 GPUs of one kind") as refused:
        gpus.slot(serve(tensor_parallel_size=4))
    assert (refused.value.kind, refused.value.infrastructure) == ("unsupported", False)


def test_without_gpus_there_is_no_slot_and_nothing_to_observe() -> None:
    gpus = StudyGpus()
    assert gpus.slot(serve()) is None
    with gpus.observe(None, 1) as observed:
        pass
    assert (observed.metrics, observed.problems) == ({}, [])


async def test_a_busy_gpu_is_the_host_s_fault_not_the_configuration_s(
    h100s: RecordedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = study(h100s)
    monkeypatch.setattr(study_gpus, "wait_until_free", lambda *rest: wait_until_free(*rest, timeout_s=0.01))
    with pytest.raises(LaunchFailure, match="GPU 0 is busy") as refused:
        async with gpus.held(gpus.slot(serve())):
            pytest.fail("must not be entered")
    assert (refused.value.kind, refused.value.infrastructure) == ("gpu_busy", True)


async def test_memory_that_an_engine_left_is_a_fault_also_when_it_failed_itself(
    a10: RecordedNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = a10.sample(a10.gpus()[0])
    held = GpuSample(0.0, 9 << 30, None, None, None, None, frozenset())
    readings = iter([idle, idle])
    monkeypatch.setattr(a10, "sample", lambda _: next(readings, held))
    monkeypatch.setattr(study_gpus, "wait_for_memory", lambda *rest: wait_for_memory(*rest, timeout_s=0.01))
    gpus = study(a10)
    with pytest.raises(GpuMemoryHeldError, match=r"GPU 0 still has 9\.0 GiB in use"):
        async with gpus.held(gpus.slot(serve())):
            raise LaunchFailure("crash", "the engine failed")


class Launches:
    """A runner whose engines run at once, and that says what happened to them."""

    def __init__(self, happened: list[str]) -> None:
        self._happened = happened

    @asynccontextmanager
    async def launch(self, *_: object, **__: object) -> AsyncIterator[SimpleNamespace]:
        try:
            yield SimpleNamespace(phases_s={}, start_s=0.0, version="0.32.0")
        finally:
            self._happened.append("engine ended")


def bench_of(gpus: StudyGpus, happened: list[str], directory: Path) -> Bench:
    plan = SimpleNamespace(config=config(out=directory), engine_version="0.32.0")
    return Bench(
        plan=cast("Plan", plan),
        store=Store(directory),
        runner=cast("Runner", Launches(happened)),
        breakdown=Breakdown(),
        say=lambda _: None,
        phase=lambda _: None,
        gpus=gpus,
    )


def trial_of(serve_config: ServeConfig) -> TrialPlan:
    return TrialPlan(
        number=1,
        step="baseline",
        phase="baseline",
        asked_by=None,
        temperature=None,
        serve_config=serve_config,
        conditions=(),
    )


@pytest.mark.parametrize(
    ("end", "then"),
    [
        (asyncio.CancelledError(), ["engine ended"]),
        (EngineDied("killed"), ["engine ended", "waited for memory"]),
        (None, ["engine ended", "waited for memory"]),
    ],
    ids=["told to stop", "failed", "measured"],
)
async def test_only_a_study_that_is_told_to_stop_does_not_wait_for_memory(
    a10: RecordedNvml,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    end: BaseException | None,
    then: list[str],
) -> None:
    happened: list[str] = []

    async def wait(*_: object) -> float:
        happened.append("waited for memory")
        await asyncio.sleep(0.02)
        return 0.02

    monkeypatch.setattr(study_gpus, "wait_for_memory", wait)
    bench = bench_of(study(a10), happened, tmp_path)
    with pytest.raises(type(end)) if end else nullcontext():
        async with _running_engine(bench, trial_of(serve()), None):
            if end:
                raise end
    assert happened == then
    assert (bench.breakdown.seconds[ENGINE_STOP] >= 0.02) is (len(then) == 2)


class FaultyDriver:
    """A driver that answers a number of times and not any more, and to one kind of question perhaps never."""

    def __init__(self, nvml: RecordedNvml, answers: float, silent_about: str = "") -> None:
        self._nvml, self._left, self._silent_about = nvml, answers, silent_about

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._nvml, name)

        def ask(*arguments: Any) -> Any:
            self._left -= 1
            if self._left < 0 or name == self._silent_about:
                raise GpuError("the NVIDIA driver does not answer (GPU is lost); see `nvidia-smi`")
            return method(*arguments)

        return ask


@pytest.mark.parametrize("answers", [0, 1, 2], ids=["busy?", "memory before", "memory after"])
async def test_a_driver_that_does_not_answer_around_a_launch_is_the_host_s_fault(
    a10: RecordedNvml, answers: int
) -> None:
    slot = study(a10).slot(serve())
    with pytest.raises(LaunchFailure, match="driver does not answer") as failed:
        async with StudyGpus(cast("Nvml", FaultyDriver(a10, answers)), a10.gpus()).held(slot):
            pass
    assert (failed.value.kind, failed.value.infrastructure) == ("driver", True)


@pytest.mark.parametrize(
    ("answers", "silent_about"), [(0, ""), (math.inf, "processes")], ids=["all of it", "only who computes"]
)
def test_a_driver_that_is_lost_during_a_measurement_is_a_problem_of_it(
    a10: RecordedNvml, answers: float, silent_about: str
) -> None:
    slot = study(a10).slot(serve())
    with Observation(cast("Nvml", FaultyDriver(a10, answers, silent_about)), slot, 1) as observed:
        pass
    (problem,) = observed.problems
    assert "driver does not answer" in problem


def test_throttling_during_a_measurement_becomes_its_problem() -> None:
    nvml = RecordedNvml.read(RECORDINGS / "throttling_4090.json")
    for _ in range(5):  # on to the readings in which it throttles
        nvml.sample(nvml.gpus()[0])
    gpus = study(nvml)
    with gpus.observe(gpus.slot(serve()), engine_pid=1) as observed:
        pass
    assert "GPU 0 throttled in 100% of the readings" in observed.problems[0]
    assert observed.metrics["gpu_throttled_share"] == 1


@pytest.mark.parametrize(
    ("option", "engine_env", "environment", "found"),
    [
        ("1", {"CUDA_VISIBLE_DEVICES": "0"}, "0", [1]),
        (None, {"CUDA_VISIBLE_DEVICES": "1"}, "0", [1]),
        (None, {}, "1", [1]),
        (None, {}, None, [0, 1]),
        (None, {}, "", []),
    ],
)
def test_the_option_goes_before_the_engine_s_environment_and_that_before_our_own(
    h100s: RecordedNvml,
    monkeypatch: pytest.MonkeyPatch,
    *,
    option: str | None,
    engine_env: dict[str, str],
    environment: str | None,
    found: list[int],
) -> None:
    monkeypatch.setattr(study_gpus, "open_nvml", lambda: h100s)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if environment is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", environment)
    gpus = find_gpus(config(gpus=option, engine_env=engine_env))
    assert [gpu.index for gpu in gpus.gpus] == found


def test_simulated_and_attached_engines_use_no_gpu(h100s: RecordedNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_gpus, "open_nvml", lambda: h100s)
    simulated = build_config(workload="w", model="m", engine_argv=("python", "-m", "runners.simulated"), study="s")
    assert find_gpus(simulated) == StudyGpus()
    attached = build_config(workload="w", model="m", engine_argv=(), engine_url="http://127.0.0.1:8000", study="s")
    assert find_gpus(attached) == StudyGpus()


def test_a_gpu_that_does_not_exist_is_the_user_s_error(h100s: RecordedNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_gpus, "open_nvml", lambda: h100s)
    with pytest.raises(UsageError, match="GPU '9' does not exist"):
        find_gpus(config(gpus="9"))
    monkeypatch.setattr(study_gpus, "open_nvml", lambda: None)
    with pytest.raises(UsageError, match="--gpus 0: no NVIDIA driver on this host"):
        find_gpus(config(gpus="0"))


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("NVIDIA A10, 23028", "gpu"),
        ("NVIDIA A100-SXM4-80GB, 81920", "gpu"),
        ("NVIDIA H100 80GB HBM3, 81559", "large_gpu"),
        ("NVIDIA B200, 183359", "huge_gpu"),
        ("NVIDIA GB10, [N/A]", "gpu"),
    ],
)
def test_the_memory_decides_which_of_vllm_s_defaults_apply(line: str, kind: str) -> None:
    assert device((line,)) == kind
    assert device(()) == "cpu"


def test_gpus_are_described_by_name_and_mebibytes(h100s: RecordedNvml) -> None:
    assert describe_gpus(h100s.gpus()) == ("NVIDIA H100 80GB HBM3, 81559",) * 2
