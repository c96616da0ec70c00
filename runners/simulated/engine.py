"""The engine's clock: runs the scheduler's steps in scaled real time and hands tokens to the waiting requests.

A step that takes s seconds by the cost model ends s / time scale seconds after the one before. Deadlines are
absolute, so a timer that fires late shortens the next wait instead of adding up. When the process cannot keep up at
all (more than 0.1 s late) the schedule is moved and the lost time counted in `simulated:lost_time_seconds_total`: a
measurement with lost time says more about the host than about the calibration.
"""

import asyncio
import os
from dataclasses import dataclass, field

from runners.simulated.costs import noise_factor, step_seconds
from runners.simulated.faults import Faults
from runners.simulated.log import log
from runners.simulated.metrics import Finished, Metrics
from runners.simulated.offline import new_pool
from runners.simulated.scheduler import Scheduler
from runners.simulated.sequences import Emission, SequenceState
from runners.simulated.setup import EngineSetup

__all__ = ["Engine", "Stream"]

_LATE_S = 0.1
_CHUNK_MIN_S = 0.0002
"""Waits below this are given up to the event loop at once: its timers are no finer."""


@dataclass(slots=True, eq=False)
class Stream:
    """What one HTTP request sees of its sequence: how many tokens there are and whether they are all."""

    sequence: SequenceState
    max_tokens: int
    number: int
    """Counted from 1 in order of arrival."""
    available: int = 0
    finished: bool = False
    last_chunk_s: float = 0.0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def more(self, seen: int) -> int:
        """Wait until there are more than `seen` tokens or the answer is complete; the number there are.

        Tokens of several steps come together when the reader is slow, as in vLLM's output collector.
        """
        while self.available <= seen and not self.finished:
            self._changed.clear()
            await self._changed.wait()
        return self.available

    def push(self, tokens: int, *, finished: bool) -> None:
        """Add tokens and wake the reader."""
        self.available += tokens
        self.finished |= finished
        self._changed.set()


class Engine:
    """One simulated engine.

    Args:
        setup: what was configured.
        faults: what shall go wrong.
        time_scale: how much faster than real time.
        noise_seed: seed of the calibration's noise.
    """

    def __init__(self, setup: EngineSetup, faults: Faults, *, time_scale: float, noise_seed: int) -> None:
        self._setup, self._faults = setup, faults
        self._scale, self._noise_seed = time_scale, noise_seed
        self._pool = new_pool(setup)
        self.scheduler = Scheduler(setup.limits, self._pool)
        info = {
            "block_size": str(setup.block_tokens),
            "cache_dtype": setup.flags.kv_cache_dtype,
            "enable_prefix_caching": str(setup.flags.enable_prefix_caching),
            "gpu_memory_utilization": str(setup.flags.gpu_memory_utilization),
            "num_gpu_blocks": str(setup.memory.blocks),
        }
        self.metrics = Metrics(setup.flags.served_model_name[0], self.scheduler, self._pool, info)
        self._streams: dict[SequenceState, Stream] = {}
        self._wake = asyncio.Event()
        self._steps = 0
        self._hung = False
        self.requests = 0
        """Requests that arrived, for faults and for /load."""

    @property
    def active(self) -> int:
        """Requests inside the engine."""
        return len(self._streams)

    def submit(self, sequence: SequenceState, max_tokens: int, number: int) -> Stream:
        """Queue a sequence; its tokens come through the stream."""
        sequence.queued_s = asyncio.get_running_loop().time()
        stream = Stream(sequence, max_tokens, number)
        self._streams[sequence] = stream
        self.scheduler.add(sequence)
        self._hung |= bool(self._faults.hang_after) and number >= self._faults.hang_after
        self._wake.set()
        return stream

    def abort(self, stream: Stream) -> None:
        """Drop a request whose client went away."""
        if self._streams.pop(stream.sequence, None) is not None:
            self.scheduler.abort(stream.sequence)
            now_s = asyncio.get_running_loop().time()
            self.metrics.finish(Finished(stream.sequence, "abort", stream.max_tokens, now_s))

    def reset_prefix_cache(self) -> bool:
        """Forget cached prefixes; False while requests hold blocks."""
        return self._faults.reset_lies or self._pool.reset()

    async def run(self) -> None:
        """Step until cancelled."""
        loop = asyncio.get_running_loop()
        clock_s = loop.time()
        while True:
            step = None if self._hung else self.scheduler.plan(loop.time())
            if step is None:
                self._wake.clear()
                await self._wake.wait()
                clock_s = loop.time()
                continue
            shape = self.scheduler.shape(step)
            seconds = step_seconds(self._setup.calibration.costs, shape, graph_tokens=self._setup.graph_tokens)
            seconds *= noise_factor(self._setup.calibration.noise, self._noise_seed, self._steps)
            self._steps += 1
            clock_s = await self._sleep_until(loop, clock_s + seconds / self._scale)
            self.metrics.observe("iteration_tokens_total", shape.verify_tokens + shape.prefill_tokens)
            now_s = loop.time()
            for emission in self.scheduler.commit(step, now_s):
                self._deliver(emission, now_s)

    async def _sleep_until(self, loop: asyncio.AbstractEventLoop, deadline_s: float) -> float:
        delay_s = deadline_s - loop.time()
        await asyncio.sleep(delay_s if delay_s > _CHUNK_MIN_S else 0)
        late_s = loop.time() - deadline_s
        if late_s > _LATE_S:
            self.metrics.lost_time_s.inc(late_s)
            return deadline_s + late_s
        return deadline_s

    def _deliver(self, emission: Emission, now_s: float) -> None:
        sequence = emission.sequence
        stream = self._streams[sequence]
        if stream.available == 0:
            self.metrics.prompt_tokens.inc(len(sequence.prompt))
            self.metrics.prompt_tokens_cached.inc(sequence.cached)
            self.metrics.observe("time_to_first_token_seconds", now_s - sequence.queued_s)
        else:
            self.metrics.observe("inter_token_latency_seconds", now_s - stream.last_chunk_s)
        self.metrics.generation_tokens.inc(emission.tokens)
        stream.last_chunk_s = now_s
        stream.push(emission.tokens, finished=emission.finished)
        if emission.finished:
            del self._streams[sequence]
            self.metrics.finish(Finished(sequence, sequence.answer.finish_reason, stream.max_tokens, now_s))
        elif self._faults.die_after and stream.number >= self._faults.die_after and stream.available > 1:
            log("EngineCore", "ERROR", "EngineCore encountered a fatal error: simulated fault die_after")
            os._exit(1)
