"""What GPUs did during a measurement: sampled in a thread, summed up at the end.

The thread sleeps between readings and keeps to another core than the client's, so that it disturbs neither the load nor
its timing; calls into the driver leave Python's lock to others (ctypes). It says whether the GPU was slowed down;
what that means for the measurement is the caller's business.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from runners.gpu.device import HARMFUL_REASONS, Gpu, GpuError, GpuSample, Nvml

INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """Readings of one measurement.

    Attributes:
        seconds: from the first to the last reading.
        readings: for each GPU its samples, oldest first.
        times_s: when each round of readings was taken, from the first.
        cpu_s: processor time that the sampling itself took.
        lost: why readings are missing; None when none are.
    """

    seconds: float
    readings: tuple[tuple[Gpu, tuple[GpuSample, ...]], ...]
    times_s: tuple[float, ...]
    cpu_s: float
    lost: str | None = None

    def metrics(self) -> dict[str, float]:
        """Flat metrics with units in their names, over all GPUs of the engine; absent where a GPU does not tell."""
        samples = [sample for _, found in self.readings for sample in found]
        values: dict[str, float | None] = {
            "gpu_utilization_mean": _mean(s.utilization for s in samples),
            "gpu_memory_used_max_bytes": max((s.memory_used_bytes for s in samples), default=None),
            "gpu_power_mean_w": self._sum(lambda found: _mean(s.power_w for s in found)),
            "gpu_energy_j": self._sum(self._energy_j),
            "gpu_sm_clock_mean_hz": _mean(s.sm_clock_hz for s in samples),
            "gpu_sm_clock_min_hz": min((s.sm_clock_hz for s in samples if s.sm_clock_hz is not None), default=None),
            "gpu_temperature_max_c": max(
                (s.temperature_c for s in samples if s.temperature_c is not None), default=None
            ),
            "gpu_throttled_share": self._share(HARMFUL_REASONS),
            "gpu_power_capped_share": self._share({"power_cap"}),
            "gpu_telemetry_cpu_share": self.cpu_s / self.seconds if self.seconds else None,
        }
        return {name: float(value) for name, value in values.items() if value is not None}

    def throttled(self) -> str | None:
        """A sentence when a GPU was slowed down, with how long and why."""
        for gpu, found in self.readings:
            slowed = [sample for sample in found if sample.reasons & HARMFUL_REASONS]
            if slowed:
                reasons = sorted({reason for sample in slowed for reason in sample.reasons & HARMFUL_REASONS})
                hottest = max((s.temperature_c for s in found if s.temperature_c is not None), default=None)
                heat = "" if hottest is None else f", up to {hottest:.0f} degrees Celsius"
                return (
                    f"{gpu.label} throttled in {len(slowed) / len(found):.0%} of the readings "
                    f"({', '.join(reasons).replace('_', ' ')}{heat}); cool it, or check its power supply"
                )
        return None

    def _share(self, reasons: Iterable[str]) -> float | None:
        wanted = set(reasons)
        samples = [sample for _, found in self.readings for sample in found]
        return _mean(float(bool(sample.reasons & wanted)) for sample in samples)

    def _sum(self, of: Callable[[Sequence[GpuSample]], float | None]) -> float | None:
        """Sum over the GPUs; unknown when it is of one of them."""
        values = [of(found) for _, found in self.readings]
        return sum(value for value in values if value is not None) if values and None not in values else None

    def _energy_j(self, samples: Sequence[GpuSample]) -> float | None:
        """From the driver's counter, else the area under the power draw."""
        first, last = samples[0].energy_j, samples[-1].energy_j
        if first is not None and last is not None and last >= first:
            return last - first
        powers = [sample.power_w for sample in samples]
        known = [power for power in powers if power is not None]
        if len(known) < len(powers) or len(powers) < 2:
            return None
        steps = zip(self.times_s, self.times_s[1:], known, known[1:], strict=False)
        return sum((later - earlier) * (a + b) / 2 for earlier, later, a, b in steps)


@dataclass
class Telemetry:
    """Samples GPUs while its context is open; `usage` is there when it is left."""

    nvml: Nvml
    gpus: tuple[Gpu, ...]
    interval_s: float = INTERVAL_S
    usage: GpuUsage | None = field(default=None, init=False)
    rows: list[tuple[float, tuple[GpuSample, ...]]] = field(default_factory=list, init=False)
    lost: str | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self.rows, self.lost = [], None
        self._cpu_s = 0.0
        self._away_from = _client_core()
        self._thread = threading.Thread(target=self._sample, name="gpu-telemetry", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        times = [at for at, _ in self.rows]
        self.usage = GpuUsage(
            seconds=times[-1] - times[0] if times else 0.0,
            readings=tuple(
                (gpu, tuple(samples[place] for _, samples in self.rows))
                for place, gpu in enumerate(self.gpus if self.rows else ())
            ),
            times_s=tuple(at - times[0] for at in times),
            cpu_s=self._cpu_s,
            lost=self.lost,
        )

    def _sample(self) -> None:
        """The thread: a reading at once, one each interval, and a last one when it is told to stop."""
        _leave_core(self._away_from)
        due = time.perf_counter()
        try:
            while True:
                stopping = self._stop.is_set()
                self.rows.append((time.perf_counter(), tuple(self.nvml.sample(gpu) for gpu in self.gpus)))
                if stopping:
                    break
                due = max(due + self.interval_s, time.perf_counter())
                self._stop.wait(due - time.perf_counter())
        except GpuError as error:
            self.lost = str(error)
        finally:
            self._cpu_s = time.thread_time()


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _client_core() -> int | None:
    """The core that the calling thread is bound to; None when it may run on several."""
    allowed = os.sched_getaffinity(0)
    return next(iter(allowed)) if len(allowed) == 1 else None


def _leave_core(core: int | None) -> None:
    """Moves the calling thread (0 is the thread, not the process) to the other cores of this host."""
    everywhere = set(range(os.cpu_count() or 1))
    if core is not None and everywhere - {core}:
        with suppress(OSError):  # a container may forbid the others; then it stays where the client is
            os.sched_setaffinity(0, everywhere - {core})
