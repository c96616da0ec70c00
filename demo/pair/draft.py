"""Trains the DFlash draft on the target's own generations and exports it in the layout that vLLM loads.

A block is what the engine builds: one anchor (the last accepted token, whose features are not known yet) and n masks at
the following positions; block tokens see each other in both directions, and the features of every token before the
anchor. n is drawn anew for every batch, so that the draft is at home at each K from 1 to its largest.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from demo.pair.generations import Generation, Prefix, collect, handbook_prefix
from demo.pair.nets import Draft, Target
from demo.pair.schedule import Step, fit, save_checkpoint
from demo.pair.settings import DraftSettings, PairSettings
from demo.pair.target import target_config

IGNORE = -100


@dataclass(frozen=True, slots=True)
class Blocks:
    """A batch of draft blocks: everything that the draft and its loss need."""

    ids: Tensor
    """Anchors and masks, [rows, anchors * (masks + 1)]."""
    positions: Tensor
    features: Tensor
    mask: Tensor
    labels: Tensor
    """The tokens behind the anchors, [rows, anchors, masks]; IGNORE behind the end."""


def _draw_anchors(rows: list[Generation], count: int, rng: random.Random) -> Tensor:
    """Draw anchors among generated tokens that have at least one successor, [rows, count]."""
    return torch.tensor(
        [
            [rng.randrange(one.prompt_tokens, max(one.prompt_tokens + 1, len(one.ids) - 1)) for _ in range(count)]
            for one in rows
        ]
    )


def build_blocks(rows: list[Generation], masks: int, anchors: Tensor, mask_id: int, prefix: Prefix | None) -> Blocks:
    """Lay out blocks of `masks` masks at the given anchors (indices into each row's ids)."""
    count, block, longest = len(rows), masks + 1, max(len(one.ids) for one in rows)
    ids = torch.full((count, longest + masks), IGNORE)
    features = torch.zeros(count, longest - 1, rows[0].features.shape[1], dtype=torch.bfloat16)
    for index, one in enumerate(rows):
        ids[index, : len(one.ids)] = one.ids
        features[index, : len(one.features)] = one.features
    before = 0
    if prefix is not None:
        before = prefix.tokens
        features = torch.cat([prefix.features.expand(count, -1, -1), features], 1)
    spots = (anchors[:, :, None] + torch.arange(block)).flatten(1)
    tokens = ids.gather(1, spots).view(count, -1, block)
    queries = torch.full_like(tokens, mask_id)
    queries[:, :, 0] = tokens[:, :, 0]
    owner = torch.arange(anchors.shape[1]).repeat_interleave(block)
    sees_context = torch.arange(features.shape[1])[None, None] < (anchors + before)[:, owner, None]
    sees_block = (owner[:, None] == owner[None]).expand(count, -1, -1)
    mask = torch.cat([sees_context, sees_block], -1)[:, None]
    return Blocks(queries.flatten(1), spots + before, features, mask, tokens[:, :, 1:])


def _band(masks: int) -> str:
    """Name the range of K that a number of masks belongs to, for the progress lines."""
    return "k1_5" if masks <= 5 else "k6_10" if masks <= 10 else "k11_15"


def _accepted(logits: Tensor, labels: Tensor) -> float:
    """Mean number of leading tokens that equal the target's, per block."""
    return (logits.argmax(-1) == labels).float().cumprod(-1).sum(-1).mean().item()


class DraftTrainer:
    """Holds what a draft step needs: the frozen target's embeddings, the generations and the options."""

    def __init__(
        self,
        target: Target,
        generations: dict[str, list[Generation]],
        prefix: Prefix,
        options: DraftSettings,
        seed: int,
    ) -> None:
        self._embedding = target.model.embed_tokens.weight.to(torch.bfloat16)
        self._head = target.lm_head.weight.to(torch.bfloat16)
        self._mask_id = target.shape.vocab_size - 1
        self._generations = generations
        self._prefix = prefix
        self._options = options
        self._rng = random.Random(f"draft/{seed}")

    def step(self, draft: Draft) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of one fresh batch, and the running estimate of accepted tokens per draft."""
        kind, masks, blocks = self.draw()
        loss, accepted = self.loss(draft, blocks)
        return loss, {"loss": loss.item(), f"accepted_{kind}_{_band(masks)}": accepted}

    def draw(self) -> tuple[str, int, Blocks]:
        """Draw a kind, a number of masks and a batch of blocks."""
        options = self._options
        kinds, weights = zip(*options.mix, strict=True)
        kind = self._rng.choices(kinds, weights)[0]
        masks = self._rng.randint(1, options.block_size - 1)
        support = kind == "support"
        rows = self._rng.sample(self._generations[kind], options.support_rows if support else options.batch_rows)
        count = min(options.max_anchors, options.query_tokens // (masks + 1))
        anchors = _draw_anchors(rows, count, self._rng)
        prefix = self._prefix if support else None
        return kind, masks, build_blocks(rows, masks, anchors, self._mask_id, prefix)

    def loss(self, draft: Draft, blocks: Blocks) -> tuple[Tensor, float]:
        """Return the weighted loss and the mean number of accepted tokens per block."""
        count, anchors, masks = blocks.labels.shape
        states = draft(self._embedding[blocks.ids], blocks.positions, blocks.features, blocks.mask)
        states = states.view(count, anchors, masks + 1, -1)[:, :, 1:]
        logits = F.linear(states, self._head).float()
        losses = F.cross_entropy(logits.flatten(0, 2), blocks.labels.flatten(), ignore_index=IGNORE, reduction="none")
        weights = torch.exp(-torch.arange(masks) / self._options.position_decay).expand(count, anchors, masks)
        weights = weights * (blocks.labels != IGNORE)
        loss = (losses.view_as(weights) * weights).sum() / weights.sum()
        return loss, _accepted(logits, blocks.labels)


def train_draft(settings: PairSettings, tokenizer: PreTrainedTokenizerFast, target: Target, work: Path) -> Draft:
    """Generate, then train for the rest of the minutes; continues from the checkpoint in the work folder."""
    torch.manual_seed(settings.seed)
    options = settings.draft
    prefix = handbook_prefix(target, tokenizer)
    generations = _generations(settings, tokenizer, target, prefix, work / "generations.pt")
    draft = Draft(settings.shape)

    def begin(steps_done: int) -> Step:
        trainer = DraftTrainer(target, generations, prefix, options, settings.seed + steps_done)
        return lambda: trainer.step(draft)

    fit(
        draft,
        begin,
        options,
        name="draft",
        minutes=options.minutes * (1 - options.generate_share),
        checkpoint=work / "draft.pt",
        checkpoint_s=settings.checkpoint_s,
        show_every=100,
    )
    return draft


def _generations(
    settings: PairSettings, tokenizer: PreTrainedTokenizerFast, target: Target, prefix: Prefix, kept: Path
) -> dict[str, list[Generation]]:
    """Read the generations of an interrupted run, or make them."""
    names = tuple(Generation.__slots__)
    if kept.exists():
        stored = torch.load(kept, weights_only=True)
        return {
            kind: [Generation(**dict(zip(names, one, strict=True))) for one in ones] for kind, ones in stored.items()
        }
    found = collect(target, tokenizer, settings.draft, prefix, settings.seed)
    plain = {kind: [tuple(getattr(one, name) for name in names) for one in ones] for kind, ones in found.items()}
    save_checkpoint(kept, plain)
    return found


def draft_config(settings: PairSettings) -> dict[str, Any]:
    """Return the draft's config.json: the target's, with the draft's own architecture, layers and DFlash fields."""
    shape = settings.shape
    return target_config(shape) | {
        "architectures": ["DFlashDraftModel"],
        "block_size": settings.draft.block_size,
        "dflash_config": {
            "mask_token_id": shape.vocab_size - 1,
            "target_layer_ids": list(shape.feature_layers),
        },
        "layer_types": ["full_attention"] * shape.draft_layers,
        "max_window_layers": shape.draft_layers,
        "num_hidden_layers": shape.draft_layers,
        "num_target_layers": shape.target_layers,
    }


def export_draft(draft: Draft, settings: PairSettings, folder: Path) -> None:
    """Write config.json and model.safetensors (bfloat16); embeddings and head are the target's."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(draft_config(settings), indent=2) + "\n")
    weights = {name: value.to(torch.bfloat16).contiguous() for name, value in draft.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
