"""The two networks of the demo pair in plain torch: a Qwen3 decoder and a DFlash draft built from the same layer.

Parameter names equal the checkpoint names that transformers and vLLM read, so export is a copy. A layer attends either
causally over its own tokens, over a key-value cache (generation), or over context tokens plus its own block (draft).
Loss, data and schedules live elsewhere.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor, nn

from demo.pair.settings import Shape

Angles = tuple[Tensor, Tensor]
SHARPNESS = 1.5
"""Start of the draft's query and key norms. With 1.0 no attention logit can exceed sqrt(head_dim) = 5.7, too little to
single out one of 1,900 context tokens; acceptance behind the long system prompt then stayed at zero."""


@dataclass(slots=True)
class LayerCache:
    """Keys and values of one layer, allocated for the longest sequence; `used` positions are valid."""

    keys: Tensor
    values: Tensor
    used: int = 0

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store [rows, kv_heads, tokens, head_dim] and return all valid keys and values."""
        end = self.used + keys.shape[2]
        self.keys[:, :, self.used : end] = keys
        self.values[:, :, self.used : end] = values
        self.used = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class RMSNorm(nn.Module):
    """Root mean square normalisation over the last axis."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise and scale."""
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


def angles(positions: Tensor, shape: Shape, dtype: torch.dtype) -> Angles:
    """Return cosines and sines [..., tokens, 1, head_dim/2] for integer positions [..., tokens]."""
    steps = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    turns = positions.float()[..., None] / shape.rope_theta**steps
    return turns.cos()[..., None, :].to(dtype), turns.sin()[..., None, :].to(dtype)


def _rotate(x: Tensor, turn: Angles) -> Tensor:
    first, second = x.chunk(2, -1)
    cos, sin = turn
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    """Grouped-query attention with normalised queries and keys, as in Qwen3."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = _linear(shape.hidden_size, shape.heads * shape.head_dim)
        self.k_proj = _linear(shape.hidden_size, shape.kv_heads * shape.head_dim)
        self.v_proj = _linear(shape.hidden_size, shape.kv_heads * shape.head_dim)
        self.o_proj = _linear(shape.heads * shape.head_dim, shape.hidden_size)
        self.q_norm = RMSNorm(shape.head_dim, shape.rms_norm_eps)
        self.k_norm = RMSNorm(shape.head_dim, shape.rms_norm_eps)

    def _keys_values(self, x: Tensor, turn: Angles) -> tuple[Tensor, Tensor]:
        split = (*x.shape[:2], self.shape.kv_heads, self.shape.head_dim)
        keys = _rotate(self.k_norm(self.k_proj(x).view(split)), turn)
        return keys.transpose(1, 2), self.v_proj(x).view(split).transpose(1, 2)

    def _mix(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        rows, _, tokens, _ = queries.shape
        repeats = self.shape.heads // self.shape.kv_heads
        if tokens == 1 and mask is None:
            # one new token: the heads of a group become queries of their own, so that a long cache is not copied
            grouped = queries.reshape(rows, self.shape.kv_heads, repeats, -1)
            return F.scaled_dot_product_attention(grouped, keys, values).reshape(queries.shape)
        keys, values = keys.repeat_interleave(repeats, 1), values.repeat_interleave(repeats, 1)
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, is_causal=mask is None)

    def forward(
        self,
        x: Tensor,
        turn: Angles,
        *,
        cache: LayerCache | None = None,
        context: tuple[Tensor, Angles] | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Attend from x [rows, tokens, hidden]; `mask` is True where a query may look (None: causal or one token)."""
        rows, tokens, _ = x.shape
        shape = self.shape
        queries = self.q_proj(x).view(rows, tokens, shape.heads, shape.head_dim)
        queries = _rotate(self.q_norm(queries), turn).transpose(1, 2)
        keys, values = self._keys_values(x, turn)
        if cache is not None:
            keys, values = cache.append(keys, values)
        if context is not None:
            context_keys, context_values = self._keys_values(*context)
            keys, values = torch.cat([context_keys, keys], 2), torch.cat([context_values, values], 2)
        mixed = self._mix(queries, keys, values, mask)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(rows, tokens, -1))
        return out


class MLP(nn.Module):
    """Gated feed-forward part."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = _linear(shape.hidden_size, shape.intermediate_size)
        self.up_proj = _linear(shape.hidden_size, shape.intermediate_size)
        self.down_proj = _linear(shape.intermediate_size, shape.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the gated unit."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = MLP(shape)
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)

    def forward(
        self,
        h: Tensor,
        turn: Angles,
        *,
        cache: LayerCache | None = None,
        context: tuple[Tensor, Angles] | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Transform h [rows, tokens, hidden]."""
        h = h + self.self_attn(self.input_layernorm(h), turn, cache=cache, context=context, mask=mask)
        out: Tensor = h + self.mlp(self.post_attention_layernorm(h))
        return out


class Decoder(nn.Module):
    """Embedding, layers and final norm: what a Qwen3 checkpoint calls `model`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.target_layers))
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class Target(nn.Module):
    """The causal language model."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Decoder(shape)
        self.lm_head = _linear(shape.hidden_size, shape.vocab_size)
        scale = 0.5 * shape.hidden_size**-0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                std = scale * (2 * shape.target_layers) ** -0.5 if deep else scale
                nn.init.normal_(parameter, std=std)

    def forward(
        self, ids: Tensor, *, start: int = 0, caches: list[LayerCache] | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Run ids [rows, tokens] that begin at position `start`.

        Returns:
            The normalised final states [rows, tokens, hidden] (feed them to `lm_head`) and the draft's features
            [rows, tokens, hidden * len(feature_layers)].
        """
        h = self.model.embed_tokens(ids)
        turn = angles(torch.arange(start, start + ids.shape[1]), self.shape, h.dtype)
        features = []
        for index, layer in enumerate(self.model.layers):
            h = layer(h, turn, cache=caches[index] if caches else None, mask=mask)
            if index in self.shape.feature_layers:
                features.append(h)
        return self.model.norm(h), torch.cat(features, -1)

    def new_caches(self, rows: int, tokens: int) -> list[LayerCache]:
        """Allocate one empty cache per layer."""
        size = (rows, self.shape.kv_heads, tokens, self.shape.head_dim)
        return [LayerCache(torch.zeros(size), torch.zeros(size)) for _ in self.model.layers]


class Draft(nn.Module):
    """The DFlash draft: masks attend to each other, to the anchor and to the target's features of earlier tokens."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.draft_layers))
        self.fc = _linear(shape.hidden_size * len(shape.feature_layers), shape.hidden_size)
        self.hidden_norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        for name, parameter in self.named_parameters():
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                nn.init.constant_(parameter, SHARPNESS)

    def forward(self, embedded: Tensor, positions: Tensor, features: Tensor, mask: Tensor) -> Tensor:
        """Predict the masked tokens of many blocks at once.

        Args:
            embedded: Embeddings of anchors and masks, [rows, queries, hidden].
            positions: Their positions, [rows, queries].
            features: The target's features of tokens 0 to context-1, [rows, context, hidden * features].
            mask: True where a query may look, [rows, 1, queries, context + queries].

        Returns:
            States for the target's `lm_head`, [rows, queries, hidden].
        """
        context = self.hidden_norm(self.fc(features))
        turn = angles(positions, self.shape, embedded.dtype)
        context_turn = angles(torch.arange(features.shape[1])[None], self.shape, context.dtype)
        h = embedded
        for layer in self.layers:
            h = layer(h, turn, context=(context, context_turn), mask=mask)
        out: Tensor = self.norm(h)
        return out
