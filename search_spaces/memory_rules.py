"""Rules about GPUs: enough of them, heads that can be shared, weights and one request that fit.

Memory is judged by a lower bound (memory.py): a refused configuration cannot start; an allowed one may still not.
"""

from search_spaces import methods
from search_spaces.facts import Facts
from search_spaces.limits import longest_sequence, tensor_parallel_size
from search_spaces.memory import memory_of, sequence_floor
from search_spaces.settings import Settings, number, speculates

GIB = 2**30


def gpus_are_enough(settings: Settings, facts: Facts) -> str | None:
    """Every rank needs a GPU."""
    size = tensor_parallel_size(settings)
    if facts.gpus and size > len(facts.gpus):
        return f"tensor_parallel_size={size} needs {size} GPUs; an engine may use {len(facts.gpus)}"
    return None


def heads_divide(settings: Settings, facts: Facts) -> str | None:
    """Heads are dealt over the GPUs in equal parts, KV heads may be copied instead (`verify_with_parallel_config`)."""
    size = tensor_parallel_size(settings)
    shapes = [("the model", facts.target_geometry, size)]
    known = methods.METHODS.get(str(settings.get("method")))
    if known is not None and known.source == "draft":
        shapes.append(("the draft", facts.draft_geometry, number(settings, "draft_tensor_parallel_size") or size))
    for whose, shape, share in shapes:
        if shape is None or share == 1:
            continue
        state = shape.recurrent
        counts = [(shape.query_heads, "attention heads"), (state and state.key_heads, "recurrent key heads")]
        counts.append((state and state.value_heads, "recurrent value heads"))
        for count, what in counts:
            if count and count % share:
                return f"tensor_parallel_size={share} does not divide {whose}'s {count} {what}"
        if shape.kv_heads and shape.latent_dim is None and shape.kv_heads % share and share % shape.kv_heads:
            return f"tensor_parallel_size={share} neither divides {whose}'s {shape.kv_heads} KV heads nor is a multiple"
    return None


def weights_fit(settings: Settings, facts: Facts) -> str | None:
    """Weights of model and draft must leave room for a KV cache."""
    memory = memory_of(settings, facts)
    if memory is None:
        return None
    asked = number(settings, "kv_cache_memory_bytes")
    if asked is not None and memory.weights + asked > memory.gpu:
        return (
            f"weights of {_gib(memory.weights)} and kv_cache_memory_bytes of {_gib(asked)} exceed the GPU's "
            f"{_gib(memory.gpu)}"
        )
    if asked is None and memory.weights >= memory.allowed:
        return (
            f"weights of {_gib(memory.weights)} on each GPU exceed the {_gib(memory.allowed)} that "
            "gpu_memory_utilization leaves of it; use more GPUs or a smaller format"
        )
    return None


def one_request_fits(settings: Settings, facts: Facts) -> str | None:
    """vLLM refuses to start when its KV cache cannot hold one request of max_model_len (`kv_cache_utils.py`)."""
    memory, longest = memory_of(settings, facts), longest_sequence(settings, facts)
    if memory is None or longest is None:
        return None
    if facts.draft_geometry is not None and speculates(settings):  # a draft for shorter sequences shortens all
        longest = min(longest, facts.draft_geometry.max_model_len or longest)
    needed = memory.needed(sequence_floor(settings, facts, longest))
    if needed <= memory.kv:
        return None
    return (
        f"one request of max_model_len={longest} needs {_gib(needed)} of KV cache on each GPU, and at most "
        f"{_gib(max(0, memory.kv))} remain beside weights of {_gib(memory.weights)}; lower --max-model-len"
    )


def _gib(count: int) -> str:
    return f"{count / GIB:.1f} GiB"
