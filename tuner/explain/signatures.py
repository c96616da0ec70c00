"""Signatures: what in the measurements shows that something is wrong, one function each, the figures as a sentence.

A function looks at one condition and says what it saw, or None. Names and remedies are in `rules.py`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tuner.explain.cache_use import busy_s, recompute_cost_s
from tuner.explain.intervals import ratio
from tuner.explain.observed import CACHING, DROP_DISABLED, Arm, without_speculation
from tuner.explain.records import CacheUse, Figure, LoadCurve, SpeedPoint

# A lost block matters from this share of the prompts on; below, its recomputation is lost in noise.
LOST_SHARE = 0.02
LOST_BLOCKS_PER_REQUEST = 0.2
COLLAPSE = 0.85
SHORT_LENGTH = 2.2
LITTLE_GAIN = 1.15
TEMPERATURE_LOSS = 0.75
NO_LENGTH = 1.2
WAITING_SHARE = 0.1
PREEMPTED_SHARE = 0.05
GRAPH_JUMP = 1.25
DEFAULT_CAPTURE_TOKENS = 512
"""vLLM's limit of max_cudagraph_capture_size (vllm/config/vllm.py, 0.28 to 0.33; 1,024 on SM100)."""


@dataclass(frozen=True)
class Case:
    """One condition with everything that was concluded about it.

    Attributes:
        arms: its arms.
        profile_arms: those of all conditions of its profile.
        cache: its cache use.
        speed: its points of the speed models.
        curve: the profile's load curve, if there is one.
        confidence: level of intervals.
    """

    arms: Sequence[Arm]
    profile_arms: Sequence[Arm]
    cache: Sequence[CacheUse]
    speed: Sequence[SpeedPoint]
    curve: LoadCurve | None
    confidence: float

    @property
    def speculating(self) -> list[Arm]:
        """Arms that speculate."""
        return [arm for arm in self.arms if arm.method is not None]

    def plain(self, arm: Arm) -> Arm | None:
        """The arm's twin without speculation."""
        return without_speculation(arm, self.arms)

    @property
    def is_lightest(self) -> bool:
        """Whether it is the smallest load of its profile at this temperature."""
        loads = [a.concurrency for a in self.profile_arms if a.temperature == self.arms[0].temperature]
        return self.arms[0].concurrency <= min(loads)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a signature saw."""

    sentence: str
    trials: tuple[int, ...]
    recovery: Figure | None = None


Signature = Callable[[Case], Evidence | None]


def block_dropped(case: Case) -> Evidence | None:
    """Every hit under speculation is short by a block, and release and flags say that it is dropped."""
    hit = [row for row in case.cache if row.drops and _lost_share(row, case) >= LOST_SHARE and _in_blocks(row)]
    row = max(hit, key=lambda row: row.ideal_tokens - row.cached_tokens, default=None)
    if row is None:
        return None
    arm = next(arm for arm in case.arms if row.trial in arm.trials)
    lost = row.ideal_tokens - row.cached_tokens
    blocks = (
        f"{lost / row.kv_block_tokens:.0f} KV blocks of {row.kv_block_tokens} tokens" if row.kv_block_tokens else ""
    )
    none_left = ", so that nothing is left of any hit" if row.cached_tokens == 0 else ""
    recovery = recovery_without_drop(arm, lost, case)
    expected = f"; without the drop it should run {recovery.value:.2f}x as fast" if recovery else ""
    return Evidence(
        f"{row.label} took {row.cached_tokens:,.0f} prompt tokens from the cache where {row.ideal_label} took "
        f"{row.ideal_tokens:,.0f}: {lost:,.0f} tokens{f', {blocks}' if blocks else ''} in {row.requests} requests are "
        f"computed again{none_left}{expected}",
        arm.trials,
        recovery,
    )


def recovery_without_drop(arm: Arm, lost_tokens: float, case: Case) -> Figure | None:
    """Predicted gain in throughput: the lost tokens are no longer computed, everything else stays."""
    cost_s, requests = recompute_cost_s(case.arms), arm.metrics.get("requests")
    if cost_s is None or not requests or busy_s(arm) is None:
        return None
    width = arm.in_flight or 1.0
    saved_s = lost_tokens / requests * cost_s * width  # of each request's E2E
    values = arm.block_values("e2e_mean_s") or {0: arm.metrics["e2e_mean_s"]}
    logs = [math.log(e2e_s / (e2e_s - saved_s)) for e2e_s in values.values() if e2e_s > saved_s]
    return ratio(logs, case.confidence) if logs else None


def hits_lost(case: Case) -> Evidence | None:
    """Speculation loses hits although release and flags say that no block is dropped."""
    hit = [row for row in case.cache if row.drops is False and _lost_share(row, case) >= LOST_SHARE]
    row = max(hit, key=lambda row: row.ideal_tokens - row.cached_tokens, default=None)
    if row is None:
        return None
    return Evidence(
        f"{row.label} took {row.cached_tokens:,.0f} prompt tokens from the cache, {row.ideal_label} took "
        f"{row.ideal_tokens:,.0f}, and this release drops no block with these flags",
        (row.trial,),
    )


def prompts_shorter_than_block(case: Case) -> Evidence | None:
    """The cache is on and never hits, because no prompt fills a block."""
    for arm in case.arms:
        block, prompt = arm.metrics.get("kv_block_tokens"), _mean_prompt(arm)
        if arm.caching and arm.cached_tokens == 0 and block and prompt and prompt < block:
            return Evidence(
                f"no prompt token came from the cache in {arm.label}: a KV block holds {block:.0f} tokens, the mean "
                f"prompt {prompt:.0f}",
                arm.trials,
            )
    return None


def acceptance_collapses_with_cache(case: Case) -> Evidence | None:
    """The same draft accepts less once prompts come from the cache."""
    for on in case.speculating:
        if not on.caching or not on.cached_tokens:
            continue
        own = {n: v for n, v in on.factors.items() if n not in (CACHING, DROP_DISABLED)}
        off = next((a for a in case.speculating if not a.caching and _without(a, CACHING, DROP_DISABLED) == own), None)
        lengths = [arm.metrics.get("acceptance_length") for arm in (on, off)] if off else []
        if off and len(lengths) == 2 and lengths[0] and lengths[1] and lengths[0] < COLLAPSE * lengths[1]:
            return Evidence(
                f"{on.label} accepts {lengths[0]:.2f} tokens per step with the prefix cache and {lengths[1]:.2f} "
                "without: the draft lacks context for what came from the cache",
                (*on.trials, *off.trials),
            )
    return None


def concurrency_lowered(case: Case) -> Evidence | None:
    """Requests wait under speculation because the engine allows fewer sequences at once."""
    for arm in case.speculating:
        limit = _sequence_limit(arm)
        if limit is None or limit >= arm.concurrency or not _waits(arm, case):
            continue
        return Evidence(
            f"{arm.label} runs at most {limit} requests at once ({arm.running:.1f} on average, "
            f"{arm.metrics.get('waiting_mean', 0):.1f} waiting) where {arm.concurrency:.0f} were in flight",
            arm.trials,
        )
    return None


def requests_wait(case: Case) -> Evidence | None:
    """Requests wait under speculation without a limit on sequences: the KV cache holds fewer of them."""
    for arm in case.speculating:
        limit = _sequence_limit(arm)
        if (limit is None or limit >= arm.concurrency) and not _preempted(arm) and _waits(arm, case):
            return Evidence(
                f"in {arm.label} {arm.metrics.get('waiting_mean', 0):.1f} requests wait on average and "
                f"{arm.running:.1f} run, without speculation they do not wait",
                arm.trials,
            )
    return None


def graphs_do_not_cover(case: Case) -> Evidence | None:
    """A step's query tokens exceed what CUDA graphs cover, and the step is slower than smaller ones predict."""
    covered = [p for p in case.speed if _graph_tokens(p, case) is not None and not _exceeds(p, case)]
    for point in case.speed:
        if not _exceeds(point, case):
            continue
        smaller = max((p for p in covered if p.k < point.k), key=lambda p: p.k, default=None)
        if smaller is not None:
            slope = max(0.0, smaller.step_s - smaller.target_step_s) / smaller.k
            expected_s = point.target_step_s + slope * point.k
        else:
            expected_s = point.target_step_s * 1.2
        if point.step_s > GRAPH_JUMP * expected_s:
            limit = _graph_tokens(point, case)
            return Evidence(
                f"a step of K={point.k} has {point.batch * (point.k + 1):.0f} query tokens, graphs cover {limit}: it "
                f"takes {point.step_s * 1000:.1f} ms where {expected_s * 1000:.1f} ms were to be expected",
                (point.trial,),
            )
    return None


