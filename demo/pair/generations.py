"""The target's own continuations, with the features that the draft will see: the draft's training set.

Prompts come from the training part of the corpus, in the three shapes of the sample traffic. Prompts of equal length
are generated together, so no padding ever enters a sequence. Support conversations share the handbook, whose keys,
values and features are computed once.
"""

import random
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from demo.pair.corpus import KINDS, examples, exchange, render_chat, system_message
from demo.pair.nets import LayerCache, Target
from demo.pair.settings import DraftSettings
from demo.pair.tokenizer import CHAT_END_ID

_MAX_NEW = {"code": 128, "story": 200, "support": 48}
_ROWS = {"code": 96, "story": 96, "support": 24}
_POOL = 1500
"""Prompts drawn at once; those of the most common length are generated first."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One sequence: tokens and features without the shared prefix."""

    kind: str
    ids: Tensor
    """All tokens after the shared prefix, [tokens], prompt included."""
    features: Tensor
    """The target's features of those tokens, [tokens, features], bfloat16; the last token has none."""
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Prefix:
    """The shared system prompt: how many tokens, their features, and per layer their keys and values."""

    tokens: int
    features: Tensor
    caches: list[LayerCache]


def handbook_prefix(target: Target, tokenizer: PreTrainedTokenizerFast) -> Prefix:
    """Run the target once over the system message of all support requests."""
    ids = tokenizer.encode(render_chat([system_message()]), add_special_tokens=False)
    caches = target.new_caches(1, len(ids))
    with torch.inference_mode():
        _, features = target(torch.tensor([ids]), caches=caches)
    return Prefix(len(ids), features[0].to(torch.bfloat16), caches)


def _prompts(kind: str, tokenizer: PreTrainedTokenizerFast, seed: int) -> Iterator[list[list[int]]]:
    """Yield batches of token prompts of one length, without the shared prefix."""
    rng = random.Random(f"prompts/{kind}/{seed}")
    source = examples(kind, seed + 1, held_out=False)
    while True:
        by_length: dict[int, list[list[int]]] = defaultdict(list)
        for _ in range(_POOL):
            messages: list[dict[str, str]] = []
            for _ in range(rng.randint(0, 2) if kind == "support" else 0):
                messages += exchange(next(source))
            messages += exchange(next(source))[:1]
            ids = tokenizer.encode(render_chat(messages, add_generation_prompt=True), add_special_tokens=False)
            by_length[len(ids)].append(ids)
        full = [group for group in by_length.values() if len(group) >= _ROWS[kind] // 2]
        rng.shuffle(full)
        for group in full:
            yield group[: _ROWS[kind]]


def _start(target: Target, rows: int, tokens: int, prefix: Prefix | None) -> list[LayerCache]:
    caches = target.new_caches(rows, tokens + (prefix.tokens if prefix else 0))
    if prefix is not None:
        for cache, shared in zip(caches, prefix.caches, strict=True):
            cache.append(shared.keys.expand(rows, -1, -1, -1), shared.values.expand(rows, -1, -1, -1))
    return caches


def _prefill_mask(tokens: int, before: int) -> Tensor:
    """Causal mask for new tokens behind `before` cached ones, [1, 1, tokens, before + tokens]."""
    return torch.ones(tokens, before + tokens, dtype=torch.bool).tril(before)[None, None]


def _pick(logits: Tensor, temperature: float) -> Tensor:
    if temperature == 0:
        return logits.argmax(-1)
    return torch.multinomial((logits / temperature).softmax(-1), 1)[:, 0]


@torch.inference_mode()
def generate(
    target: Target, kind: str, prompts: list[list[int]], temperature: float, prefix: Prefix | None
) -> list[Generation]:
    """Continue prompts of one length until the chat's end mark or the kind's longest answer."""
    ids = torch.tensor(prompts)
    rows, length = ids.shape
    before = prefix.tokens if prefix else 0
    caches = _start(target, rows, length + _MAX_NEW[kind], prefix)
    states, features = target(ids, start=before, caches=caches, mask=_prefill_mask(length, before))
    kept = [features.to(torch.bfloat16)]
    tokens = [ids]
    ended = torch.zeros(rows, dtype=torch.bool)
    for step in range(_MAX_NEW[kind]):
        chosen = _pick(target.lm_head(states[:, -1]), temperature)
        tokens.append(chosen[:, None])
        ended |= chosen == CHAT_END_ID
        if ended.all() or step == _MAX_NEW[kind] - 1:
            break
        states, features = target(chosen[:, None], start=before + length + step, caches=caches)
        kept.append(features.to(torch.bfloat16))
    return _cut(kind, torch.cat(tokens, 1), torch.cat(kept, 1), length)


def _cut(kind: str, ids: Tensor, features: Tensor, prompt_tokens: int) -> list[Generation]:
    """End every row at its first end mark behind the prompt."""
    found = []
    for row, row_features in zip(ids, features, strict=True):
        ends = (row[prompt_tokens:] == CHAT_END_ID).nonzero()
        end = prompt_tokens + int(ends[0]) + 1 if len(ends) else len(row)
        found.append(Generation(kind, row[:end].clone(), row_features[: end - 1].clone(), prompt_tokens))
    return found


def collect(
    target: Target, tokenizer: PreTrainedTokenizerFast, options: DraftSettings, prefix: Prefix, seed: int
) -> dict[str, list[Generation]]:
    """Generate for the configured share of the minutes, the time split over the kinds as their mix says."""
    rng = random.Random(f"collect/{seed}")
    found: dict[str, list[Generation]] = {kind: [] for kind in KINDS}
    sampled_share = dict(options.sampled_share)
    for kind, share in options.mix:
        until = time.monotonic() + share * options.generate_share * options.minutes * 60
        for prompts in _prompts(kind, tokenizer, seed):
            temperature = options.temperature if rng.random() < sampled_share[kind] else 0.0
            found[kind] += generate(target, kind, prompts, temperature, prefix if kind == "support" else None)
            if time.monotonic() > until:
                break
        tokens = sum(len(one.ids) - one.prompt_tokens for one in found[kind])
        print(f"generated kind={kind} sequences={len(found[kind])} new_tokens={tokens}", flush=True)
    return found
