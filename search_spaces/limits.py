"""What a step, a sequence and a KV block hold, as set or as vLLM decides where nothing is set.

Steps follow `EngineArgs._set_default_max_num_seqs_and_batched_tokens_args` (vllm/engine/arg_utils.py, 0.32), blocks
kv_blocks.py.
"""

from search_spaces.facts import Facts
from search_spaces.kv_blocks import kv_block_tokens
from search_spaces.settings import Settings, draft_length, number


def batch_limits(settings: Settings, facts: Facts) -> tuple[int, int]:
    """Requests in a step, and tokens in a step (max_num_seqs, max_num_batched_tokens)."""
    defaults = facts.release.defaults[facts.device]
    seqs, budget = number(settings, "max_num_seqs"), number(settings, "max_num_batched_tokens")
    factor = 2 if settings.get("performance_mode") == "throughput" else 1
    most_seqs = seqs or defaults.max_num_seqs * factor
    if budget is None:
        budget = defaults.max_num_batched_tokens * factor
        longest = longest_sequence(settings, facts)
        if longest is not None:
            budget = max(budget, longest) if settings.get("chunked_prefill") is False else budget
            budget = min(budget, most_seqs * longest)
    return (most_seqs if seqs else min(most_seqs, budget)), budget


def longest_sequence(settings: Settings, facts: Facts) -> int | None:
    """max_model_len in tokens; None where it is unknown or left to the engine to fit into memory."""
    if "max_model_len" in settings:
        length = number(settings, "max_model_len")
        return length if length is not None and length > 0 else None
    return facts.target_geometry.max_model_len if facts.target_geometry else None


def tensor_parallel_size(settings: Settings) -> int:
    """GPUs that share one copy of the model."""
    return number(settings, "tensor_parallel_size") or 1


def true_kv_block(settings: Settings, facts: Facts) -> int | None:
    """Tokens of a KV block as the engine will make it; None where the model's shape does not say."""
    if facts.target_geometry is None:
        return None
    dtype, ssm_dtype = settings.get("kv_cache_dtype"), settings.get("mamba_ssm_cache_dtype")
    return kv_block_tokens(
        facts.target_geometry,
        k=draft_length(settings),
        kv_block_size=number(settings, "kv_block_size"),
        kv_cache_dtype=None if dtype is None else str(dtype),
        ssm_cache_dtype=None if ssm_dtype is None else str(ssm_dtype),
        tensor_parallel_size=tensor_parallel_size(settings),
        unit=facts.release.defaults[facts.device].kv_block_multiple,
    )
