"""NVIDIA's management library behind the seam: each question is asked once and its answer made plain.

What a GPU does not support (energy on older ones, utilisation of a MIG instance) is None; that the driver does not
answer at all is a GpuError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from runners.gpu.device import Gpu, GpuError, GpuProcess, GpuSample, throttle_reasons

_Answer = TypeVar("_Answer")
_CPUS_PER_WORD = 64
_SYSFS_PCI = Path("/sys/bus/pci/devices")


class NvmlLibrary:
    """The driver of this host. Use `open_nvml`."""

    def __init__(self) -> None:
        self._handles: dict[str, Any] = {}

    def driver_version(self) -> str:
        """See `runners.gpu.device.Nvml`."""
        with _told("the version of the driver"):
            return str(pynvml.nvmlSystemGetDriverVersion())

    def gpus(self) -> tuple[Gpu, ...]:
        """See `runners.gpu.device.Nvml`."""
        with _told("the GPUs"):
            handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
            found: list[Gpu] = []
            for index, handle in enumerate(handles):
                whole = self._whole(index, handle, handles)
                found.append(whole)
                if whole.mig_parent:
                    found += self._instances(whole, handle)
            return tuple(found)

    def sample(self, gpu: Gpu) -> GpuSample:
        """See `runners.gpu.device.Nvml`."""
        handle = self._handle(gpu)
        with _told(f"what {gpu.label} does"):
            used = _if_supported(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used)
            utilization = _if_supported(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
            power_mw = _if_supported(lambda: pynvml.nvmlDeviceGetPowerUsage(handle))
            energy_mj = _if_supported(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))
            clock_mhz = _if_supported(lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
            degrees = _if_supported(lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
            # The older name of nvmlDeviceGetCurrentClocksEventReasons, which drivers before 535 do not have.
            bits = _if_supported(lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        return GpuSample(
            utilization=None if utilization is None else utilization / 100,
            memory_used_bytes=int(used or 0),
            power_w=None if power_mw is None else power_mw / 1000,
            energy_j=None if energy_mj is None else energy_mj / 1000,
            sm_clock_hz=None if clock_mhz is None else clock_mhz * 1e6,
            temperature_c=None if degrees is None else float(degrees),
            reasons=throttle_reasons(bits or 0),
        )

    def processes(self, gpu: Gpu) -> tuple[GpuProcess, ...]:
        """See `runners.gpu.device.Nvml`."""
        handle = self._handle(gpu)
        with _told(f"who uses {gpu.label}"):
            found = _if_supported(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle)) or ()
            return tuple(
                GpuProcess(int(p.pid), None if p.usedGpuMemory is None else int(p.usedGpuMemory)) for p in found
            )

    def _whole(self, index: int, handle: Any, handles: list[Any]) -> Gpu:
        uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        self._handles[uuid] = handle
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        mig = _if_supported(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
        limit_mw = _if_supported(lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle))
        return Gpu(
            index=index,
            uuid=uuid,
            name=str(pynvml.nvmlDeviceGetName(handle)),
            memory_bytes=_memory_bytes(handle),
            compute_capability=(int(major), int(minor)),
            nvlink_peers=tuple(
                peer for peer, other in enumerate(handles) if peer != index and _reaches_by_nvlink(handle, other)
            ),
            numa_node=_numa_node(handle),
            cpus=_near_cpus(handle),
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
            mig_parent=mig == pynvml.NVML_DEVICE_MIG_ENABLE,
        )

    def _instances(self, whole: Gpu, handle: Any) -> Iterator[Gpu]:
        for number in range(_if_supported(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0):
            instance = _mig_instance(handle, number)
            if instance is None:
                continue
            uuid = str(pynvml.nvmlDeviceGetUUID(instance))
            self._handles[uuid] = instance
            yield Gpu(
                index=whole.index,
                uuid=uuid,
                name=str(pynvml.nvmlDeviceGetName(instance)),
                memory_bytes=_memory_bytes(instance),
                compute_capability=whole.compute_capability,
                numa_node=whole.numa_node,
                cpus=whole.cpus,
                mig_instance=True,
            )

    def _handle(self, gpu: Gpu) -> Any:
        if gpu.uuid not in self._handles:
            raise GpuError(f"{gpu.label} ({gpu.uuid}) is not on this host; ask for the GPUs again")
        return self._handles[gpu.uuid]


def open_nvml() -> NvmlLibrary | None:
    """The driver of this host; None on a host without one.

    Raises:
        GpuError: there is a driver, but it does not answer (a version mismatch, a lost device).
    """
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return None
    except pynvml.NVMLError as error:
        raise GpuError(
            f"NVIDIA's driver does not answer ({error}); see `nvidia-smi`, and reload or repair it"
        ) from error
    return NvmlLibrary()


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except pynvml.NVMLError as error:
        raise GpuError(f"NVIDIA's driver does not tell {what} ({error}); see `nvidia-smi`") from error


def _if_supported(ask: Callable[[], _Answer]) -> _Answer | None:
    """The answer; None where this GPU, its driver or our rights do not give it."""
    try:
        return ask()
    except (
        pynvml.NVMLError_NotSupported,
        pynvml.NVMLError_FunctionNotFound,
        pynvml.NVMLError_NoPermission,
        pynvml.NVMLError_InvalidArgument,  # what some questions get for a MIG instance
    ):
        return None


def _mig_instance(handle: Any, number: int) -> Any:
    """None for a place in which no instance was made."""
    try:
        return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
    except pynvml.NVMLError_NotFound:
        return None


def _memory_bytes(handle: Any) -> int:
    return int(_if_supported(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total) or 0)


def _reaches_by_nvlink(one: Any, other: Any) -> bool:
    """Also through an NVSwitch, whose links end at the switch and not at the other GPU."""
    status = _if_supported(lambda: pynvml.nvmlDeviceGetP2PStatus(one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK))
    return bool(status == pynvml.NVML_P2P_STATUS_OK)


def _numa_node(handle: Any) -> int | None:
    """The kernel's word for the device; -1 means that it has none."""
    bus = _if_supported(lambda: pynvml.nvmlDeviceGetPciInfo(handle).busId)
    if bus is None:
        return None
    domain, _, rest = str(bus).lower().partition(":")
    file = _SYSFS_PCI / f"{domain[-4:]}:{rest}" / "numa_node"
    node = int(file.read_text(encoding="ascii")) if file.is_file() else -1
    return node if node >= 0 else None


def _near_cpus(handle: Any) -> tuple[int, ...]:
    last = max(_host_cpus(), default=0)
    words = _if_supported(lambda: pynvml.nvmlDeviceGetCpuAffinity(handle, last // _CPUS_PER_WORD + 1))
    bits = sum(int(word) << (_CPUS_PER_WORD * place) for place, word in enumerate(words or ()))
    return tuple(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def _host_cpus() -> list[int]:
    """Numbers of the cores that the kernel may ever have, such as "0-127"."""
    text = Path("/sys/devices/system/cpu/possible").read_text(encoding="ascii")
    return [int(part) for part in text.replace("-", ",").split(",")]
