"""GPUs of a study: which its engines are given, and what is asked of them around a launch and during a measurement.

What a GPU is, and how it is asked, is runners/gpu. On a host without GPUs, and for engines that are simulated or only
attached to, there are none and nothing is asked.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from runners import LaunchFailure
from runners.gpu import (
    Gpu,
    GpuError,
    Nvml,
    Slot,
    Telemetry,
    foreign_processes,
    make_slots,
    memory_used,
    open_nvml,
    usable_gpus,
    wait_for_memory,
    wait_until_free,
)
from search_spaces import ServeConfig
from tuner.config import TuneConfig
from tuner.errors import UsageError

PARALLEL_SIZES = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")


class Observation:
    """What the GPUs of an engine do while this context is open; without GPUs it has nothing to say."""

    def __init__(self, nvml: Nvml | None, slot: Slot | None, engine_pid: int) -> None:
        self._nvml = nvml
        self._gpus = slot.gpus if slot else ()
        self._engine_pid = engine_pid
        self._telemetry = Telemetry(nvml, self._gpus) if nvml is not None and self._gpus else None
        self.metrics: dict[str, float] = {}
        self.problems: list[str] = []

    def __enter__(self) -> Self:
        if self._telemetry is not None:
            self._telemetry.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._telemetry is None or self._nvml is None:
            return
        self._telemetry.__exit__(kind, error, trace)
        usage = self._telemetry.usage
        if usage is None or kind is not None:
            return
        self.metrics = usage.metrics()
        sentences = (usage.throttled(), usage.lost and f"telemetry of the GPUs was lost: {usage.lost}")
        self.problems = [sentence for sentence in sentences if sentence]
        if usage.lost:
            return  # a driver that stopped answering would only say the same again
        try:
            self.problems += foreign_processes(self._nvml, self._gpus, self._engine_pid)
        except GpuError as lost:
            self.problems.append(f"the GPUs could not be asked who else computes on them: {lost}")


def unobserved() -> Observation:
    """For an engine without GPUs, or one whose GPUs are not ours to ask."""
    return Observation(None, None, 0)


@dataclass(frozen=True, slots=True)
class StudyGpus:
    """GPUs that the engines of a study may use, and the driver that is asked about them."""

    nvml: Nvml | None = None
    gpus: tuple[Gpu, ...] = ()

    def slot(self, config: ServeConfig) -> Slot | None:
        """The GPUs of one engine with this configuration; None on a host without GPUs.

        Raises:
            LaunchFailure: the configuration needs more GPUs than there are.
        """
        if self.nvml is None or not self.gpus:
            return None
        try:
            return make_slots(self.gpus, engine_size(config))[0]
        except GpuError as error:
            raise LaunchFailure("unsupported", str(error)) from error

    @asynccontextmanager
    async def held(self, slot: Slot | None) -> AsyncIterator[None]:
        """The life of an engine on its GPUs: they are free before, and their memory is given back after.

        Raises:
            LaunchFailure: on entering, a GPU is busy; on entering or leaving, the driver does not answer.
            GpuMemoryHeldError: on leaving, memory was not given back.
        """
        if slot is None or self.nvml is None:
            yield
            return
        with _driver_faults():
            busy = await wait_until_free(self.nvml, slot.gpus)
            before = memory_used(self.nvml, slot.gpus)
        if busy:
            raise LaunchFailure("gpu_busy", busy[0], infrastructure=True)
        told_to_stop = False
        try:
            yield
        except asyncio.CancelledError:
            told_to_stop = True  # who waits at the terminal is let go; the next launch looks whether the GPUs are free
            raise
        finally:
            if not told_to_stop:
                with _driver_faults():
                    await wait_for_memory(self.nvml, slot.gpus, before)

    def observe(self, slot: Slot | None, engine_pid: int) -> Observation:
        """Watches the engine's GPUs during a measurement."""
        return Observation(self.nvml, slot, engine_pid)


@contextmanager
def _driver_faults() -> Iterator[None]:
    """A driver that does not answer is the host's fault: the launch is tried again and teaches the search nothing."""
    try:
        yield
    except GpuError as error:
        raise LaunchFailure("driver", str(error), infrastructure=True) from error


def find_gpus(config: TuneConfig) -> StudyGpus:
    """The GPUs that this study may use: `--gpus`, else CUDA_VISIBLE_DEVICES, else all.

    Raises:
        UsageError: one that was named does not exist, or the driver does not answer.
    """
    wanted = next(
        (
            text
            for text in (
                config.gpus,
                config.engine_env.get("CUDA_VISIBLE_DEVICES"),
                os.environ.get("CUDA_VISIBLE_DEVICES"),
            )
            if text is not None
        ),
        None,
    )
    # An attached engine holds its GPUs already, wherever they are, and a simulated one needs none.
    without = config.engine_url is not None or any("runners.simulated" in word for word in config.engine_argv)
    try:
        nvml = None if without or wanted in {"", "-1"} else open_nvml()
        if nvml is None:
            if config.gpus:
                raise UsageError(
                    f"--gpus {config.gpus}: no NVIDIA driver on this host, or the engine is not ours; leave it out"
                )
            return StudyGpus()
        return StudyGpus(nvml, usable_gpus(nvml.gpus(), wanted))
    except GpuError as error:
        raise UsageError(str(error)) from error


def engine_size(config: ServeConfig) -> int:
    """GPUs that one engine needs: the product of its parallel sizes."""
    size = 1
    for flag in PARALLEL_SIZES:
        value = config.engine_args.get(flag)
        size *= value if isinstance(value, int) and not isinstance(value, bool) else 1
    return size