def preemptions(case: Case) -> Evidence | None:
    """Requests are thrown out of the KV cache and computed again."""
    hit = [arm for arm in case.arms if _preempted(arm)]
    arm = max(hit, key=lambda arm: arm.metrics["preemptions"], default=None)
    if arm is None:
        return None
    plain = case.plain(arm) if arm.method else None
    beside = f", {plain.metrics.get('preemptions', 0):.0f} without speculation" if plain else ""
    return Evidence(
        f"{arm.metrics['preemptions']:.0f} preemptions in {arm.metrics.get('requests', 0):.0f} requests of "
        f"{arm.label}{beside}",
        arm.trials,
    )


def longer_drafts_accept_less(case: Case) -> Evidence | None:
    """Acceptance length falls with K: K exceeds what the draft was trained for."""
    rows = sorted((a for a in case.speculating if a.metrics.get("acceptance_length")), key=lambda arm: arm.k)
    for short in rows:
        for long in reversed(rows):
            lengths = short.metrics["acceptance_length"], long.metrics["acceptance_length"]
            same = short.method == long.method and short.caching == long.caching
            if same and short.k < long.k and lengths[1] < 0.9 * lengths[0]:
                return Evidence(
                    f"K={long.k} yields {lengths[1]:.2f} tokens per step, K={short.k} {lengths[0]:.2f}: a longer "
                    "draft should never yield less",
                    (*short.trials, *long.trials),
                )
    return None


