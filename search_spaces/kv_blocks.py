"""How long a KV block really is: on a hybrid model vLLM lengthens it until it holds one recurrent state.

The formula is that of vLLM's `Platform._align_hybrid_block_size` (vllm/platforms/interface.py, releases 0.28 to 0.33)
for models with gated delta nets. The length depends on K, because the convolution's state keeps one column per draft
token, and on the dtypes of KV cache and state. It bounds what a prefix cache can do: a prompt shorter than one block
never hits, and a hit ends at a block's end.
"""

from search_spaces.geometry import DTYPE_BYTES, Geometry

DEFAULT_KV_BLOCK_TOKENS = 16
"""vLLM's own choice on GPUs where nothing is asked for (CacheConfig.DEFAULT_BLOCK_SIZE)."""

ONE_BYTE_KV = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "int8_per_token_head", "fp8_per_token_head")


def kv_element_bytes(kv_cache_dtype: str | None, geometry: Geometry) -> int | None:
    """Bytes of one number of the KV cache; None for packed layouts (nvfp4, turboquant ...), which are not modelled."""
    if kv_cache_dtype in (None, "auto"):
        return DTYPE_BYTES.get(geometry.dtype)
    if kv_cache_dtype in ONE_BYTE_KV:
        return 1
    return DTYPE_BYTES.get(str(kv_cache_dtype))


def recurrent_state_bytes(
    geometry: Geometry, *, k: int, ssm_cache_dtype: str | None = None, tensor_parallel_size: int = 1
) -> int | None:
    """Bytes of one recurrent layer's state of one sequence on one GPU, for K draft tokens (0 without speculation)."""
    state = geometry.recurrent
    conv_bytes = DTYPE_BYTES.get(geometry.dtype)
    if state is None or conv_bytes is None:
        return None
    named = ssm_cache_dtype if ssm_cache_dtype not in (None, "auto") else state.dtype
    ssm_bytes = DTYPE_BYTES.get(str(named)) if named else conv_bytes
    if ssm_bytes is None:
        return None
    matrix = state.value_heads * state.key_dim * state.value_dim * ssm_bytes
    columns = state.conv_channels * (state.conv_kernel - 1 + k) * conv_bytes
    return (matrix + columns) // tensor_parallel_size


def kv_block_tokens(
    geometry: Geometry,
    *,
    k: int,
    kv_block_size: int | None = None,
    kv_cache_dtype: str | None = None,
    ssm_cache_dtype: str | None = None,
    tensor_parallel_size: int = 1,
    unit: int = DEFAULT_KV_BLOCK_TOKENS,
) -> int | None:
    """Tokens of one KV block.

    Args:
        geometry: the target's shape.
        k: draft tokens per step, 0 without speculation.
        kv_block_size: `--block-size`, None where the engine chooses.
        kv_cache_dtype: `--kv-cache-dtype`.
        ssm_cache_dtype: `--mamba-ssm-cache-dtype`.
        tensor_parallel_size: GPUs that share the heads.
        unit: tokens of which the attention kernels' blocks are multiples.

    Returns:
        None for a hybrid whose state or KV layout is not known here.
    """
    block = max(unit, kv_block_size or 0)
    if not geometry.is_hybrid:
        return block
    element_bytes = kv_element_bytes(kv_cache_dtype, geometry)
    state_bytes = recurrent_state_bytes(
        geometry, k=k, ssm_cache_dtype=ssm_cache_dtype, tensor_parallel_size=tensor_parallel_size
    )
    if element_bytes is None or state_bytes is None:
        return None
    token_bytes = geometry.kv_bytes_per_token_and_layer(element_bytes, tensor_parallel_size=tensor_parallel_size)
    if token_bytes is None:
        return None
    return block * -(-state_bytes // (block * token_bytes))
