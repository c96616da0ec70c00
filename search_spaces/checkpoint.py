"""Reads what a checkpoint's own config.json says about a target model or a DFlash draft.

The config decides the method and the largest K, never the path's name: vLLM checks neither that K fits the draft block
nor, before it loads the weights, that draft and target belong together. Weights are never read here.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from search_spaces.errors import CheckpointError

METHOD_OF_WORD = {
    "DSpark": "dspark",  # first, because some DSpark classes begin with DFlash
    "DFlash": "dflash",
    "LiLiCorr": "dflash",
    "XPress": "dflash",
    "MuseGlimmerAssistant": "dflash",
    "Eagle3": "eagle3",
    "PEagle": "eagle3",
    "Eagle": "eagle",
    "MTP": "mtp",
    "Medusa": "medusa",
    "MLPSpeculator": "mlp_speculator",
}
"""The speculative method that a draft's class is served under, by the first word that stands in the class's name.

Read in vLLM's registry of drafts (model_executor/models/registry.py, 0.28 to 0.33)."""

_V2_CLASSES = ("DFlash2", "LiLiCorr", "XPress", "DSpark")


class Checkpoint(BaseModel):
    """The fields of config.json that decide how a checkpoint can be served."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(description="directory or hub id, as the user gave it")
    architectures: tuple[str, ...] = Field(
        description="model classes named by the config, or those that vLLM makes of a Speculators config"
    )
    hidden_size: int | None = Field(description="width of the residual stream")
    vocab_size: int | None = Field(description="rows of the embedding")
    num_hidden_layers: int | None = Field(description="decoder layers")
    max_position_embeddings: int | None = Field(description="longest trained context in tokens")
    speculators_type: str | None = Field(
        default=None, description="speculators_model_type, for a checkpoint in the Speculators format"
    )
    draft_block: int | None = Field(default=None, description="trained draft block in tokens")
    samples_from_anchor: bool = Field(
        default=False, description="whether the block's first place drafts a token too; else it holds the last real one"
    )
    target_layer_ids: tuple[int, ...] = Field(
        default=(), description="target layers whose hidden states the draft reads, from 0"
    )
    target_hidden_size: int | None = Field(
        default=None, description="width of the target that the draft was trained for, where it says so"
    )
    n_predict: int | None = Field(default=None, description="prediction layers (MTP) that the checkpoint itself has")

    @property
    def draft_method(self) -> str | None:
        """The speculative method that the architecture is made for; None for a plain model."""
        named = " ".join(self.architectures).lower()
        return next((method for word, method in METHOD_OF_WORD.items() if word.lower() in named), None)

    @property
    def is_dflash(self) -> bool:
        """Whether this is a draft that vLLM serves as `dflash`: DFlash, DFlash2 and their refinements."""
        return self.draft_method == "dflash"

    @property
    def needs_v2_runner(self) -> bool:
        """Whether its head runs on vLLM's model runner V2 only (no CPU)."""
        return any(word in name for name in self.architectures for word in _V2_CLASSES)

    @property
    def max_speculative_tokens(self) -> int | None:
        """Largest K the draft was trained for: its block, without the anchor token unless that place drafts too."""
        if self.draft_block is None or self.samples_from_anchor:
            return self.draft_block
        return self.draft_block - 1


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


def check_draft_fits(draft: Checkpoint, target: Checkpoint, *, plain: bool = False) -> None:
    """Refuses a draft that cannot work with the target.

    Args:
        draft: its config.
        target: the model's config.
        plain: whether a model that is no special draft may serve as one (method draft_model).

    Raises:
        CheckpointError: no draft, or its width, vocabulary or layer ids do not match the target's.
    """
    if draft.draft_method is None and not plain:
        named = ", ".join(draft.architectures) or "none"
        raise CheckpointError(
            f"draft {draft.path}: its config.json names the architecture {named}, which is not a DFlash draft "
            f"nor any other that vLLM speculates with; give the DFlash draft made for {target.path}"
        )
    sizes = [("vocabulary", draft.vocab_size, target.vocab_size)]
    if draft.draft_method is not None:
        sizes.append(("hidden size", draft.target_hidden_size or draft.hidden_size, target.hidden_size))
    for label, ours, theirs in sizes:
        if ours is not None and theirs is not None and ours != theirs:
            raise CheckpointError(
                f"draft {draft.path} does not fit {target.path}: {label} {ours} against the target's {theirs}; "
                "a draft shares the target's embedding, so give the draft trained for this very target"
            )
    layers = target.num_hidden_layers
    beyond = [layer for layer in draft.target_layer_ids if layers is not None and layer >= layers]
    if beyond:
        raise CheckpointError(
            f"draft {draft.path} does not fit {target.path}: it reads target layers {beyond}, the target has {layers}; "
            "give the draft trained for this very target"
        )
    if draft.draft_block is not None and (draft.max_speculative_tokens or 0) < 1:
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
    kind = _speculators_type(path, config)
    outer = _Section(path, (config, *_nested(config, "text_config", "transformer_layer_config")))
    drafting = _Section(path, (*_nested(config, "dflash_config", "eagle_config"), config))
    architectures = _architectures(path, config) if kind is None else _speculators_architectures(kind, config)
    is_dspark = any("DSpark" in name for name in architectures)
    anchor = bool(drafting.value("sample_from_anchor", default=kind is None and is_dspark))
    return Checkpoint(
        path=path,
        architectures=architectures,
        hidden_size=outer.integer("hidden_size"),
        vocab_size=outer.integer("vocab_size"),
        num_hidden_layers=outer.integer("num_hidden_layers"),
        max_position_embeddings=outer.integer("max_position_embeddings"),
        speculators_type=kind,
        draft_block=_draft_block(drafting, config, anchor=anchor),
        samples_from_anchor=anchor,
        target_layer_ids=_target_layer_ids(drafting),
        target_hidden_size=outer.integer("target_hidden_size"),
        n_predict=outer.integer("n_predict", "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"),
    )