def acceptance_limits(case: Case) -> Evidence | None:
    """At the lightest load the best speculation gains little, and acceptance is what holds it back."""
    points = [point for point in case.speed if point.cost_ratio < 1]
    best = max(points, key=lambda point: point.measured.value, default=None)
    if best is None or not case.is_lightest:
        return None
    if best.measured.value >= LITTLE_GAIN or best.acceptance_length >= SHORT_LENGTH:
        return None
    wanted = min(best.k + 1.0, 2 * best.acceptance_length)
    return Evidence(
        f"the best speculation (K={best.k}) yields {best.acceptance_length:.2f} tokens per step and runs "
        f"{best.measured.value:.2f}x as fast; with {wanted:.2f} tokens per step the same costs would give "
        f"{best.predicted * wanted / best.acceptance_length:.2f}x",
        (best.trial,),
    )


def speculation_never_pays(case: Case) -> Evidence | None:
    """At the lightest load speculation is slower although enough is accepted: its steps cost too much."""
    best = max(case.speed, key=lambda point: point.measured.value, default=None)
    if best is None or not case.is_lightest or best.acceptance_length < SHORT_LENGTH or best.measured.value >= 1:
        return None
    return Evidence(
        f"the best speculation (K={best.k}) runs {best.measured.value:.2f}x as fast: a step takes "
        f"{best.step_s * 1000:.1f} ms instead of {best.target_step_s * 1000:.1f} ms for {best.acceptance_length:.2f} "
        "tokens",
        (best.trial,),
    )


def slower_above_a_load(case: Case) -> Evidence | None:
    """Speculation wins at light load and loses above a crossover."""
    curve = case.curve
    if curve is None or curve.speculation_wins != "below" or curve.crossover is None or not case.is_lightest:
        return None
    trials = {trial for series in curve.series if series.speculates for trial in series.trials}
    return Evidence(
        f"the best speculation is faster below about {curve.crossover:.0f} requests in flight and slower above: "
        "verifying K drafts of every request fills the batch",
        tuple(sorted(trials)),
    )


def acceptance_falls_with_temperature(case: Case) -> Evidence | None:
    """The same configuration accepts much less at a higher temperature."""
    return _temperature_loss(case, lambda length: length >= NO_LENGTH)


def nothing_accepted_above_zero(case: Case) -> Evidence | None:
    """Greedy drafts are accepted and sampled ones are not at all: the sampler is broken, not the draft."""
    return _temperature_loss(case, lambda length: length < NO_LENGTH)


def outputs_changed(case: Case) -> Evidence | None:
    """Greedy outputs under speculation are not those of the engine without it."""
    plain = [arm for arm in case.arms if arm.method is None and _outputs(arm)]
    if not plain:
        return None
    usual = max((_identical(one, plain[0]) for one in plain[1:]), default=1.0)
    for arm in case.speculating:
        share = _identical(arm, plain[0]) if _outputs(arm) else 1.0
        if share < 0.5 * usual:
            return Evidence(
                f"{share:.0%} of the greedy outputs of {arm.label} are those without speculation, "
                f"which repeats {usual:.0%} of its own",
                (*arm.trials, *plain[0].trials),
            )
    return None


