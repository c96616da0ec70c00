"""A driver that says what a real one once said, from a JSON file: for machines without GPUs, and for bug reports.

    python -m runners.gpu --seconds 5 > my-gpus.json

`RecordedNvml` answers from such a file; readings advance one step with each sample and then start again, so that a
recorded throttling comes again in the same order.
"""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runners.gpu.device import Gpu, GpuError, GpuProcess, GpuSample, Nvml


class _Recorded(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RecordedGpu(_Recorded):
    """A GPU with its readings."""

    gpu: Gpu = Field(description="what does not change")
    samples: tuple[GpuSample, ...] = Field(min_length=1, description="readings, oldest first")
    processes: tuple[GpuProcess, ...] = Field(default=(), description="who computes on it")


class Recording(_Recorded):
    """What a driver said."""

    about: str = Field(default="", description="where and when it was recorded, or that it was written by hand")
    driver_version: str = Field(description="version of the driver")
    gpus: tuple[RecordedGpu, ...] = Field(description="in PCI order, a MIG instance after its parent")


class RecordedNvml:
    """A driver that answers from a recording."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._by_uuid = {recorded.gpu.uuid: recorded for recorded in recording.gpus}
        self._taken: dict[str, int] = defaultdict(int)

    @classmethod
    def read(cls, file: Path) -> RecordedNvml:
        """Reads a file.

        Raises:
            GpuError: it is not such a recording.
        """
        try:
            return cls(Recording.model_validate_json(file.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, ValidationError) as error:
            raise GpuError(f"{file}: not a recording of GPUs ({' '.join(str(error).split())[:200]})") from error

    def driver_version(self) -> str:
        """See `runners.gpu.device.Nvml`."""
        return self._recording.driver_version

    def gpus(self) -> tuple[Gpu, ...]:
        """See `runners.gpu.device.Nvml`."""
        return tuple(recorded.gpu for recorded in self._recording.gpus)

    def sample(self, gpu: Gpu) -> GpuSample:
        """The next reading."""
        samples = self._found(gpu).samples
        self._taken[gpu.uuid] += 1
        return samples[(self._taken[gpu.uuid] - 1) % len(samples)]

    def processes(self, gpu: Gpu) -> tuple[GpuProcess, ...]:
        """See `runners.gpu.device.Nvml`."""
        return self._found(gpu).processes

    def _found(self, gpu: Gpu) -> RecordedGpu:
        if gpu.uuid not in self._by_uuid:
            raise GpuError(f"{gpu.label} ({gpu.uuid}) is not in the recording")
        return self._by_uuid[gpu.uuid]


def record(nvml: Nvml, *, samples: int, interval_s: float, about: str = "") -> Recording:
    """Asks a driver everything that the seam can be asked, several times."""
    gpus = nvml.gpus()
    readings: dict[str, list[GpuSample]] = {gpu.uuid: [] for gpu in gpus}
    for number in range(samples):
        if number:
            time.sleep(interval_s)
        for gpu in gpus:
            readings[gpu.uuid].append(nvml.sample(gpu))
    return Recording(
        about=about,
        driver_version=nvml.driver_version(),
        gpus=tuple(
            RecordedGpu(gpu=gpu, samples=tuple(readings[gpu.uuid]), processes=nvml.processes(gpu)) for gpu in gpus
        ),
    )
