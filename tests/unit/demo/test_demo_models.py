"""The committed demo pair: small, and described as the engine expects."""

import json
import struct
from pathlib import Path
from typing import Any

_MODELS = Path(__file__).parents[3] / "demo" / "models"
_MIB = 2**20


def _config(name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((_MODELS / name / "config.json").read_text(encoding="utf-8"))
    return config


def _tensors(name: str) -> dict[str, Any]:
    """Read a safetensors header: eight bytes of length, then JSON."""
    with (_MODELS / name / "model.safetensors").open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return header


def test_the_models_stay_under_twenty_megabytes() -> None:
    assert sum(file.stat().st_size for file in _MODELS.rglob("*") if file.is_file()) <= 20 * _MIB


def test_the_draft_is_a_dflash_draft_of_block_size_sixteen() -> None:
    config = _config("draft")
    assert config["architectures"] == ["DFlashDraftModel"]
    assert config["model_type"] == "qwen3"
    assert config["block_size"] == 16


def test_the_draft_fits_its_target() -> None:
    target, draft = _config("target"), _config("draft")
    for name in ("hidden_size", "vocab_size", "rope_theta", "max_position_embeddings"):
        assert target[name] == draft[name]
    assert draft["num_target_layers"] == target["num_hidden_layers"]
    dflash = draft["dflash_config"]
    assert dflash["mask_token_id"] == target["vocab_size"] - 1
    assert max(dflash["target_layer_ids"]) < target["num_hidden_layers"] - 1
    assert dflash["target_layer_ids"] == sorted(set(dflash["target_layer_ids"]))


def test_the_draft_carries_no_embeddings_and_no_head_of_its_own() -> None:
    assert not [name for name in _tensors("draft") if "embed" in name or "lm_head" in name or "mask" in name]


def test_the_drafts_projection_reads_all_target_layers() -> None:
    config = _config("draft")
    layers = config["dflash_config"]["target_layer_ids"]
    expected = [config["hidden_size"], config["hidden_size"] * len(layers)]
    assert expected == _tensors("draft")["fc.weight"]["shape"]


def test_all_weights_are_bfloat16() -> None:
    assert {"BF16"} == {tensor["dtype"] for name in ("target", "draft") for tensor in _tensors(name).values()}


def test_the_chat_template_is_stored_with_the_target() -> None:
    assert "<|im_start|>" in (_MODELS / "target" / "chat_template.jinja").read_text(encoding="utf-8")