def _temperature_loss(case: Case, judged: Callable[[float], bool]) -> Evidence | None:
    for hot in case.speculating:
        if hot.temperature is None:
            continue
        cold = [
            arm
            for arm in case.profile_arms
            if arm.config.id == hot.config.id
            and arm.temperature is not None
            and arm.temperature < hot.temperature
            and str(arm.load) == str(hot.load)
        ]
        lengths = [arm.metrics.get("acceptance_length", 0.0) for arm in cold]
        length = hot.metrics.get("acceptance_length")
        if length and lengths and length < TEMPERATURE_LOSS * max(lengths) and judged(length):
            best = cold[lengths.index(max(lengths))]
            return Evidence(
                f"{hot.label} yields {length:.2f} tokens per step at temperature {hot.temperature:g} and "
                f"{max(lengths):.2f} at {best.temperature:g}",
                tuple(dict.fromkeys((*hot.trials, *best.trials))),
            )
    return None


def _lost_share(row: CacheUse, case: Case) -> float:
    arm = next(arm for arm in case.arms if row.trial in arm.trials)
    prompts = arm.metrics.get("prompt_tokens") or math.inf
    return (row.ideal_tokens - row.cached_tokens) / prompts


def _in_blocks(row: CacheUse) -> bool:
    """Whether about one block a request is missing; unknown blocks are believed."""
    per_request = row.lost_blocks_per_request
    return per_request is None or per_request >= LOST_BLOCKS_PER_REQUEST


def _mean_prompt(arm: Arm) -> float | None:
    tokens, requests = arm.metrics.get("prompt_tokens"), arm.metrics.get("requests")
    return tokens / requests if tokens and requests else None


def _without(arm: Arm, *names: str) -> dict[str, object]:
    return {name: value for name, value in arm.factors.items() if name not in names}


def _sequence_limit(arm: Arm) -> int | None:
    """Sequences at once: as the engine says, else what its flags say, which 0.33 divides by K + 1."""
    limits = [arm.flags.get("max-num-active-seqs"), arm.flags.get("max-num-seqs")]
    budget = arm.flags.get("max-num-batched-tokens")
    if isinstance(budget, int) and arm.method in ("dflash", "dspark") and not _before_33(arm):
        limits.append(budget // (arm.k + 1))
    known = [limit for limit in limits if isinstance(limit, int) and limit > 0]
    return min(known, default=None)


def _before_33(arm: Arm) -> bool:
    parts = arm.version.split(".")
    return len(parts) > 1 and parts[0] == "0" and parts[1].isdigit() and int(parts[1]) < 33


def _waits(arm: Arm, case: Case) -> bool:
    """Whether requests queue here and do not without speculation."""
    plain = case.plain(arm)
    limit = WAITING_SHARE * arm.concurrency
    waits = arm.metrics.get("waiting_mean", 0.0) > limit
    return waits and plain is not None and plain.metrics.get("waiting_mean", 0.0) <= limit


def _preempted(arm: Arm) -> bool:
    return arm.metrics.get("preemptions", 0.0) > PREEMPTED_SHARE * arm.metrics.get("requests", math.inf)


def _graph_tokens(point: SpeedPoint, case: Case) -> int | None:
    """Query tokens that graphs cover; None where there are none (eager, CPU)."""
    arm = next(arm for arm in case.arms if point.trial in arm.trials)
    if arm.flags.get("enforce-eager") is True or arm.version.endswith("+cpu"):
        return None
    size = arm.flags.get("max-cudagraph-capture-size")
    return size if isinstance(size, int) else DEFAULT_CAPTURE_TOKENS


def _exceeds(point: SpeedPoint, case: Case) -> bool:
    limit = _graph_tokens(point, case)
    return limit is not None and point.batch * (point.k + 1) > limit


def _outputs(arm: Arm) -> dict[str, str]:
    return {k: v for m in arm.measurements for k, v in m.greedy_outputs.items()}


def _identical(one: Arm, other: Arm) -> float:
    ours, theirs = _outputs(one), _outputs(other)
    shared: Iterable[str] = [key for key in ours if key in theirs]
    same = [ours[key] == theirs[key] for key in shared]
    return sum(same) / len(same) if same else 1.0
