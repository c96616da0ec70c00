"""The same engine without HTTP and without waiting: a closed loop in simulated time.

For tests of the model and for tables of many configurations. Uses the very scheduler, costs and requests of the
server, so a table made here and a measurement over HTTP differ only by what the host adds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runners.simulated.costs import noise_factor, step_seconds
from runners.simulated.prefix_cache import BlockPool
from runners.simulated.requests import RequestReader
from runners.simulated.scheduler import Scheduler
from runners.simulated.sequences import Counts, SequenceState
from runners.simulated.setup import EngineSetup

__all__ = ["OfflineResult", "new_pool", "simulate_closed_loop"]


@dataclass(frozen=True, slots=True)
class OfflineResult:
    """What a closed loop measured; times are simulated seconds, `sequences` in the order of the bodies."""

    duration_s: float
    output_tokens: int
    sequences: tuple[SequenceState, ...]
    end_s: tuple[float, ...]
    counts: Counts
    mean_running: float

    @property
    def output_tok_s(self) -> float:
        """Output tokens per simulated second."""
        return self.output_tokens / self.duration_s

    @property
    def acceptance_length(self) -> float | None:
        """1 + accepted / drafts, None without speculation."""
        return 1 + self.counts.accepted_tokens / self.counts.drafts if self.counts.drafts else None


def new_pool(setup: EngineSetup) -> BlockPool:
    """The KV blocks of a configuration."""
    return BlockPool(
        setup.memory.blocks,
        setup.block_tokens,
        caching=setup.flags.enable_prefix_caching,
        drop_last=setup.drop_last_block,
    )


def simulate_closed_loop(
    setup: EngineSetup, bodies: Sequence[Mapping[str, Any]], concurrency: int, *, noise_seed: int = 0
) -> OfflineResult:
    """Send bodies, in order, so that `concurrency` of them are always in the engine.

    Args:
        setup: the configuration.
        bodies: OpenAI request bodies; those with `messages` go to chat completions.
        concurrency: how many are in flight.
        noise_seed: seed of the calibration's noise.
    """
    reader = RequestReader(setup, wrong_output=False)
    sequences = [reader.read(body, chat="messages" in body).sequence for body in bodies]
    scheduler = Scheduler(setup.limits, new_pool(setup))
    end_s: dict[SequenceState, float] = {}
    costs, noise = setup.calibration.costs, setup.calibration.noise
    now_s, sent, steps, running_s = 0.0, 0, 0, 0.0
    while len(end_s) < len(sequences):
        while sent < len(sequences) and sent - len(end_s) < concurrency:
            sequences[sent].queued_s = now_s
            scheduler.add(sequences[sent])
            sent += 1
        step = scheduler.plan(now_s)
        if step is None:
            msg = f"the scheduler is stuck with {len(scheduler.waiting)} waiting and {len(scheduler.running)} running"
            raise RuntimeError(msg)
        seconds = step_seconds(costs, scheduler.shape(step), graph_tokens=setup.graph_tokens)
        seconds *= noise_factor(noise, noise_seed, steps)
        running_s += seconds * len(scheduler.running)
        now_s, steps = now_s + seconds, steps + 1
        for emission in scheduler.commit(step, now_s):
            if emission.finished:
                end_s[emission.sequence] = now_s
    return OfflineResult(
        duration_s=now_s,
        output_tokens=sum(sequence.emitted for sequence in sequences),
        sequences=tuple(sequences),
        end_s=tuple(end_s[sequence] for sequence in sequences),
        counts=scheduler.counts,
        mean_running=running_s / now_s,
    )
