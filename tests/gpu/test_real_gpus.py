"""The same as on recordings, on the GPUs of this host (`make test-gpu`)."""

import asyncio
import os
import subprocess
import sys

import pytest

from runners.gpu import Nvml, make_slots, memory_used, open_nvml, usable_gpus, wait_for_memory
from runners.gpu.testing import NvmlContract

pytestmark = pytest.mark.gpu


@pytest.fixture
def nvml() -> Nvml:
    found = open_nvml()
    if found is None or not found.gpus():
        pytest.skip("this host has no NVIDIA GPU: no driver, or one that sees none")
    return found


class TestRealDriver(NvmlContract):
    """NVIDIA's own."""


def test_the_driver_and_nvidia_smi_name_the_same_gpus(nvml: Nvml) -> None:
    query = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    told = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.split() == [gpu.uuid for gpu in nvml.gpus() if not gpu.mig_instance]


def test_memory_that_a_process_held_is_seen_to_come_back(nvml: Nvml) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed beside the tests; nothing else allocates GPU memory")
    slot = make_slots(usable_gpus(nvml.gpus()), 1)[0]
    before = memory_used(nvml, slot.gpus)
    script = (
        "import torch; x = torch.empty(1 << 30, device='cuda', dtype=torch.uint8); print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, **slot.env}, stdin=-1, stdout=-1, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert memory_used(nvml, slot.gpus)[slot.gpus[0].uuid] - before[slot.gpus[0].uuid] >= 1 << 30
        process.communicate("\n")
    assert asyncio.run(wait_for_memory(nvml, slot.gpus, before)) < 30
