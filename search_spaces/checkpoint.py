"""Reads what a checkpoint's own config.json says about a target model or a DFlash draft.

The config decides the method and the largest K, never the path's name: vLLM checks neither that K fits the draft block
nor, before it loads the weights, that draft and target belong together. Weights are never read here.
"""

import json
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from search_spaces.errors import CheckpointError

DFLASH_ARCHITECTURES = ("DFlashDraftModel", "DFlash2DraftModel")


class Checkpoint(BaseModel):
    """The fields of config.json that decide how a checkpoint can be served."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(description="directory or hub id, as the user gave it")
    architectures: tuple[str, ...] = Field(description="model classes named by the config")
    hidden_size: int | None = Field(description="width of the residual stream")
    vocab_size: int | None = Field(description="rows of the embedding")
    num_hidden_layers: int | None = Field(description="decoder layers")
    max_position_embeddings: int | None = Field(description="longest trained context in tokens")
    speculators_type: str | None = Field(
        default=None, description="speculators_model_type, for a checkpoint in the Speculators format"
    )
    draft_block: int | None = Field(default=None, description="trained draft block; K is at most this minus one")
    target_layer_ids: tuple[int, ...] = Field(
        default=(), description="target layers whose hidden states the draft reads"
    )

    @property
    def is_dflash(self) -> bool:
        """Whether this is a DFlash or DFlash2 draft."""
        return any(name in DFLASH_ARCHITECTURES for name in self.architectures)

    @property
    def needs_v2_runner(self) -> bool:
        """DFlash2 heads run on vLLM's model runner V2 only (no CPU)."""
        return "DFlash2DraftModel" in self.architectures

    @property
    def max_speculative_tokens(self) -> int | None:
        """Largest K the draft was trained for: its block without the anchor token."""
        return None if self.draft_block is None else self.draft_block - 1


def read_checkpoint(path: str) -> Checkpoint:
    """Reads a local directory, or a hub id that is already in the local Hugging Face cache.

    Raises:
        CheckpointError: the directory or its config.json is missing or malformed, or the hub id is not downloaded.
    """
    return _checkpoint(path, read_config(path)[1])


def read_config(path: str) -> tuple[Path, dict[str, Any]]:
    """The directory of a checkpoint, and its config.json as it is.

    Raises:
        CheckpointError: as `read_checkpoint`.
    """
    config_file = _config_file(path)
    try:
        config = json.loads(config_file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(
            f"{config_file}: not a readable config.json ({error}); download the model again"
        ) from error
    if not isinstance(config, dict):
        raise CheckpointError(
            f"{config_file}: holds {type(config).__name__} instead of an object; download the model again"
        )
    return config_file.parent, config


def check_draft_fits(draft: Checkpoint, target: Checkpoint) -> None:
    """Refuses a draft that cannot work with the target.

    Raises:
        CheckpointError: not a DFlash draft, or its width, vocabulary or layer ids do not match the target's.
    """
    if not draft.is_dflash:
        named = ", ".join(draft.architectures) or "none"
        raise CheckpointError(
            f"draft {draft.path}: its config.json names the architecture {named}, which is not a DFlash draft "
            f"({' or '.join(DFLASH_ARCHITECTURES)}); give the DFlash draft made for {target.path}"
        )
    for field, label in (("hidden_size", "hidden size"), ("vocab_size", "vocabulary")):
        ours, theirs = getattr(draft, field), getattr(target, field)
        if ours is not None and theirs is not None and ours != theirs:
            raise CheckpointError(
                f"draft {draft.path} does not fit {target.path}: {label} {ours} against the target's {theirs}; "
                "a DFlash draft shares the target's embedding, so give the draft trained for this very target"
            )
    layers = target.num_hidden_layers
    beyond = [layer for layer in draft.target_layer_ids if layers is not None and layer >= layers]
    if beyond:
        raise CheckpointError(
            f"draft {draft.path} does not fit {target.path}: it reads target layers {beyond}, the target has {layers}; "
            "give the draft trained for this very target"
        )
    if draft.draft_block is not None and draft.draft_block < 2:
        raise CheckpointError(
            f"draft {draft.path}: draft block {draft.draft_block} leaves no token to draft; it must be >= 2"
        )


def _config_file(path: str) -> Path:
    directory = Path(path).expanduser()
    if directory.is_dir():
        file = directory / "config.json"
        if not file.is_file():
            raise CheckpointError(f"{directory}: no config.json in it; give a directory in the Hugging Face layout")
        return file
    if directory.exists():
        raise CheckpointError(f"{directory}: is a file; give the model's directory or its hub id")
    if path.count("/") != 1 or path.startswith((".", "~", "/")):
        raise CheckpointError(f"{path}: no such directory; check the path of the model")
    hub = Path(
        os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser() / "hub"
    )
    snapshots = sorted((hub / f"models--{path.replace('/', '--')}" / "snapshots").glob("*/config.json"))
    if not snapshots:
        raise CheckpointError(
            f"{path}: neither a directory nor a model in the local Hugging Face cache; "
            f"run `hf download {path}` first or correct the path"
        )
    return max(snapshots, key=lambda file: file.stat().st_mtime)


def _checkpoint(path: str, config: dict[str, Any]) -> Checkpoint:
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else {}
    dflash = config.get("dflash_config") if isinstance(config.get("dflash_config"), dict) else {}

    def integer(key: str) -> int | None:
        value = config.get(key, text.get(key) if text else None)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise CheckpointError(f"{path}/config.json: {key!r} is {value!r}; it must be an integer")
        return value

    return Checkpoint(
        path=path,
        architectures=tuple(config.get("architectures") or ()),
        hidden_size=integer("hidden_size"),
        vocab_size=integer("vocab_size"),
        num_hidden_layers=integer("num_hidden_layers"),
        max_position_embeddings=integer("max_position_embeddings"),
        draft_block=integer("block_size"),
        target_layer_ids=tuple((dflash or {}).get("target_layer_ids") or ()),
    )
