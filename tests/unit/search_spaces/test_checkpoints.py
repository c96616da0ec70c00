"""Reading config.json, and refusing a draft that cannot work with its target."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from search_spaces import CheckpointError, Facts, check_draft_fits, read_checkpoint


def write(directory: Path, text: str) -> str:
    directory.mkdir()
    (directory / "config.json").write_text(text, encoding="utf-8")
    return str(directory)


def test_a_dflash_draft_is_known_by_its_config(tmp_path: Path) -> None:
    config = {
        "architectures": ["DFlashDraftModel"],
        "hidden_size": 128,
        "vocab_size": 4096,
        "num_hidden_layers": 2,
        "block_size": 16,
        "dflash_config": {"target_layer_ids": [1, 8]},
    }
    draft = read_checkpoint(write(tmp_path / "no-telling-name", json.dumps(config)))
    assert (
        draft.is_dflash,
        draft.needs_v2_runner,
        draft.max_speculative_tokens,
        draft.target_layer_ids,
        draft.hidden_size,
    ) == (True, False, 15, (1, 8), 128)


def test_a_multimodal_target_is_read_through_its_text_config(tmp_path: Path) -> None:
    config = {"architectures": ["X"], "text_config": {"hidden_size": 64, "num_hidden_layers": 3}}
    target = read_checkpoint(write(tmp_path / "m", json.dumps(config)))
    assert (target.hidden_size, target.num_hidden_layers) == (64, 3)


def test_a_missing_directory_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such directory"):
        read_checkpoint(str(tmp_path / "gone"))


def test_a_file_is_no_model(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(CheckpointError, match="is a file"):
        read_checkpoint(str(file))


def test_a_directory_without_config_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no config\.json in it"):
        read_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not a readable config.json"),
        ("[]", "holds list instead of an object"),
        ('{"hidden_size": "128"}', "'hidden_size' is '128'; it must be an integer"),
        ('{"block_size": true}', "'block_size' is True; it must be an integer"),
    ],
)
def test_a_broken_config_is_told_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    path = write(tmp_path / "m", text)
    with pytest.raises(CheckpointError) as refused:
        read_checkpoint(path)
    assert complaint in str(refused.value)
    assert path in str(refused.value)


def test_a_hub_id_that_is_not_downloaded_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CheckpointError, match="hf download someone/model"):
        read_checkpoint("someone/model")


def test_a_hub_id_is_found_in_the_cache_newest_snapshot_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for age_s, snapshot, hidden in ((100, "b-old", 1), (0, "a-new", 2)):
        directory = tmp_path / "models--someone--model" / "snapshots" / snapshot
        directory.mkdir(parents=True)
        config = directory / "config.json"
        config.write_text(json.dumps({"hidden_size": hidden}), encoding="utf-8")
        os.utime(config, (1e9 - age_s, 1e9 - age_s))
    assert read_checkpoint("someone/model").hidden_size == 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hidden_size": 256}, "hidden size 256 against the target's 128"),
        ({"vocab_size": 5000}, "vocabulary 5000 against the target's 4096"),
        ({"target_layer_ids": (1, 32)}, r"reads target layers \[32\], the target has 32"),
        ({"architectures": ("Qwen3ForCausalLM",)}, "Qwen3ForCausalLM, which is not a DFlash draft"),
        ({"architectures": ()}, "architecture none, which is not a DFlash draft"),
        ({"draft_block": 1}, "draft block 1 leaves no token to draft"),
    ],
)
def test_a_draft_that_cannot_work_is_refused(facts: Facts, change: dict[str, Any], complaint: str) -> None:
    assert facts.draft is not None
    with pytest.raises(CheckpointError, match=complaint):
        check_draft_fits(facts.draft.model_copy(update=change), facts.target)


@pytest.mark.parametrize("change", [{}, {"hidden_size": None}, {"draft_block": 2}, {"target_layer_ids": (31,)}])
def test_a_draft_that_fits_or_does_not_say_is_accepted(facts: Facts, change: dict[str, Any]) -> None:
    assert facts.draft is not None
    check_draft_fits(facts.draft.model_copy(update=change), facts.target)
