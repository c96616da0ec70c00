"""GPUs: inventory, slots, whether they are free, and what they did during a measurement.

NVIDIA's driver is behind the seam `Nvml`; `open_nvml()` is None on a host without one.
"""

from runners.gpu.device import Gpu, GpuError, GpuMemoryHeldError, GpuProcess, GpuSample, Nvml
from runners.gpu.nvml import NvmlLibrary, open_nvml
from runners.gpu.quiet import busy_before_launch, foreign_processes, memory_used, wait_for_memory, wait_until_free
from runners.gpu.recorded import RecordedNvml, Recording, record
from runners.gpu.slots import Slot, make_slots, usable_gpus
from runners.gpu.telemetry import GpuUsage, Telemetry

__all__ = [
    "Gpu",
    "GpuError",
    "GpuMemoryHeldError",
    "GpuProcess",
    "GpuSample",
    "GpuUsage",
    "Nvml",
    "NvmlLibrary",
    "RecordedNvml",
    "Recording",
    "Slot",
    "Telemetry",
    "busy_before_launch",
    "foreign_processes",
    "make_slots",
    "memory_used",
    "open_nvml",
    "record",
    "usable_gpus",
    "wait_for_memory",
    "wait_until_free",
]
