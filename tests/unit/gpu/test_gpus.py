"""Inventory, slots, quiet checks and telemetry, on recordings."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.gpu import (
    Gpu,
    GpuError,
    GpuMemoryHeldError,
    GpuProcess,
    GpuSample,
    Nvml,
    RecordedNvml,
    Recording,
    Slot,
    Telemetry,
    busy_before_launch,
    foreign_processes,
    make_slots,
    memory_used,
    record,
    usable_gpus,
    wait_for_memory,
)
from runners.gpu.device import throttle_reasons
from runners.gpu.recorded import RecordedGpu
from runners.gpu.testing import NvmlContract

Recorded = Callable[[str], RecordedNvml]
RECORDINGS = Path(__file__).resolve().parents[2] / "data" / "nvml"
IDLE = GpuSample(
    utilization=0.0,
    memory_used_bytes=0,
    power_w=None,
    energy_j=None,
    sm_clock_hz=None,
    temperature_c=None,
    reasons=frozenset(),
)


def gpu(index: int, *, name: str = "X", peers: tuple[int, ...] = (), node: int | None = None) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-{index}",
        name=name,
        memory_bytes=1 << 34,
        compute_capability=(9, 0),
        nvlink_peers=peers,
        numa_node=node,
    )


def driver(*samples: GpuSample, processes: tuple[GpuProcess, ...] = ()) -> tuple[RecordedNvml, tuple[Gpu, ...]]:
    """One GPU with these readings."""
    recording = Recording(
        driver_version="1", gpus=(RecordedGpu(gpu=gpu(0), samples=samples or (IDLE,), processes=processes),)
    )
    nvml = RecordedNvml(recording)
    return nvml, nvml.gpus()


@pytest.mark.parametrize("recording", ["two_h100_nvlink", "one_a10_idle", "mig_a100", "throttling_4090"], scope="class")
class TestRecordedDriver(NvmlContract):
    """Recordings answer as a driver does."""

    @pytest.fixture
    def nvml(self, recording: str, recorded: Recorded) -> Nvml:
        return recorded(recording)


def test_a_recording_of_a_recording_is_the_same(recorded: Recorded) -> None:
    first = record(recorded("one_a10_idle"), samples=4, interval_s=0.0)
    again = Recording.model_validate_json(first.model_dump_json())
    assert again == first
    assert record(RecordedNvml(again), samples=4, interval_s=0.0) == first


def test_a_file_that_is_no_recording_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"driver_version": "1", "gpus": [{}]}', encoding="utf-8")
    with pytest.raises(GpuError, match=r"x\.json: not a recording"):
        RecordedNvml.read(tmp_path / "x.json")


def test_every_bit_of_the_reasons_has_a_name() -> None:
    assert throttle_reasons(0x04 | 0x20) == {"power_cap", "software_thermal"}
    assert throttle_reasons(1 << 20) == {"bit_20"}


class TestSlots:
    """Which GPUs an engine is given, and how it is bound to them."""

    def test_gpus_that_are_linked_share_a_slot_although_others_are_nearer_by_number(self) -> None:
        gpus = [gpu(0, peers=(2,)), gpu(1, peers=(3,)), gpu(2, peers=(0,)), gpu(3, peers=(1,))]
        assert [[g.index for g in slot.gpus] for slot in make_slots(gpus, 2)] == [[0, 2], [1, 3]]

    def test_without_links_the_memory_node_decides(self) -> None:
        gpus = [gpu(0, node=0), gpu(1, node=1), gpu(2, node=0), gpu(3, node=1)]
        slots = make_slots(gpus, 2)
        assert [slot.numa_nodes for slot in slots] == [(0,), (1,)]

    @given(count=st.integers(1, 8), size=st.integers(1, 8))
    def test_slots_are_disjoint_full_and_as_many_as_fit(self, count: int, size: int) -> None:
        gpus = [gpu(i) for i in range(count)]
        if size > count:
            with pytest.raises(GpuError, match=f"needs {size} GPUs"):
                make_slots(gpus, size)
            return
        slots = make_slots(gpus, size)
        used = [g.index for slot in slots for g in slot.gpus]
        assert len(slots) == count // size
        assert all(len(slot.gpus) == size for slot in slots)
        assert len(set(used)) == len(used)

    def test_unequal_gpus_are_never_joined(self) -> None:
        with pytest.raises(GpuError, match="2 GPUs of one kind"):
            make_slots([gpu(0, name="A"), gpu(1, name="B")], 2)

    def test_a_mig_instance_is_used_alone_and_its_parent_not_at_all(self, recorded: Recorded) -> None:
        found = recorded("mig_a100").gpus()
        usable = usable_gpus(found)
        assert [g.mig_parent for g in usable] == [False, False, False]
        assert make_slots(usable, 1)[0].env["CUDA_VISIBLE_DEVICES"].startswith("MIG-")
        with pytest.raises(GpuError, match="MIG instances cannot be joined"):
            make_slots(usable, 2)
        with pytest.raises(GpuError, match="GPU '0' is divided by MIG"):
            usable_gpus(found, "0")
        assert usable_gpus(found, "1")[0].index == 1

    def test_an_unknown_gpu_is_told_with_those_that_are_there(self, recorded: Recorded) -> None:
        with pytest.raises(GpuError, match=r"GPU '7' does not exist \(usable here: 0, 1\)"):
            usable_gpus(recorded("two_h100_nvlink").gpus(), "1,7")

    def test_a_slot_is_pinned_to_its_cores_for_real(self) -> None:
        """The words before the command do what they say, with the tool of this host."""
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) < 2:
            pytest.skip("this host has one core: there is nothing to pin")
        words = Slot((replace(gpu(0), cpus=(allowed[0],)),)).pinning()
        if not words:
            pytest.skip("neither numactl nor taskset is installed")
        script = "import os; print(sorted(os.sched_getaffinity(0)))"
        told = subprocess.run([*words, sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert told.stdout.strip() == str([allowed[0]])

    def test_nothing_is_pinned_where_it_would_change_nothing(self) -> None:
        everything = tuple(os.sched_getaffinity(0))
        for cpus in ((), everything, (10**6,)):
            assert Slot((replace(gpu(0), cpus=cpus),)).pinning() == ()


class TestQuiet:
    """Whether GPUs are free, and free again."""

    def test_an_idle_gpu_is_free_and_a_used_one_says_by_whom(self, recorded: Recorded) -> None:
        idle, used = recorded("one_a10_idle"), recorded("two_h100_nvlink")
        assert busy_before_launch(idle, idle.gpus()) == []
        sentences = busy_before_launch(used, used.gpus())
        assert [sentence.split(" is ")[0] for sentence in sentences] == ["GPU 0", "GPU 1"]
        assert "79.0 GiB are in use" in sentences[0]
        assert "process 4000" in sentences[0]

    def test_a_stranger_beside_the_engine_is_named_and_the_engine_s_own_processes_are_not(self) -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as child:
            mine = (GpuProcess(os.getpid(), 1 << 33), GpuProcess(child.pid, 1 << 33))
            nvml, gpus = driver(processes=(*mine, GpuProcess(1, 1 << 30)))
            found = foreign_processes(nvml, gpus, engine_pid=os.getpid())
            child.communicate(b"\n")
        assert len(found) == 1
        assert found[0].startswith("process 1 ")
        assert "1.0 GiB computes on GPU 0 beside the engine" in found[0]

    def test_in_another_pid_namespace_nobody_is_accused(self) -> None:
        nvml, gpus = driver(processes=(GpuProcess(1, 1 << 30),))
        assert foreign_processes(nvml, gpus, engine_pid=os.getpid()) == []

    async def test_memory_is_waited_for_until_it_is_back(self) -> None:
        held, free = replace(IDLE, memory_used_bytes=8 << 30), replace(IDLE, memory_used_bytes=200 << 20)
        nvml, gpus = driver(free, held, free)
        before = memory_used(nvml, gpus)
        assert 0 < await wait_for_memory(nvml, gpus, before, timeout_s=5) < 5

    async def test_memory_that_stays_held_is_a_fault_that_names_the_gpu_the_amount_and_the_holder(self) -> None:
        nvml, gpus = driver(replace(IDLE, memory_used_bytes=8 << 30), processes=(GpuProcess(os.getpid(), 7 << 30),))
        with pytest.raises(
            GpuMemoryHeldError, match=r"GPU 0 still has 8\.0 GiB .* 0\.0 GiB before .*7\.0 GiB.*tune resume"
        ):
            await wait_for_memory(nvml, gpus, {gpus[0].uuid: 0}, timeout_s=0.1)


class TestTelemetry:
    """What is said of a measurement."""

    def test_throttling_is_told_with_its_share_and_reasons(self, recorded: Recorded) -> None:
        nvml = recorded("throttling_4090")
        with Telemetry(nvml, nvml.gpus(), interval_s=0.002) as telemetry:
            while len(telemetry.rows) < 16:
                pass
        usage = telemetry.usage
        assert usage is not None
        sentence = usage.throttled()
        assert sentence is not None
        assert "GPU 0 throttled in" in sentence
        assert "hardware thermal, software thermal" in sentence
        metrics = usage.metrics()
        assert metrics["gpu_sm_clock_min_hz"] == pytest.approx(1.56e9)
        assert 0 < metrics["gpu_throttled_share"] < 1
        assert 0 < metrics["gpu_power_capped_share"] < 1

    def test_a_power_cap_alone_is_no_throttling(self) -> None:
        nvml, gpus = driver(replace(IDLE, reasons=frozenset({"power_cap", "idle"})))
        with Telemetry(nvml, gpus) as telemetry:
            pass
        assert telemetry.usage is not None
        assert telemetry.usage.throttled() is None
        assert telemetry.usage.metrics()["gpu_power_capped_share"] == 1

    def test_energy_is_the_counter_s_difference_or_the_area_under_the_power(self) -> None:
        counted, gpus = driver(replace(IDLE, energy_j=100.0), replace(IDLE, energy_j=130.0))
        with Telemetry(counted, gpus) as telemetry:
            pass
        assert telemetry.usage is not None
        assert telemetry.usage.metrics()["gpu_energy_j"] == pytest.approx(30)
        drawn, gpus = driver(replace(IDLE, power_w=50.0))
        with Telemetry(drawn, gpus, interval_s=0.02) as telemetry:
            subprocess.run([sys.executable, "-c", ""], check=True)
        assert telemetry.usage is not None
        assert telemetry.usage.metrics()["gpu_energy_j"] == pytest.approx(50 * telemetry.usage.seconds, rel=0.01)

    def test_two_gpus_are_summed_in_power_and_averaged_in_use(self, recorded: Recorded) -> None:
        nvml = recorded("two_h100_nvlink")
        with Telemetry(nvml, nvml.gpus()) as telemetry:
            pass
        assert telemetry.usage is not None
        metrics = telemetry.usage.metrics()
        assert 800 < metrics["gpu_power_mean_w"] < 1000
        assert 0.85 < metrics["gpu_utilization_mean"] <= 1

    def test_every_metric_is_documented(self, recorded: Recorded) -> None:
        nvml = recorded("two_h100_nvlink")
        with Telemetry(nvml, nvml.gpus(), interval_s=0.001) as telemetry:
            while len(telemetry.rows) < 2:
                pass
        assert telemetry.usage is not None
        page = (RECORDINGS.parents[2] / "docs" / "gpu.md").read_text(encoding="utf-8")
        rows = "".join(line for line in page.splitlines(keepends=True) if line.startswith("| `gpu_"))
        assert set(re.findall(r"`(gpu_\w+)`", rows)) == set(telemetry.usage.metrics())

    def test_a_driver_that_is_lost_midway_leaves_what_was_read_and_says_so(self) -> None:
        class Lost(RecordedNvml):
            def sample(self, gpu: Gpu) -> GpuSample:
                if self._taken[gpu.uuid] >= 2:
                    raise GpuError("the driver went away")
                return super().sample(gpu)

        nvml, gpus = driver()
        lost = Lost(nvml._recording)
        with Telemetry(lost, gpus, interval_s=0.001) as telemetry:
            while telemetry.lost is None:
                pass
        assert telemetry.usage is not None
        assert telemetry.usage.lost == "the driver went away"
        assert len(telemetry.usage.readings[0][1]) == 2
