"""Trains the demo target, a small Qwen3, on the pair's own corpus, and exports it as a Hugging Face checkpoint.

Resumable: the run continues from its checkpoint and its remaining minutes. Weights are stored in bfloat16.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from demo.pair.batches import RowSource
from demo.pair.nets import Target
from demo.pair.schedule import Step, fit
from demo.pair.settings import PairSettings, Shape
from demo.pair.tokenizer import CHAT_END_ID, TEXT_END_ID


def _loss(target: Target, rows: Tensor, first: int) -> Tensor:
    states, _ = target(rows)
    logits = target.lm_head(states[:, first:-1]).float()
    return F.cross_entropy(logits.flatten(0, 1), rows[:, first + 1 :].flatten())


def _train(
    target: Target, minutes: float, settings: PairSettings, tokenizer: PreTrainedTokenizerFast, checkpoint: Path
) -> None:
    def begin(steps_done: int) -> Step:
        # a restart draws other rows than those already seen, and each depth draws its own
        seed = settings.seed + steps_done + target.shape.target_layers
        batches = RowSource(tokenizer, settings.target, seed).batches()

        def step() -> tuple[Tensor, dict[str, float]]:
            rows, first = next(batches)
            loss = _loss(target, rows, first)
            return loss, {"loss_long" if first else "loss_short": loss.item()}

        return step

    fit(
        target,
        begin,
        settings.target,
        name=f"target layers={target.shape.target_layers}",
        minutes=minutes,
        checkpoint=checkpoint,
        checkpoint_s=settings.checkpoint_s,
        show_every=20,
    )


def _deepen(shallow: Target, shape: Shape) -> Target:
    """Copy every layer of a shallow target several times, in place, into a deep one.

    The copies' contributions to the residual stream are divided by their number, so that the deep network starts close
    to the function that the shallow one has learned.
    """
    copies = shape.target_layers // shallow.shape.target_layers
    deep = Target(shape)
    deep.model.embed_tokens.load_state_dict(shallow.model.embed_tokens.state_dict())
    deep.model.norm.load_state_dict(shallow.model.norm.state_dict())
    deep.lm_head.load_state_dict(shallow.lm_head.state_dict())
    for index, layer in enumerate(deep.model.layers):
        state = shallow.model.layers[index // copies].state_dict()
        for name in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
            state[name] = state[name] / copies
        layer.load_state_dict(state)
    return deep


def train_target(settings: PairSettings, tokenizer: PreTrainedTokenizerFast, work: Path) -> Target:
    """Train a shallow target, deepen it, train on; return it in float32, rounded to what is stored.

    A step of the shallow network costs a quarter, and most of the language is learned there.
    """
    torch.manual_seed(settings.seed)
    options, shape = settings.target, settings.shape
    shallow_shape = dataclasses.replace(shape, target_layers=options.shallow_layers, feature_layers=(0,))
    shallow = Target(shallow_shape)
    _train(shallow, options.minutes * options.shallow_share, settings, tokenizer, work / "shallow.pt")
    target = _deepen(shallow.float(), shape)
    _train(target, options.minutes * (1 - options.shallow_share), settings, tokenizer, work / "target.pt")
    return target.float().eval().requires_grad_(requires_grad=False)


def target_config(shape: Shape) -> dict[str, Any]:
    """Return the target's config.json."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "dtype": "bfloat16",
        "eos_token_id": CHAT_END_ID,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": shape.intermediate_size,
        "max_position_embeddings": shape.max_position_embeddings,
        "model_type": "qwen3",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.target_layers,
        "num_key_value_heads": shape.kv_heads,
        "pad_token_id": TEXT_END_ID,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_scaling": None,
        "rope_theta": shape.rope_theta,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": shape.vocab_size,
    }


def export_target(target: Target, folder: Path) -> None:
    """Write config.json, generation_config.json and model.safetensors (bfloat16)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(target_config(target.shape), indent=2) + "\n")
    generation = {"eos_token_id": CHAT_END_ID, "pad_token_id": TEXT_END_ID}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    weights = {name: value.to(torch.bfloat16).contiguous() for name, value in target.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
