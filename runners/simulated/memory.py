"""How much KV cache there is: pure functions of flags and calibration, with vLLM's order of failures.

    available = gpu_memory_utilization x device - weights - draft weights - max_num_batched_tokens x activation
    blocks    = available / (KV block size x KV bytes per token of target and draft)
    graphs    = captured query tokens x graph bytes, taken after the cache and refused when the device is full

Weights that exceed the device fail first, then a cache of no blocks, then a cache too small for one sequence of
max_model_len, then graph capture. `--kv-cache-memory-bytes` (or VLLM_CPU_KVCACHE_SPACE on a CPU) replaces
`available`.
"""

import os
from dataclasses import dataclass

from runners.simulated.calibration import Memory
from runners.simulated.errors import StartupError

__all__ = ["MemoryPlan", "MemoryRequest", "plan_memory"]

_GIB = 2**30
_HALF_WIDTH_DTYPES = ("fp8", "int8")


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """What the configuration asks of the device."""

    block_tokens: int
    max_model_len: int
    max_num_batched_tokens: int
    kv_cache_dtype: str
    gpu_memory_utilization: float
    kv_cache_memory_bytes: int | None
    blocks_override: int | None
    draft: bool
    graph_tokens: int
    """Query tokens that graphs are captured for; 0 without graphs."""
    devices: int
    """Tensor-parallel size: weights and KV are split over that many devices."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The KV cache of one engine."""

    blocks: int
    kv_bytes: int
    """Of all devices together."""


def plan_memory(memory: Memory, request: MemoryRequest) -> MemoryPlan:
    """Size the KV cache.

    Raises:
        StartupError: out of memory, no cache, or a cache too small for one sequence, in vLLM's words.
    """
    weights = memory.weights_bytes + (memory.draft_weights_bytes if request.draft else 0)
    per_device = weights // request.devices
    if memory.device == "cuda" and per_device > memory.device_bytes:
        raise _out_of_memory(memory, per_device // 8, "loading the weights")
    available = _available(memory, request, per_device)
    per_token = kv_bytes_per_token(memory, request)
    if request.blocks_override is not None:
        blocks = request.blocks_override
        available = blocks * request.block_tokens * per_token
    else:
        blocks = int(available / (request.block_tokens * per_token))
    _check(request, blocks, available, per_token)
    graphs = request.graph_tokens * memory.graph_bytes_per_token
    used = per_device + available // request.devices + graphs
    if memory.device == "cuda" and request.graph_tokens and used > memory.device_bytes:
        raise _out_of_memory(memory, graphs, "capturing CUDA graphs")
    return MemoryPlan(blocks, int(available))


def kv_bytes_per_token(memory: Memory, request: MemoryRequest) -> float:
    """KV bytes of one token in target and draft, at the KV dtype."""
    per_token = memory.kv_bytes_per_token + (memory.draft_kv_bytes_per_token if request.draft else 0)
    if request.kv_cache_dtype.startswith(_HALF_WIDTH_DTYPES):
        return per_token / 2
    return per_token / 4 if request.kv_cache_dtype == "nvfp4" else float(per_token)


def _available(memory: Memory, request: MemoryRequest, per_device: int) -> float:
    if request.kv_cache_memory_bytes is not None:
        return float(request.kv_cache_memory_bytes * request.devices)
    if memory.device == "cpu":
        return float(os.environ.get("VLLM_CPU_KVCACHE_SPACE") or 1) * _GIB
    activations = request.max_num_batched_tokens * memory.activation_bytes_per_token
    return (request.gpu_memory_utilization * memory.device_bytes - per_device - activations) * request.devices


def _check(request: MemoryRequest, blocks: int, available: float, per_token: float) -> None:
    if blocks <= 1:
        raise StartupError(
            "ValueError",
            "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing "
            "the engine.",
        )
    usable_tokens = (blocks - 1) * request.block_tokens
    if usable_tokens < request.max_model_len:
        raise StartupError(
            "ValueError",
            f"To serve at least one request with the model's max seq len ({request.max_model_len}), "
            f"({request.max_model_len * per_token / _GIB:.2f} GiB KV cache is needed, which is larger than the "
            f"available KV cache memory ({available / _GIB:.2f} GiB). Based on the available memory, the estimated "
            f"maximum model length is {usable_tokens}. Try increasing `gpu_memory_utilization` or decreasing "
            "`max_model_len` when initializing the engine.",
        )


def _out_of_memory(memory: Memory, wanted: int, when: str) -> StartupError:
    return StartupError(
        "torch.OutOfMemoryError",
        f"CUDA out of memory. Tried to allocate {wanted / _GIB:.2f} GiB. GPU 0 has a total capacity of "
        f"{memory.device_bytes / _GIB:.2f} GiB of which 0.31 GiB is free. (while {when})",
    )
