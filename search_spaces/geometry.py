"""The shape of a checkpoint: heads, layers, recurrent state, bytes of weights. What memory and parallelism rules need.

Read from config.json and from the sizes of the weight files; weights are never opened. What a config does not say is
None, and a rule that lacks a number refuses nothing.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from search_spaces.checkpoint import read_config

DTYPE_BYTES = {"float64": 8, "float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
"""Bytes of a number by the names that configs and vLLM's dtype flags use."""


class RecurrentState(BaseModel):
    """Dimensions of a gated delta net, the linear attention of Qwen3-Next and Qwen3.5 and their successors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key_heads: int = Field(description="heads of keys and queries")
    value_heads: int = Field(description="heads of values, each with a state of its own")
    key_dim: int = Field(description="width of a key head")
    value_dim: int = Field(description="width of a value head")
    conv_kernel: int = Field(description="taps of the short convolution before the state")
    dtype: str | None = Field(description="dtype of the state named by the config; None: that of the activations")

    @property
    def conv_channels(self) -> int:
        """Channels of the convolution: queries, keys and values side by side."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


class Geometry(BaseModel):
    """Dimensions of a target or a draft."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: int | None = Field(default=None, description="decoder layers")
    full_layers: int = Field(default=0, description="layers whose KV cache grows with the whole sequence")
    window_layers: int = Field(default=0, description="layers whose KV cache ends at a sliding window")
    recurrent_layers: int = Field(default=0, description="layers with a state of constant size instead of a KV cache")
    window_tokens: int | None = Field(default=None, description="length of the sliding window")
    query_heads: int | None = Field(default=None, description="attention heads")
    kv_heads: int | None = Field(default=None, description="heads of the KV cache")
    head_dim: int | None = Field(default=None, description="width of an attention head")
    latent_dim: int | None = Field(default=None, description="width of MLA's shared latent, rotary part included")
    dtype: str = Field(default="bfloat16", description="dtype of activations, and of the KV cache unless it is set")
    recurrent: RecurrentState | None = Field(default=None, description="state of the recurrent layers, where known")
    max_model_len: int | None = Field(default=None, description="longest sequence that the config allows")
    weight_bytes: int | None = Field(default=None, description="bytes of all weight files")

    @property
    def is_hybrid(self) -> bool:
        """Whether attention and recurrent layers share one cache."""
        return self.recurrent_layers > 0

    def kv_bytes_per_token_and_layer(self, element_bytes: int, *, tensor_parallel_size: int = 1) -> int | None:
        """Bytes that a token takes in one attention layer on one GPU: keys and values, or MLA's latent.

        KV heads are dealt over the GPUs while there are enough of them and copied after that.
        """
        if self.latent_dim is not None:
            return self.latent_dim * element_bytes
        if self.kv_heads is None or self.head_dim is None:
            return None
        return 2 * max(1, self.kv_heads // tensor_parallel_size) * self.head_dim * element_bytes


def read_geometry(path: str) -> Geometry:
    """Reads a checkpoint's directory or cached hub id.

    Raises:
        CheckpointError: as `read_checkpoint`.
    """
    directory, config = read_config(path)
    return geometry_of(config).model_copy(update={"weight_bytes": weight_bytes(directory)})


def geometry_of(config: dict[str, Any]) -> Geometry:
    """The shape that a config.json tells; what is nested for multimodal models and Speculators drafts counts first."""
    text = dict(config)
    for part in ("text_config", "transformer_layer_config"):
        nested = config.get(part)
        text.update(nested if isinstance(nested, dict) else {})
    layers = _integer(text, "num_hidden_layers")
    full, window, recurrent = _layer_kinds(text, layers)
    query_heads = _integer(text, "num_attention_heads")
    hidden = _integer(text, "hidden_size")
    latent = _integer(text, "kv_lora_rank")
    return Geometry(
        layers=layers,
        full_layers=full,
        window_layers=window,
        recurrent_layers=recurrent,
        window_tokens=_integer(text, "sliding_window"),
        query_heads=query_heads,
        kv_heads=_integer(text, "num_key_value_heads") or query_heads,
        head_dim=_integer(text, "head_dim") or (hidden // query_heads if hidden and query_heads else None),
        latent_dim=None if latent is None else latent + (_integer(text, "qk_rope_head_dim") or 0),
        dtype=str(text.get("dtype") or text.get("torch_dtype") or "bfloat16"),
        recurrent=_recurrent_state(text) if recurrent else None,
        max_model_len=_integer(text, "max_position_embeddings"),
    )


def weight_bytes(directory: Path) -> int | None:
    """Bytes of the weights beside a config.json; None where there are none (a cache that holds configs only)."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        try:
            total = json.loads(index.read_text(encoding="utf-8"))["metadata"]["total_size"]
        except (OSError, ValueError, KeyError, TypeError):
            total = None  # a damaged index is the engine's to complain about; here the files themselves will do
        if isinstance(total, int):
            return total
    for pattern in ("*.safetensors", "*.bin"):
        sizes = [file.stat().st_size for file in directory.glob(pattern) if file.is_file()]
        if sizes:
            return sum(sizes)
    return None


def _layer_kinds(text: dict[str, Any], layers: int | None) -> tuple[int, int, int]:
    """Layers with a growing KV cache, with a sliding window, and with a recurrent state."""
    named = text.get("layer_types")
    if isinstance(named, list) and named:
        window = sum(name == "sliding_attention" for name in named)
        recurrent = sum(name in ("linear_attention", "mamba", "mamba2") for name in named)
        return len(named) - window - recurrent, window, recurrent
    if layers is None:
        return 0, 0, 0
    if _integer(text, "linear_num_value_heads"):
        full = layers // (_integer(text, "full_attention_interval") or 4)
        return full, 0, layers - full
    return layers, 0, 0


def _recurrent_state(text: dict[str, Any]) -> RecurrentState | None:
    keys = ("key_heads", "value_heads", "key_dim", "value_dim", "conv_kernel")
    names = (
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
    )
    values = [_integer(text, name) for name in names]
    if not all(values):
        return None  # another kind of recurrent layer: its state is not known here
    dtype = text.get("mamba_ssm_dtype")
    return RecurrentState.model_validate({**dict(zip(keys, values, strict=True)), "dtype": dtype})


def _integer(text: dict[str, Any], name: str) -> int | None:
    value = text.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
