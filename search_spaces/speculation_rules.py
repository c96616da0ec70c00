"""Rules about speculation: methods and what they need, K, its schedule, and the token budget.

Sources are vLLM's own checks where it has them; where it has none, what was seen to happen.
"""

from search_spaces import methods
from search_spaces.facts import Facts
from search_spaces.knobs import unsafe
from search_spaces.limits import batch_limits
from search_spaces.schedules import parse_schedule
from search_spaces.settings import Settings, draft_length, number, speculates


def method_exists(settings: Settings, facts: Facts) -> str | None:
    """The release must know the method."""
    method = settings.get("method")
    if not speculates(settings) or method in facts.release.methods:
        return None
    return methods.why_not(str(method), facts)


def method_has_what_it_needs(settings: Settings, facts: Facts) -> str | None:
    """A draft made for the method, or prediction layers in the model itself."""
    method = settings.get("method")
    return methods.why_not(str(method), facts) if speculates(settings) and method in methods.METHODS else None


def outputs_are_honest(settings: Settings, facts: Facts) -> str | None:
    """Faked acceptance and lossy verification can be no recommendation."""
    del facts
    return next((reason for key, value in settings.items() if (reason := unsafe(key, [value]))), None)


def runner_exists(settings: Settings, facts: Facts) -> str | None:
    """What needs model runner V2 needs a GPU (`config/vllm.py`)."""
    method = settings.get("method")
    if not speculates(settings) or facts.device != "cpu":
        return None
    if method in facts.release.v2_runner_only.methods:
        return f"method={method} needs vLLM's model runner V2, which does not run on a CPU"
    known = methods.METHODS.get(str(method))
    if facts.draft is not None and known is not None and known.source == "draft" and method != "draft_model":
        return facts.release.draft_problem(facts.draft, on_cpu=True)
    return None


def draft_block_holds_k(settings: Settings, facts: Facts) -> str | None:
    """vLLM does not check K against the trained draft block; acceptance collapses silently (vllm#41834)."""
    k, limit = draft_length(settings), methods.longest_k(facts)
    known = methods.METHODS.get(str(settings.get("method")))
    if facts.draft is None or known is None or not known.has_block or limit is None or k <= limit:
        return None
    return (
        f"num_speculative_tokens={k} is too long: the draft block of {facts.draft.draft_block} allows at most {limit}"
    )


def token_budget_holds_drafts(settings: Settings, facts: Facts) -> str | None:
    """(K+1) x max_num_seqs must fit max_num_batched_tokens, where drafts are one pass of their own (vllm PR 53970)."""
    k, known = draft_length(settings), methods.METHODS.get(str(settings.get("method")))
    if not k or known is None or not known.has_block:
        return None
    seqs, budget = batch_limits(settings, facts)
    if (k + 1) * seqs <= budget:
        return None
    effect = "crash" if facts.release.excess_draft_tokens == "crash" else "silently run fewer requests at once"
    return (
        f"(num_speculative_tokens + 1) x max_num_seqs = {(k + 1) * seqs} exceeds max_num_batched_tokens={budget}: "
        f"vLLM {facts.release.version} would {effect}"
    )


def lookup_range_is_a_range(settings: Settings, facts: Facts) -> str | None:
    """vLLM refuses a shortest n-gram longer than the longest (`SpeculativeConfig.__post_init__`)."""
    del facts
    shortest, longest = number(settings, "prompt_lookup_min"), number(settings, "prompt_lookup_max")
    if settings.get("method") == "ngram" and shortest and longest and shortest > longest:
        return f"prompt_lookup_min={shortest} is above prompt_lookup_max={longest}"
    return None


def prediction_layers_divide_k(settings: Settings, facts: Facts) -> str | None:
    """MTP layers are used in turn, so K is a multiple of their number, or not above it (`SpeculativeConfig`)."""
    layers = facts.target.n_predict or 0
    k = draft_length(settings)
    if settings.get("method") == "mtp" and layers and k > layers and k % layers:
        return f"num_speculative_tokens={k} is not a multiple of the model's {layers} prediction layers"
    return None


def schedule_speculates(settings: Settings, facts: Facts) -> str | None:
    """A schedule is clamped to K; one whose every step reaches K, or that is K all over, is K without a schedule."""
    del facts
    text, k = settings.get("num_speculative_tokens_per_batch_size"), draft_length(settings)
    if not isinstance(text, str) or not k:
        return None
    if number(settings, "data_parallel_size") not in (None, 1):
        return f"num_speculative_tokens_per_batch_size={text} does nothing with --data-parallel-size above 1"
    if all(step_k >= k for _, _, step_k in parse_schedule(text)):
        return f"num_speculative_tokens_per_batch_size={text} changes nothing at num_speculative_tokens={k}"
    return None


def scheduling_fits_method(settings: Settings, facts: Facts) -> str | None:
    """Asynchronous scheduling knows some methods only, and no unpadded drafts (`VllmConfig.__post_init__`)."""
    del facts
    method = settings.get("method")
    known = methods.METHODS.get(str(method))
    if settings.get("async_scheduling") is not True or known is None:
        return None
    if not known.runs_async:
        return f"async_scheduling=True does not work with method={method}"
    if settings.get("disable_padded_drafter_batch") is True:
        return "async_scheduling=True does not work with disable_padded_drafter_batch=True"
    return None


def greedy_reduction_is_greedy(settings: Settings, facts: Facts) -> str | None:
    """A draft's argmax alone is no distribution to sample from (`use_local_argmax_reduction`)."""
    del facts
    if settings.get("use_local_argmax_reduction") is not True:
        return None
    for name in ("draft_sample_method", "enable_adaptive_verification"):
        if settings.get(name) in ("probabilistic", True):
            return f"use_local_argmax_reduction=True does not work with {name}={settings[name]}"
    return None
