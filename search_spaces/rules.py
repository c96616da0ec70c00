"""Rules that refuse an impossible serve config before it costs an engine start.

Each rule is one function from settings (see settings.py for their names) and the plan's facts to a reason, or None. Add
a rule by adding a function here or in one of the modules for speculation, attention and memory, and an entry in RULES;
nothing else knows their number. A rule that lacks a fact refuses nothing.
"""

from collections.abc import Callable

from search_spaces import attention_rules as attention
from search_spaces import memory_rules as memory
from search_spaces import speculation_rules as speculation
from search_spaces.facts import Device, Facts, Gpu
from search_spaces.limits import batch_limits, longest_sequence
from search_spaces.settings import Settings, number

__all__ = ["RULES", "Device", "Facts", "Gpu", "Rule", "refusal"]

Rule = Callable[[Settings, Facts], str | None]


def budget_holds_one_step(settings: Settings, facts: Facts) -> str | None:
    """vLLM refuses a token budget below max_num_seqs (`SchedulerConfig.verify_max_model_len`)."""
    seqs, budget = batch_limits(settings, facts)
    if budget < seqs:
        return f"max_num_batched_tokens={budget} is less than max_num_seqs={seqs}"
    return None


def whole_prompts_fit_the_budget(settings: Settings, facts: Facts) -> str | None:
    """Without chunked prefill a prompt must fit one step (`SchedulerConfig.verify_max_model_len`)."""
    longest = longest_sequence(settings, facts)
    if settings.get("chunked_prefill") is not False or longest is None:
        return None
    _, budget = batch_limits(settings, facts)
    if budget < longest:
        return f"chunked_prefill=False needs max_num_batched_tokens of at least max_model_len={longest}; it is {budget}"
    return None


def prefill_threshold_is_below_the_longest(settings: Settings, facts: Facts) -> str | None:
    """vLLM refuses a threshold above max_model_len (`SchedulerConfig.verify_max_model_len`)."""
    threshold, longest = number(settings, "long_prefill_token_threshold"), longest_sequence(settings, facts)
    if threshold and longest and threshold > longest:
        return f"long_prefill_token_threshold={threshold} is above max_model_len={longest}"
    return None


def prefill_threshold_changes_a_step(settings: Settings, facts: Facts) -> str | None:
    """A threshold of a whole step's budget or more never shortens a prefill: the same engine as without it."""
    threshold = number(settings, "long_prefill_token_threshold")
    _, budget = batch_limits(settings, facts)
    if threshold and threshold >= budget:
        return f"long_prefill_token_threshold={threshold} changes nothing: a step takes {budget} tokens at most"
    return None


def graphs_are_not_switched_off(settings: Settings, facts: Facts) -> str | None:
    """With --enforce-eager no CUDA graph is captured, so settings of graphs change nothing."""
    del facts
    graphs = ("cudagraph_mode", "max_cudagraph_capture_size", "cudagraph_capture_sizes")
    named = [name for name in graphs if settings.get(name) is not None]
    if settings.get("enforce_eager") is True and named:
        return f"{named[0]}={settings[named[0]]} changes nothing: --enforce-eager captures no CUDA graphs"
    return None


def capture_sizes_are_given_once(settings: Settings, facts: Facts) -> str | None:
    """A list of capture sizes and a largest size contradict each other unless they agree (`_set_cudagraph_sizes`)."""
    del facts
    listed, largest = settings.get("cudagraph_capture_sizes"), number(settings, "max_cudagraph_capture_size")
    if isinstance(listed, str) and largest is not None and int(listed.rpartition(",")[2]) != largest:
        return f"max_cudagraph_capture_size={largest} contradicts cudagraph_capture_sizes={listed}"
    return None


RULES: tuple[Rule, ...] = (
    speculation.method_exists,
    speculation.method_has_what_it_needs,
    speculation.outputs_are_honest,
    speculation.runner_exists,
    speculation.draft_block_holds_k,
    speculation.token_budget_holds_drafts,
    speculation.lookup_range_is_a_range,
    speculation.prediction_layers_divide_k,
    speculation.schedule_speculates,
    speculation.scheduling_fits_method,
    speculation.greedy_reduction_is_greedy,
    attention.backend_takes_kv_dtype,
    attention.backend_runs_on_gpu,
    attention.backend_takes_head_size,
    attention.backend_sees_a_whole_block,
    attention.kv_block_size_is_aligned,
    attention.hybrid_block_is_what_it_says,
    attention.recurrent_cache_is_cached,
    budget_holds_one_step,
    whole_prompts_fit_the_budget,
    prefill_threshold_is_below_the_longest,
    prefill_threshold_changes_a_step,
    graphs_are_not_switched_off,
    capture_sizes_are_given_once,
    memory.gpus_are_enough,
    memory.heads_divide,
    memory.weights_fit,
    memory.one_request_fits,
)


def refusal(settings: Settings, facts: Facts) -> str | None:
    """The first rule's reason against these settings, or None when they may be launched."""
    return next((reason for rule in RULES if (reason := rule(settings, facts))), None)
