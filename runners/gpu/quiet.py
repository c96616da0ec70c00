"""Whether GPUs are free: before a launch, before a measurement, and after an engine has ended.

Judges readings; who is to be ended is for the user to decide, so nothing is killed here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence

import psutil

from runners.gpu.device import Gpu, GpuMemoryHeldError, GpuProcess, Nvml

# What a driver, a display or a monitoring agent keeps on an idle GPU; an engine needs gigabytes.
IDLE_MEMORY_BYTES = 1 << 30
IDLE_UTILIZATION = 0.05
# Memory that may stay in use after an engine: the driver gives small pools back late.
RETURN_TOLERANCE_BYTES = 256 << 20
RETURN_TIMEOUT_S = 60.0
# The driver averages utilisation over up to a second.
SETTLE_TIMEOUT_S = 3.0
_POLL_S = 0.25


def busy_before_launch(nvml: Nvml, gpus: Iterable[Gpu]) -> list[str]:
    """Why no engine should be started on these GPUs now, one sentence for each that is busy."""
    sentences = []
    for gpu in gpus:
        sample = nvml.sample(gpu)
        works = sample.utilization is not None and sample.utilization > IDLE_UTILIZATION
        if sample.memory_used_bytes > IDLE_MEMORY_BYTES or works:
            share = "" if sample.utilization is None else f" and computes {sample.utilization:.0%} of the time"
            sentences.append(
                f"{gpu.label} is busy: {_gib(sample.memory_used_bytes)} are in use{share}{_used_by(nvml, gpu)}; "
                "end what runs there, or choose other GPUs with --gpus"
            )
    return sentences


async def wait_until_free(nvml: Nvml, gpus: Sequence[Gpu], *, timeout_s: float = SETTLE_TIMEOUT_S) -> list[str]:
    """As `busy_before_launch`, but lets a load that just ended fade from the driver's averages."""
    end = time.perf_counter() + timeout_s
    while True:
        busy = busy_before_launch(nvml, gpus)
        if not busy or time.perf_counter() >= end:
            return busy
        await asyncio.sleep(_POLL_S)


def foreign_processes(nvml: Nvml, gpus: Iterable[Gpu], engine_pid: int) -> list[str]:
    """Who computes beside the engine on its GPUs, one sentence for each process.

    The driver counts processes as its own namespace does. Where none of the engine's is among them, as in a container,
    the others cannot be told apart from it, and nothing is said.
    """
    ours = _tree(engine_pid)
    sentences = []
    for gpu in gpus:
        found = nvml.processes(gpu)
        if not any(process.pid in ours for process in found):
            continue
        sentences += [
            f"{_named(process)} computes on {gpu.label} beside the engine; end it, or choose other GPUs with --gpus"
            for process in found
            if process.pid not in ours
        ]
    return sentences


def memory_used(nvml: Nvml, gpus: Iterable[Gpu]) -> dict[str, int]:
    """Bytes in use by UUID, to compare with after an engine."""
    return {gpu.uuid: nvml.sample(gpu).memory_used_bytes for gpu in gpus}


async def wait_for_memory(
    nvml: Nvml, gpus: Sequence[Gpu], before: Mapping[str, int], *, timeout_s: float = RETURN_TIMEOUT_S
) -> float:
    """Waits until every GPU has at most as much memory in use as before the launch.

    Returns:
        Seconds waited.

    Raises:
        GpuMemoryHeldError: one still has more after the timeout.
    """
    began = time.perf_counter()
    while True:
        held = [gpu for gpu in gpus if _excess(nvml, gpu, before) > RETURN_TOLERANCE_BYTES]
        waited_s = time.perf_counter() - began
        if not held:
            return waited_s
        if waited_s >= timeout_s:
            first = held[0]
            raise GpuMemoryHeldError(
                f"{first.label} still has {_gib(before[first.uuid] + _excess(nvml, first, before))} in use "
                f"{waited_s:.0f} s after its engine ended, {_gib(before[first.uuid])} before the launch"
                f"{_used_by(nvml, first)}; end what holds it, then go on with `tune resume`"
            )
        await asyncio.sleep(_POLL_S)


def _excess(nvml: Nvml, gpu: Gpu, before: Mapping[str, int]) -> int:
    return nvml.sample(gpu).memory_used_bytes - before[gpu.uuid]


def _used_by(nvml: Nvml, gpu: Gpu) -> str:
    names = ", ".join(_named(process) for process in nvml.processes(gpu))
    return f", by {names}" if names else ""


def _named(process: GpuProcess) -> str:
    """Process id, name and memory; the command line may hold secrets and is not shown."""
    try:
        name = f" ({psutil.Process(process.pid).name()})"
    except psutil.Error:
        name = ""  # gone, or in another namespace
    memory = "" if process.memory_bytes is None else f" with {_gib(process.memory_bytes)}"
    return f"process {process.pid}{name}{memory}"


def _tree(pid: int) -> set[int]:
    try:
        return {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    except psutil.NoSuchProcess:
        return {pid}


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
