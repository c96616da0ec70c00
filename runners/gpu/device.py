"""What is known of GPUs, as plain data, and the seam through which it is asked.

Two implementations: `runners.gpu.nvml` asks NVIDIA's driver, `runners.gpu.recorded` replays what a driver once said.
Nothing here asks anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from runners.errors import RunnerError

THROTTLE_REASONS = {
    0x01: "idle",
    0x02: "clocks_set_by_user",
    0x04: "power_cap",
    0x08: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "software_thermal",
    0x40: "hardware_thermal",
    0x80: "power_brake",
    0x100: "display_clock",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h, NVML 13), under the names that are used here."""

HARMFUL_REASONS = frozenset(
    {"hardware_slowdown", "software_thermal", "hardware_thermal", "power_brake", "board_limit", "reliability"}
)
"""Reasons that make a GPU slower than it is when it serves under good conditions. The power cap is none of them: it is
what the GPU always does at full load."""


class GpuError(RunnerError):
    """The driver does not answer, or GPUs that were asked for do not exist."""


class GpuMemoryHeldError(RunnerError):
    """Memory of a GPU was not given back after an engine had ended; the next launch there cannot be trusted."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that an engine can be given: a whole one, or a MIG instance of one.

    Attributes:
        index: number of the (parent) GPU in PCI order.
        uuid: its lasting name.
        name: such as "NVIDIA H100 80GB HBM3".
        memory_bytes: all of its memory; 0 where it has none of its own and shares the host's.
        compute_capability: (major, minor).
        nvlink_peers: indices of GPUs that it reaches over NVLink.
        numa_node: memory node that it is attached to; None when unknown.
        cpus: cores near it; empty when unknown.
        power_limit_w: the enforced limit in watts; None when unknown.
        mig_parent: whether it is divided into MIG instances, and so cannot be given as a whole.
        mig_instance: whether it is such an instance.
    """

    index: int
    uuid: str
    name: str
    memory_bytes: int
    compute_capability: tuple[int, int]
    nvlink_peers: tuple[int, ...] = ()
    numa_node: int | None = None
    cpus: tuple[int, ...] = ()
    power_limit_w: float | None = None
    mig_parent: bool = False
    mig_instance: bool = False

    @property
    def visible_as(self) -> str:
        """Its entry in CUDA_VISIBLE_DEVICES; a MIG instance has no number there."""
        return self.uuid if self.mig_instance else str(self.index)

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"GPU {self.uuid}" if self.mig_instance else f"GPU {self.index}"


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that computes on a GPU, under the number that the driver knows it by."""

    pid: int
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One reading of a GPU; None where it does not tell.

    Attributes:
        utilization: share of the last moment in which a kernel ran, 0 to 1.
        memory_used_bytes: memory in use, by whomever.
        power_w: power draw in watts.
        energy_j: energy since the driver was loaded, in joules.
        sm_clock_hz: clock of the multiprocessors.
        temperature_c: of the GPU, in degrees Celsius.
        reasons: why its clock is not higher (see THROTTLE_REASONS).
    """

    utilization: float | None
    memory_used_bytes: int
    power_w: float | None
    energy_j: float | None
    sm_clock_hz: float | None
    temperature_c: float | None
    reasons: frozenset[str]


class Nvml(Protocol):
    """The questions that are asked of a driver. Every method may raise GpuError."""

    def driver_version(self) -> str:
        """Version of the driver, such as "580.95.05"."""

    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs and MIG instances, in PCI order, an instance after its parent."""

    def sample(self, gpu: Gpu) -> GpuSample:
        """One reading, now."""

    def processes(self, gpu: Gpu) -> tuple[GpuProcess, ...]:
        """Processes that compute on it, now."""


def throttle_reasons(bits: int) -> frozenset[str]:
    """Names of the set bits; a bit that NVML gained later shows as its number."""
    names = {THROTTLE_REASONS.get(1 << n, f"bit_{n}") for n in range(bits.bit_length()) if bits >> n & 1}
    return frozenset(names)
