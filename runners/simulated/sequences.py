"""What the scheduler works on: limits, sequences, planned steps and what comes out of them. Data only."""

from collections.abc import Callable
from dataclasses import dataclass, field

from runners.simulated.text import Answer

__all__ = ["Counts", "Emission", "Limits", "SequenceState", "Step"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What the configuration allows in one step."""

    max_sequences: int
    max_step_tokens: int
    long_prefill_tokens: int = 0
    """Largest prefill chunk of one sequence in one step; 0 means no limit of its own."""
    method: str | None = None
    draft_tokens: int = 0
    """K; 0 without speculation."""
    schedule: tuple[tuple[int, int, int], ...] = ()
    """num_speculative_tokens_per_batch_size: (first, last, K), batch sizes inclusive."""

    def drafts(self, batch: int) -> int:
        """K for a batch of decoding sequences; gaps of the schedule carry the value before them."""
        drafts = self.draft_tokens
        for first, _, value in self.schedule:
            if batch >= first:
                drafts = min(value, self.draft_tokens)
        return drafts


@dataclass(slots=True, eq=False)
class SequenceState:
    """One request inside the engine."""

    prompt: tuple[int, ...]
    answer: Answer
    seed: int
    salt: int
    curve: tuple[float, ...] = ()
    """Conditional acceptance of positions 1..K, once admitted."""
    context_half_tokens: int = 0
    curve_for: Callable[[float], tuple[float, ...]] | None = None
    """Conditional acceptance of positions 1..K, given the cached share of the prompt; asked at the first admission."""
    emitted: int = 0
    computed: int = 0
    cached: int = 0
    """Prompt tokens that came from the prefix cache at the first admission."""
    preemptions: int = 0
    aborted: bool = False
    blocks: list[int] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    entered: int = 0
    queued_s: float = 0.0
    scheduled_s: float | None = None
    first_token_s: float | None = None

    @property
    def length(self) -> int:
        """Tokens known so far: prompt and answer."""
        return len(self.prompt) + self.emitted

    @property
    def decoding(self) -> bool:
        """Whether all but the newest token are in the KV cache, so that the next step verifies drafts."""
        return self.emitted > 0 and self.computed >= self.length - 1


@dataclass(frozen=True, slots=True)
class Emission:
    """Tokens that one sequence got in a step; `finished` when they were its last."""

    sequence: SequenceState
    tokens: int
    finished: bool


@dataclass(slots=True)
class Step:
    """A planned step: which sequences run, each with its number of query tokens."""

    decoding: list[tuple[SequenceState, int]]
    """Query tokens: the newest token and its drafts."""
    prefilling: list[tuple[SequenceState, int]]


@dataclass(slots=True)
class Counts:
    """Counters that only the scheduler can keep; the engine reads them into its metrics."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_at: list[int] = field(default_factory=list)
    preemptions: int = 0
    cache_queries: int = 0
    cache_hits: int = 0
