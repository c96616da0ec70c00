"""What every driver behind the seam must do, as a test class: ours on recordings and on real GPUs, a third party's too.

class TestMyDriver(NvmlContract):
    @pytest.fixture
    def nvml(self) -> Nvml: ...
"""
# These are tests, shipped so that other drivers can be held to them: they assert (S101), and their names describe
# them (D102).
# ruff: noqa: D102, S101

from __future__ import annotations

import itertools
import time

from runners.gpu.device import THROTTLE_REASONS, Nvml
from runners.gpu.slots import make_slots, usable_gpus
from runners.gpu.telemetry import Telemetry

MAX_CPU_SHARE = 0.01


class NvmlContract:
    """Inherit it and give the fixture `nvml`."""

    def test_the_inventory_is_complete_and_consistent(self, nvml: Nvml) -> None:
        gpus = nvml.gpus()
        assert nvml.driver_version()[0].isdigit()
        assert len({gpu.uuid for gpu in gpus}) == len(gpus) > 0
        assert [gpu.index for gpu in gpus] == sorted(gpu.index for gpu in gpus)
        whole = {gpu.index: gpu for gpu in gpus if not gpu.mig_instance}
        for gpu in gpus:
            assert gpu.name
            assert gpu.memory_bytes >= 0
            assert gpu.compute_capability >= (3, 0)
            assert gpu.index in whole
            for peer in gpu.nvlink_peers:
                assert gpu.index in whole[peer].nvlink_peers

    def test_a_reading_is_plausible(self, nvml: Nvml) -> None:
        for gpu in nvml.gpus():
            sample = nvml.sample(gpu)
            assert sample.utilization is None or 0 <= sample.utilization <= 1
            assert sample.memory_used_bytes >= 0
            assert not gpu.memory_bytes or sample.memory_used_bytes <= gpu.memory_bytes
            assert sample.power_w is None or 0 <= sample.power_w < 2000
            assert sample.temperature_c is None or 0 < sample.temperature_c < 120
            assert all(reason in THROTTLE_REASONS.values() or reason.startswith("bit_") for reason in sample.reasons)
            assert all(process.pid > 0 for process in nvml.processes(gpu))

    def test_each_gpu_makes_a_slot_that_names_it(self, nvml: Nvml) -> None:
        gpus = usable_gpus(nvml.gpus())
        slots = make_slots(gpus, 1)
        assert [slot.env["CUDA_VISIBLE_DEVICES"] for slot in slots] == [gpu.visible_as for gpu in gpus]
        assert usable_gpus(nvml.gpus(), ",".join(gpu.visible_as for gpu in gpus)) == gpus

    def test_telemetry_sums_up_what_was_read_and_costs_next_to_nothing(self, nvml: Nvml) -> None:
        gpus = usable_gpus(nvml.gpus())
        with Telemetry(nvml, gpus, interval_s=0.05) as telemetry:
            time.sleep(0.25)
        usage = telemetry.usage
        assert usage is not None
        assert usage.lost is None
        assert 0.2 < usage.seconds < 5
        assert [gpu for gpu, _ in usage.readings] == list(gpus)
        assert all(a < b for a, b in itertools.pairwise(usage.times_s))
        metrics = usage.metrics()
        assert metrics["gpu_memory_used_max_bytes"] >= 0
        assert 0 <= metrics["gpu_throttled_share"] <= 1
        assert metrics["gpu_telemetry_cpu_share"] < MAX_CPU_SHARE * 5  # sampled five times as often as in a study
