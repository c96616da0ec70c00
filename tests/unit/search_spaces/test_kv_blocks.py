"""A hybrid's true KV block: the published table, and what must hold for every model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.geometry import Geometry, geometry_of
from search_spaces.kv_blocks import kv_block_tokens, recurrent_state_bytes

QWEN_27B = {
    "text_config": {
        "num_hidden_layers": 64,
        "full_attention_interval": 4,
        "hidden_size": 5120,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32",
        "dtype": "bfloat16",
    }
}
QWEN_35B_A3B = {**QWEN_27B["text_config"], "num_key_value_heads": 2, "linear_num_value_heads": 32}
LENGTHS = (0, 2, 3, 5, 7, 15)


@pytest.mark.parametrize(
    ("state", "kv", "tokens"),
    [
        # 784, 800, 832, 1600 and 1648 were logged by engines (vllm#53670 and its kin), the others follow.
        ("float32", "auto", (784, 800, 800, 816, 832, 864)),
        ("float32", "fp8", (1568, 1600, 1600, 1616, 1648, 1728)),
        ("bfloat16", "bfloat16", (400, 416, 416, 432, 448, 480)),
        ("bfloat16", "fp8_e4m3", (800, 832, 832, 848, 880, 960)),
    ],
)
def test_the_blocks_of_a_27b_hybrid_are_those_that_engines_log(state: str, kv: str, tokens: tuple[int, ...]) -> None:
    shape = geometry_of(QWEN_27B)
    found = tuple(kv_block_tokens(shape, k=k, kv_cache_dtype=kv, ssm_cache_dtype=state) for k in LENGTHS)
    assert tokens == found


def test_the_blocks_of_a_35b_hybrid_are_those_that_engines_log() -> None:
    shape = geometry_of(QWEN_35B_A3B)
    assert [kv_block_tokens(shape, k=k) for k in (0, 2, 3, 7)] == [1056, 1072, 1072, 1104]


def test_the_layers_of_a_hybrid_are_told_apart_by_interval_or_by_name() -> None:
    named = {**QWEN_27B["text_config"], "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16}
    for config in (QWEN_27B, named):
        shape = geometry_of(config)
        assert (shape.full_layers, shape.window_layers, shape.recurrent_layers) == (16, 0, 48)


@given(
    k=st.integers(0, 31),
    asked=st.sampled_from([None, 16, 32, 64, 128, 256]),
    kv=st.sampled_from(["auto", "fp8"]),
    share=st.sampled_from([1, 2, 4]),
)
def test_a_block_is_the_shortest_aligned_one_that_holds_a_state(k: int, asked: int | None, kv: str, share: int) -> None:
    shape = geometry_of(QWEN_27B)
    block = kv_block_tokens(shape, k=k, kv_block_size=asked, kv_cache_dtype=kv, tensor_parallel_size=share)
    state = recurrent_state_bytes(shape, k=k, tensor_parallel_size=share)
    token = shape.kv_bytes_per_token_and_layer(1 if kv == "fp8" else 2, tensor_parallel_size=share)
    assert block is not None
    assert state is not None
    assert token is not None
    unit = asked or 16
    assert block % unit == 0
    assert (block - unit) * token < state <= block * token


def test_a_model_without_recurrent_layers_has_the_block_that_is_asked_for() -> None:
    shape = geometry_of({"num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 64})
    assert [kv_block_tokens(shape, k=7, kv_block_size=size) for size in (None, 16, 64)] == [16, 16, 64]
    assert kv_block_tokens(shape, k=7, unit=32) == 32


@pytest.mark.parametrize(
    ("shape", "kv"),
    [
        (geometry_of({"num_hidden_layers": 2, "layer_types": ["mamba", "full_attention"]}), "auto"),
        (geometry_of(QWEN_27B), "nvfp4"),
        (geometry_of({**QWEN_27B["text_config"], "dtype": "unheard-of"}), "auto"),
    ],
    ids=["another kind of state", "a packed KV layout", "an unknown dtype"],
)
def test_a_block_that_cannot_be_computed_is_not_guessed(shape: Geometry, kv: str) -> None:
    assert kv_block_tokens(shape, k=7, kv_cache_dtype=kv) is None


def test_a_latent_cache_is_not_shared_over_gpus() -> None:
    shape = geometry_of({"num_hidden_layers": 2, "kv_lora_rank": 512, "qk_rope_head_dim": 64})
    assert [shape.kv_bytes_per_token_and_layer(2, tensor_parallel_size=size) for size in (1, 8)] == [1152, 1152]
