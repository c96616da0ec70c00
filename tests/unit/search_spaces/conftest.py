"""Checkpoints, facts and resolved spaces as the plan would have them."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from search_spaces import Checkpoint, Device, Facts, Release, ResolvedSpace, load_release, load_space


@cache
def release(version: str) -> Release:
    """A release table, read once."""
    return load_release(version)[0]


def checkpoint(name: str, *, architecture: str, layers: int, draft_block: int | None = None) -> Checkpoint:
    return Checkpoint(
        path=f"/models/{name}",
        architectures=(architecture,),
        hidden_size=128,
        vocab_size=4096,
        num_hidden_layers=layers,
        max_position_embeddings=4096,
        draft_block=draft_block,
        target_layer_ids=() if draft_block is None else (1, 8, 30),
    )


@pytest.fixture
def facts() -> Facts:
    return Facts(
        target=checkpoint("target", architecture="Qwen3ForCausalLM", layers=32),
        draft=checkpoint("draft", architecture="DFlashDraftModel", layers=2, draft_block=16),
        release=release("0.32"),
        device="cpu",
    )


@pytest.fixture
def resolved(facts: Facts) -> Callable[..., ResolvedSpace]:
    def resolve(name: str = "dflash", *, device: Device = "cpu", version: str = "0.32.0") -> ResolvedSpace:
        known = replace(facts, device=device, release=release(version))
        return load_space(name).resolve(known, fixed_args={"dtype": "float32"}, env={"OMP_NUM_THREADS": "2"})

    return resolve
