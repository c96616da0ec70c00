"""Signatures of a prefix cache that suffers from speculation: what in the measurements shows it, as a sentence.

A function looks at one condition and says what it saw, or None. Names and remedies are in `rules.py`.
"""

import math

from tuner.explain.cache_use import busy_s, recompute_cost_s
from tuner.explain.case import Case, Evidence
from tuner.explain.intervals import ratio
from tuner.explain.observed import CACHING, DROP_DISABLED, Arm
from tuner.explain.records import CacheUse, Figure

# A lost block matters from this share of the prompts on; below, its recomputation is lost in noise.
LOST_SHARE = 0.02
LOST_BLOCKS_PER_REQUEST = 0.2
COLLAPSE = 0.85
WORTH_CACHING_TOKENS = 256
"""Shorter prompts cost less than a step or two to compute: a cache that misses them loses nothing."""


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
        if arm.caching and arm.cached_tokens == 0 and block and prompt and WORTH_CACHING_TOKENS <= prompt < block:
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
