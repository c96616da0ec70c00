"""The scheduler: continuous batching in steps, in simulated time and without any I/O.

As in vLLM V1: every step first serves the running sequences in order of arrival (1 + K query tokens for a decoding
one, as much of the prompt as the token budget allows for a prefilling one), then admits waiting ones while
max_num_seqs, the budget and the KV blocks allow. When blocks run out the youngest running sequence is preempted: it
loses its blocks and starts again at the head of the queue. `plan` decides, `shape` describes the step for the cost
model, `commit` applies it and says which tokens came out; the caller (`engine`, `offline`) lets time pass in
between. Time stamps are the caller's.
"""

from collections import deque

from runners.simulated.acceptance import accepted_tokens
from runners.simulated.costs import BatchShape
from runners.simulated.prefix_cache import BlockPool, chain_hashes
from runners.simulated.sequences import Counts, Emission, Limits, SequenceState, Step

__all__ = ["Scheduler"]


class Scheduler:
    """Decides what each step computes and what comes out of it."""

    def __init__(self, limits: Limits, pool: BlockPool) -> None:
        self._limits = limits
        self._pool = pool
        self.running: list[SequenceState] = []
        self.waiting: deque[SequenceState] = deque()
        self.counts = Counts(accepted_at=[0] * limits.draft_tokens)

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.running or self.waiting)

    def add(self, sequence: SequenceState) -> None:
        """Queue a sequence."""
        sequence.hashes = chain_hashes(sequence.prompt, self._pool.block_tokens, previous=sequence.salt)
        self.waiting.append(sequence)

    def abort(self, sequence: SequenceState) -> None:
        """Drop a sequence wherever it is; harmless when it has finished."""
        sequence.aborted = True
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self._pool.release(sequence.blocks)
        sequence.blocks = []

    def plan(self, now_s: float) -> Step | None:
        """Choose the work of the next step, or None when nothing can run."""
        budget = self._limits.max_step_tokens
        drafts = self._limits.drafts(sum(sequence.decoding for sequence in self.running))
        step = Step([], [])
        preempted = False
        index = 0
        # Preemption only ever shortens the list behind `index`: what was scheduled before stays scheduled.
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            index += 1
            decoding = sequence.decoding
            tokens = min(1 + drafts if decoding else self._chunk(sequence), budget)
            preempted |= self._make_room(sequence, tokens)
            if not sequence.blocks:
                break
            budget -= tokens
            (step.decoding if decoding else step.prefilling).append((sequence, tokens))
        if not preempted:
            self._admit(budget, step.prefilling, now_s)
        return step if step.decoding or step.prefilling else None

    def shape(self, step: Step) -> BatchShape:
        """The planned step as the cost model sees it."""
        return BatchShape(
            decoding=len(step.decoding),
            verify_tokens=sum(tokens for _, tokens in step.decoding),
            prefill_tokens=sum(tokens for _, tokens in step.prefilling),
            context_tokens=sum(sequence.length for sequence, _ in step.decoding),
            # Under a schedule the block drafter runs even where K is 0; only verification is saved.
            method=self._limits.method if step.decoding else None,
            draft_tokens=self._limits.draft_tokens,
        )

    def _chunk(self, sequence: SequenceState) -> int:
        tokens = sequence.length - sequence.computed
        return min(tokens, self._limits.long_prefill_tokens or tokens)

    def _admit(self, budget: int, prefilling: list[tuple[SequenceState, int]], now_s: float) -> None:
        while self.waiting and len(self.running) < self._limits.max_sequences and budget > 0:
            sequence = self.waiting[0]
            matched = self._pool.match(sequence.hashes, sequence.length)
            computed = len(matched) * self._pool.block_tokens
            tokens = min(sequence.length - computed, self._limits.long_prefill_tokens or budget, budget)
            needed = self._blocks_for(computed + tokens + self._lookahead)
            # A sequence is admitted when all of its known tokens fit (vLLM's scheduler_reserve_full_isl).
            if self._pool.cost(matched, self._blocks_for(sequence.length + self._lookahead)) > self._pool.free:
                return
            self.waiting.popleft()
            self.running.append(sequence)
            self._pool.take(matched)
            sequence.blocks = [*matched, *self._pool.allocate(max(0, needed - len(matched)))]
            sequence.computed, sequence.entered = computed, len(matched)
            self._note_admission(sequence, computed, now_s)
            self._enter_complete(sequence, computed + tokens)
            prefilling.append((sequence, tokens))
            budget -= tokens

    def _note_admission(self, sequence: SequenceState, computed: int, now_s: float) -> None:
        if sequence.scheduled_s is not None:
            return
        sequence.scheduled_s = max(now_s, sequence.queued_s)
        sequence.cached = computed
        if self._pool.caching:
            self.counts.cache_queries += sequence.length
            self.counts.cache_hits += computed
        if sequence.curve_for is not None:
            sequence.curve = sequence.curve_for(computed / max(1, len(sequence.prompt)))

    @property
    def _lookahead(self) -> int:
        return self._limits.draft_tokens + 1 if self._limits.draft_tokens else 0

    def _blocks_for(self, tokens: int) -> int:
        # Lookahead may reach beyond max_model_len, which is all that the cache is guaranteed to hold.
        return min(-(-tokens // self._pool.block_tokens), self._pool.usable)

    def _make_room(self, sequence: SequenceState, tokens: int) -> bool:
        """Grow a running sequence, preempting from the young end; True when something was preempted."""
        preempted = False
        missing = self._blocks_for(sequence.computed + tokens + self._lookahead) - len(sequence.blocks)
        while missing > self._pool.free:
            preempted = True
            victim = self.running.pop()
            self._preempt(victim)
            if victim is sequence:
                return True
        if missing > 0:
            sequence.blocks.extend(self._pool.allocate(missing))
        self._enter_complete(sequence, min(sequence.computed + tokens, sequence.length))
        return preempted

    def _preempt(self, victim: SequenceState) -> None:
        self._pool.release(victim.blocks)
        victim.blocks = []
        victim.computed = victim.entered = 0
        victim.preemptions += 1
        self.counts.preemptions += 1
        self.waiting.appendleft(victim)

    def _enter_complete(self, sequence: SequenceState, tokens: int) -> None:
        """Enter the blocks that `tokens` computed tokens complete; vLLM does so when it schedules them."""
        size = self._pool.block_tokens
        complete = min(tokens, sequence.length) // size
        while len(sequence.hashes) < complete:
            begin = len(sequence.hashes) * size
            block = [self._token(sequence, index) for index in range(begin, begin + size)]
            previous = sequence.hashes[-1] if sequence.hashes else sequence.salt
            sequence.hashes += chain_hashes(block, size, previous=previous)
        while sequence.entered < complete:
            self._pool.enter(sequence.blocks[sequence.entered], sequence.hashes[sequence.entered])
            sequence.entered += 1

    @staticmethod
    def _token(sequence: SequenceState, index: int) -> int:
        prompt = len(sequence.prompt)
        return sequence.prompt[index] if index < prompt else sequence.answer.token(index - prompt)

    def commit(self, step: Step, now_s: float) -> list[Emission]:
        """Apply a planned step that ended at `now_s`; sequences aborted meanwhile get nothing."""
        emissions = []
        for sequence, tokens in step.prefilling:
            if sequence.aborted:
                continue
            sequence.computed += tokens
            if sequence.computed >= sequence.length:
                emissions.append(self._emit(sequence, 1, now_s))
        for sequence, tokens in step.decoding:
            if sequence.aborted:
                continue
            accepted = self._verify(sequence, tokens - 1)
            sequence.computed += accepted + 1
            emissions.append(self._emit(sequence, accepted + 1, now_s))
        return emissions

    def _verify(self, sequence: SequenceState, drafts: int) -> int:
        if drafts == 0:
            return 0
        factor = 1.0
        if sequence.context_half_tokens:
            factor = 0.5 ** (sequence.length / sequence.context_half_tokens)
        accepted = accepted_tokens(
            sequence.curve, seed=sequence.seed, position=sequence.emitted, drafts=drafts, context_factor=factor
        )
        self.counts.drafts += 1
        self.counts.draft_tokens += drafts
        self.counts.accepted_tokens += accepted
        for index in range(accepted):
            self.counts.accepted_at[index] += 1
        return accepted

    def _emit(self, sequence: SequenceState, tokens: int, now_s: float) -> Emission:
        if sequence.first_token_s is None:
            sequence.first_token_s = now_s
        tokens = min(tokens, sequence.answer.tokens - sequence.emitted)
        sequence.emitted += tokens
        finished = sequence.emitted >= sequence.answer.tokens
        if finished:
            self.running.remove(sequence)
            self._pool.release(sequence.blocks)
            sequence.blocks = []
        return Emission(sequence, tokens, finished)
