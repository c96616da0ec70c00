"""Rules that refuse an impossible serve config before it costs an engine start.

Each rule is one function from knob values and the plan's facts to a reason, or None. Add a rule by adding a function to
RULES; nothing else knows their number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from search_spaces.checkpoint import Checkpoint
from search_spaces.knobs import Values
from search_spaces.release import Release

Device = Literal["cpu", "gpu", "large_gpu"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known before any launch."""

    target: Checkpoint
    draft: Checkpoint | None
    release: Release
    device: Device


Rule = Callable[[Values, Facts], str | None]


def draft_block_holds_k(values: Values, facts: Facts) -> str | None:
    """vLLM does not check K against the trained draft block; acceptance collapses silently (vllm#50012)."""
    k = _k(values)
    limit = facts.draft.max_speculative_tokens if facts.draft else None
    if k and limit is not None and k > limit:
        return f"num_speculative_tokens={k} is too long: the draft block of {limit + 1} allows at most {limit}"
    return None


def token_budget_holds_drafts(values: Values, facts: Facts) -> str | None:
    """(K+1) x max_num_seqs must fit max_num_batched_tokens (vllm PR 53970)."""
    k = _k(values)
    if not k:
        return None
    seqs, budget = _limits(values, facts)
    if (k + 1) * seqs <= budget:
        return None
    effect = "crash" if facts.release.excess_draft_tokens == "crash" else "silently run fewer requests at once"
    return (
        f"(num_speculative_tokens + 1) x max_num_seqs = {(k + 1) * seqs} exceeds max_num_batched_tokens={budget}: "
        f"vLLM {facts.release.version} would {effect}"
    )


def method_needs_draft(values: Values, facts: Facts) -> str | None:
    """DFlash needs a draft model."""
    if values.get("method") == "dflash" and facts.draft is None:
        return "method=dflash needs a draft model; give --draft"
    return None


def method_exists(values: Values, facts: Facts) -> str | None:
    """The release must know the method."""
    method = values.get("method")
    if method not in (None, "none") and method not in facts.release.methods:
        known = ", ".join(facts.release.methods)
        return f"vLLM {facts.release.version} has no speculative method {method!r}; it knows {known}"
    return None


def runner_exists(values: Values, facts: Facts) -> str | None:
    """DFlash2 heads need model runner V2, which needs a GPU."""
    if values.get("method") == "dflash" and facts.draft and facts.draft.needs_v2_runner and facts.device == "cpu":
        return "a DFlash2 draft needs vLLM's model runner V2, which does not run on a CPU"
    return None


def kv_block_size_is_aligned(values: Values, facts: Facts) -> str | None:
    """Attention backends take KV blocks in multiples of a device-specific size."""
    size = values.get("kv_block_size")
    multiple = facts.release.defaults[facts.device].kv_block_multiple
    if isinstance(size, int) and size % multiple:
        return f"kv_block_size={size} is not a multiple of {multiple}, the unit of the attention kernels on this device"
    return None


def budget_holds_one_step(values: Values, facts: Facts) -> str | None:
    """vLLM refuses a token budget below max_num_seqs."""
    seqs, budget = _limits(values, facts)
    if budget < seqs:
        return f"max_num_batched_tokens={budget} is less than max_num_seqs={seqs}"
    return None


RULES: tuple[Rule, ...] = (
    method_exists,
    method_needs_draft,
    runner_exists,
    draft_block_holds_k,
    token_budget_holds_drafts,
    kv_block_size_is_aligned,
    budget_holds_one_step,
)


def refusal(values: Values, facts: Facts) -> str | None:
    """The first rule's reason against these values, or None when they may be launched."""
    return next((reason for rule in RULES if (reason := rule(values, facts))), None)


def _k(values: Values) -> int:
    k = values.get("num_speculative_tokens")
    return k if isinstance(k, int) and values.get("method") not in (None, "none") else 0


def _limits(values: Values, facts: Facts) -> tuple[int, int]:
    defaults = facts.release.defaults[facts.device]
    seqs = values.get("max_num_seqs") or defaults.max_num_seqs
    budget = values.get("max_num_batched_tokens") or defaults.max_num_batched_tokens
    return int(seqs), int(budget)
