"""What an engine needs of a GPU's memory: weights, KV cache and recurrent states. A lower bound and an estimate.

Counted from config.json and the weight files. Activations, CUDA graphs and the allocator's losses are not counted: they
are what vLLM measures at start. So what does not fit by these numbers does not fit; what fits by them may still not.
Formulas of the caches: vllm/v1/kv_cache_interface.py (FullAttentionSpec, SlidingWindowSpec, MambaSpec), 0.32.
"""

from dataclasses import dataclass

from search_spaces import methods
from search_spaces.facts import Facts
from search_spaces.geometry import Geometry
from search_spaces.kv_blocks import kv_element_bytes, recurrent_state_bytes
from search_spaces.limits import tensor_parallel_size, true_kv_block
from search_spaces.settings import Settings, draft_length, number

GPU_MEMORY_UTILIZATION = 0.92
"""vLLM's default of --gpu-memory-utilization (0.28 to 0.33)."""

LOADED_SHARE = 0.95
"""Share of the weight files that is loaded at least: prediction layers may stay out, and files have headers."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on each GPU of an engine.

    Attributes:
        gpu: memory of the smallest GPU.
        allowed: what vLLM may use of it.
        weights: weights of model and draft.
        kv: what remains for KV cache and states, before activations and graphs.
        kv_per_token: KV cache of one token, model and draft.
        state_per_sequence: recurrent states of one sequence.
    """

    gpu: int
    allowed: int
    weights: int
    kv: int
    kv_per_token: int
    state_per_sequence: int

    def needed(self, tokens: int) -> int:
        """Bytes of KV cache and state of one sequence of that many tokens."""
        return tokens * self.kv_per_token + self.state_per_sequence

    def sequences(self, tokens: int) -> int:
        """How many sequences of that length fit at once, at most."""
        needed = self.needed(tokens)
        return max(0, self.kv) // needed if needed else 0


def memory_of(settings: Settings, facts: Facts) -> Memory | None:
    """The bytes of an engine; None where GPUs or weights are unknown, or weights change on load."""
    target = facts.target_geometry
    changed = ("quantization", "cpu_offload_gb", "pipeline_parallel_size", "kv_offloading_size", "load_format")
    if not facts.gpus or target is None or target.weight_bytes is None or any(settings.get(n) for n in changed):
        return None
    element = kv_element_bytes(_text(settings, "kv_cache_dtype"), target)
    if element is None:
        return None
    share = tensor_parallel_size(settings)
    per_token = _kv_per_token(target, element, share)
    weights = int(target.weight_bytes * LOADED_SHARE) // share
    draft = _loaded_draft(settings, facts)
    if draft is not None:
        draft_share = number(settings, "draft_tensor_parallel_size") or share
        weights += int((draft.weight_bytes or 0) * LOADED_SHARE) // draft_share
        per_token = (per_token or 0) + (_kv_per_token(draft, element, draft_share) or 0)
    state = _state_per_sequence(settings, target)
    if per_token is None or state is None:
        return None
    gpu = min(gpu.memory_bytes for gpu in facts.gpus)
    utilization = settings.get("gpu_memory_utilization")
    allowed = int(gpu * (utilization if isinstance(utilization, int | float) else GPU_MEMORY_UTILIZATION))
    asked = number(settings, "kv_cache_memory_bytes")
    return Memory(gpu, allowed, weights, asked if asked is not None else allowed - weights, per_token, state)


def sequence_floor(settings: Settings, facts: Facts, tokens: int) -> int:
    """Tokens that count against the growing KV cache: rounded up to whole blocks."""
    block = true_kv_block(settings, facts) or 1
    return -(-tokens // block) * block


def _kv_per_token(shape: Geometry, element: int, share: int) -> int | None:
    """Layers with a sliding window keep a window only, so as a lower bound they count nothing."""
    per_layer = shape.kv_bytes_per_token_and_layer(element, tensor_parallel_size=share)
    return None if per_layer is None else per_layer * shape.full_layers


def _state_per_sequence(settings: Settings, target: Geometry) -> int | None:
    """One state per layer, one more per draft token, and one more where states are cached ("align" keeps two)."""
    if not target.is_hybrid:
        return 0
    k = draft_length(settings)
    dtype = _text(settings, "mamba_ssm_cache_dtype")
    one = recurrent_state_bytes(target, k=k, ssm_cache_dtype=dtype, tensor_parallel_size=tensor_parallel_size(settings))
    if one is None:
        return None
    cached = settings.get("prefix_caching") is not False
    return one * target.recurrent_layers * ((2 if cached else 1) + k)


def _loaded_draft(settings: Settings, facts: Facts) -> Geometry | None:
    known = methods.METHODS.get(str(settings.get("method")))
    return facts.draft_geometry if known is not None and known.source == "draft" else None


def _text(settings: Settings, name: str) -> str | None:
    value = settings.get(name)
    return None if value is None else str(value)
