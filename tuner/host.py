"""What this host is: enough to choose release defaults and to say where figures come from. Imports no engine."""

import os
import platform
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import psutil

from runners.gpu import Gpu
from search_spaces import Device
from tuner.records import Provenance

# vLLM's own limits for its larger defaults (engine/arg_utils.py, get_batch_defaults)
LARGE_GPU_MIB = 70 * 1024
HUGE_GPU_MIB = 160 * 1024


def describe_gpus(gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """Name and memory of each, "NVIDIA H100 80GB HBM3, 81559" (MiB); [N/A] where it shares the host's memory."""
    return tuple(f"{gpu.name}, {gpu.memory_bytes >> 20 or '[N/A]'}" for gpu in gpus)


def device(found: tuple[str, ...]) -> Device:
    """Which of vLLM's defaults apply."""
    if not found:
        return "cpu"
    name, _, memory = found[0].rpartition(",")
    mib = int(memory) if memory.strip().isdigit() else 0
    if mib >= HUGE_GPU_MIB:
        return "huge_gpu"
    return "large_gpu" if mib >= LARGE_GPU_MIB and "a100" not in name.lower() else "gpu"


@contextmanager
def away_from_engine(kind: Device) -> Iterator[None]:
    """Keeps this thread off the cores that a CPU engine computes on.

    vLLM's CPU backend computes on every core but the last, which it leaves to serving; a client that wanders onto the
    others takes time from the model.
    """
    allowed = os.sched_getaffinity(0)
    if kind != "cpu" or len(allowed) < 2:
        yield
        return
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def provenance(found: tuple[str, ...], *, engine_version: str, workload_digest: str) -> Provenance:
    """Describes the host for the study's files."""
    return Provenance(
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        tuner_version=metadata.version("dflash-tuner"),
        python=platform.python_version(),
        host=platform.platform(),
        cpu=f"{_cpu_model()} ({os.cpu_count()} cores)",
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        gpus=found,
        engine_version=engine_version,
        workload_digest=workload_digest,
    )


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    match = (
        re.search(r"^model name\s*:\s*(.+)$", info.read_text(encoding="utf-8"), re.MULTILINE) if info.exists() else None
    )
    return match[1].strip() if match else platform.processor() or platform.machine()
