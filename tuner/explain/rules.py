"""What to do: the rules in one table. A rule fires when its signature sees something; its remedy says what helps.

Order is the order of importance in the answer. Each has a test in which its fault is planted in the simulated engine,
and none fires on a clean one. Sources: docs/explain.md.
"""

from dataclasses import dataclass
from typing import Literal

from search_spaces import SearchSpaceError, load_release
from tuner.explain import batch_signatures as batch
from tuner.explain import cache_signatures as cache
from tuner.explain import draft_signatures as draft
from tuner.explain.case import Case, Evidence, Signature
from tuner.explain.records import Finding


@dataclass(frozen=True, slots=True)
class Rule:
    """A name, what it means, how it is seen, and what to do about it."""

    name: str
    title: str
    sees: Signature
    kind: Literal["config", "release", "draft", "load", "engine"]
    remedy: str


def _drop_with_flag(case: Case) -> Evidence | None:
    return cache.block_dropped(case) if _drop_can_be_disabled(case) else None


def _drop_without_flag(case: Case) -> Evidence | None:
    return None if _drop_can_be_disabled(case) else cache.block_dropped(case)


RULES: tuple[Rule, ...] = (
    Rule(
        "outputs changed",
        "speculation changes what the model says",
        draft.outputs_changed,
        "engine",
        "do not serve this configuration; look for the release's bug with this draft, and report it with both logs",
    ),
    Rule(
        "last block dropped",
        "each prefix-cache hit loses its last KV block under speculation",
        _drop_with_flag,
        "config",
        'set "disable_eagle_block_drop": true in --speculative-config, or serve with vLLM 0.33 or newer, which never '
        "drops it for DFlash",
    ),
    Rule(
        "last block dropped, no flag",
        "each prefix-cache hit loses its last KV block under speculation, and this release has no flag against it",
        _drop_without_flag,
        "release",
        "serve with vLLM 0.33 or newer (from 0.30 on there is disable_eagle_block_drop); until then compare with "
        "--no-enable-prefix-caching",
    ),
    Rule(
        "hits lost",
        "speculation loses prefix-cache hits for a reason that is not the block drop",
        cache.hits_lost,
        "engine",
        "look at the engine's log for changed cache settings; compare with --no-enable-prefix-caching, and report it",
    ),
    Rule(
        "acceptance collapses with cache",
        "the draft accepts less when prompts come from the prefix cache",
        cache.acceptance_collapses_with_cache,
        "release",
        "serve with --no-enable-prefix-caching or a newer release: the draft's own KV is missing for cached tokens "
        "(vllm#47930)",
    ),
    Rule(
        "concurrency lowered",
        "the engine runs fewer requests at once under speculation",
        batch.concurrency_lowered,
        "config",
        "raise --max-num-batched-tokens to at least (K + 1) x the requests in flight (and --max-num-seqs to these), or "
        "lower K",
    ),
    Rule(
        "preemptions",
        "requests are thrown out of the KV cache and computed again",
        batch.preemptions,
        "config",
        "give the KV cache more memory (--gpu-memory-utilization, --kv-cache-memory-bytes, a smaller KV dtype), lower "
        "--max-num-seqs, or lower K, which reserves K + 1 slots per request",
    ),
    Rule(
        "requests wait",
        "requests queue under speculation and not without",
        batch.requests_wait,
        "config",
        "the KV cache holds fewer requests beside the draft: give it more memory, or lower K",
    ),
    Rule(
        "graphs do not cover",
        "verification batches are larger than CUDA graphs cover",
        batch.graphs_do_not_cover,
        "config",
        "raise --max-cudagraph-capture-size to (K + 1) x the requests that run at once, or lower K",
    ),
    Rule(
        "prompts shorter than a block",
        "no prompt is long enough to fill a KV block, so the prefix cache never hits",
        cache.prompts_shorter_than_block,
        "config",
        "a smaller --block-size where the model allows it (a hybrid's block shrinks with --mamba-ssm-cache-dtype "
        "bfloat16 and a 2-byte KV dtype); else switch the cache off, it does nothing here",
    ),
    Rule(
        "longer drafts accept less",
        "K is beyond what the draft can do",
        draft.longer_drafts_accept_less,
        "config",
        "keep K at most the draft's trained block minus one (block_size in its config.json); vLLM does not check it",
    ),
    Rule(
        "nothing accepted above temperature 0",
        "sampled requests accept nothing although greedy ones do",
        draft.nothing_accepted_above_zero,
        "engine",
        "the engine's sampler is broken for speculation (on a CPU: vllm#55005; docs/engines.md has the repair); serve "
        "sampled traffic without speculation until it is mended",
    ),
    Rule(
        "acceptance falls with temperature",
        "sampled requests accept much less than greedy ones",
        draft.acceptance_falls_with_temperature,
        "config",
        'try "draft_sample_method": "probabilistic", and a smaller K for this traffic (--temperature lists the values)',
    ),
    Rule(
        "acceptance limits",
        "the draft does not know this traffic",
        draft.acceptance_limits,
        "draft",
        "another draft or the model's MTP head, or fine-tune this one on your prompts: `tune export STUDY --format "
        "draft-training`, then `tune verify --draft NEW`",
    ),
    Rule(
        "speculation never pays",
        "steps with speculation cost more than their tokens are worth, even at light load",
        batch.speculation_never_pays,
        "config",
        "serve without speculation, or with a smaller K if the study has not tried one",
    ),
    Rule(
        "slower above a load",
        "speculation loses above a number of requests in flight",
        batch.slower_above_a_load,
        "load",
        "a smaller K, or none, for the busy hours; a schedule num_speculative_tokens_per_batch_size lowers K by itself "
        "(measure it: the draft still runs); or more replicas, so that each stays below the crossover",
    ),
)
"""All rules, the gravest first."""


def findings(case: Case) -> list[Finding]:
    """What fires for one condition."""
    found = []
    for rule in RULES:
        evidence = rule.sees(case)
        if evidence is not None:
            found.append(
                Finding(
                    rule=rule.name,
                    condition=case.arms[0].condition,
                    title=rule.title,
                    evidence=evidence.sentence,
                    remedy=rule.remedy,
                    kind=rule.kind,
                    trials=evidence.trials,
                    recovery=evidence.recovery,
                )
            )
    return found


def _drop_can_be_disabled(case: Case) -> bool:
    try:
        release, _ = load_release(case.arms[0].version)
    except SearchSpaceError:
        return False
    return release.block_drop.can_disable