@dataclass(frozen=True, slots=True)
class _Section:
    """Parts of a config.json in the order in which they count."""

    path: str
    parts: tuple[dict[str, Any], ...]

    def value(self, *keys: str, default: object = None) -> Any:
        """The first value that is there and not null."""
        values = (part[key] for key in keys for part in self.parts if part.get(key) is not None)
        return next(values, default)

    def integer(self, *keys: str) -> int | None:
        """The same, which must be an integer."""
        value = self.value(*keys)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            key = next(key for key in keys for part in self.parts if part.get(key) is value)
            raise CheckpointError(f"{self.path}/config.json: {key!r} is {value!r}; it must be an integer")
        return value


def _nested(config: dict[str, Any], *keys: str) -> tuple[dict[str, Any], ...]:
    return tuple(config[key] for key in keys if isinstance(config.get(key), dict))


def _architectures(path: str, config: dict[str, Any]) -> tuple[str, ...]:
    named = config.get("architectures") or ()
    if not isinstance(named, list | tuple) or not all(isinstance(name, str) for name in named):
        raise CheckpointError(f"{path}/config.json: 'architectures' is {named!r}; it must be a list of class names")
    return tuple(named)


def _speculators_type(path: str, config: dict[str, Any]) -> str | None:
    """What the Speculators format calls the draft; None for a config of another format."""
    kind = config.get("speculators_model_type")
    if config.get("speculators_config") is None and kind is None:
        return None
    if not isinstance(kind, str):
        raise CheckpointError(
            f"{path}/config.json: 'speculators_model_type' is {kind!r}; a Speculators checkpoint names its kind there, "
            "such as 'dflash'"
        )
    return kind


def _speculators_architectures(kind: str, config: dict[str, Any]) -> tuple[str, ...]:
    """The class that vLLM makes of a Speculators config (transformers_utils/configs/speculators/algos.py)."""
    if kind in {"dflash", "dflash2"}:
        return ("DFlashDraftModel" if kind == "dflash" else "DFlash2DraftModel",)
    if kind == "dspark":
        known = ("Qwen3DSparkModel", "Qwen3OmniDSparkModel")
        return tuple(name for name in config.get("architectures") or () if name in known) or known[:1]
    if kind in {"eagle3", "peagle"}:
        layers = config.get("transformer_layer_config")
        family = layers.get("model_type", "llama") if isinstance(layers, dict) else "llama"
        return (f"{kind.capitalize()}{str(family).capitalize()}ForCausalLM",)
    return tuple(config.get("architectures") or ())


def _draft_block(drafting: _Section, config: dict[str, Any], *, anchor: bool) -> int | None:
    """The trained block; a Speculators draft that names none was trained for the K that it proposes."""
    block = drafting.integer("block_size", "dspark_block_size")
    speculators = config.get("speculators_config")
    methods = speculators.get("proposal_methods") if isinstance(speculators, dict) else None
    first = methods[0] if isinstance(methods, list) and methods and isinstance(methods[0], dict) else {}
    proposed = _Section(drafting.path, (first,)).integer("speculative_tokens")
    if block is not None or proposed is None:
        return block
    return proposed if anchor else proposed + 1


def _target_layer_ids(drafting: _Section) -> tuple[int, ...]:
    """Layers of the target, from 0; Speculators counts them from 1 (vllm#40727)."""
    found = drafting.value("target_layer_ids", "dspark_target_layer_ids")
    offset = 0
    if found is None:
        found, offset = drafting.value("aux_hidden_state_layer_ids", default=()), 1
    if not isinstance(found, list | tuple) or not all(isinstance(layer, int) for layer in found):
        raise CheckpointError(
            f"{drafting.path}/config.json: 'target_layer_ids' is {found!r}; it must be a list of layer numbers"
        )
    return tuple(layer - offset for layer in found)
