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


SPECULATORS = {
    "speculators_model_type": "dflash",
    "speculators_config": {
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 7}],
        "verifier": {"name_or_path": "Qwen/Qwen3-8B", "architectures": ["Qwen3ForCausalLM"]},
    },
    "transformer_layer_config": {"model_type": "qwen3", "hidden_size": 4096, "vocab_size": 151936},
    "aux_hidden_state_layer_ids": [2, 18, 34],
    "architectures": ["NamedForTrainingOnly"],
}


@pytest.mark.parametrize(
    ("config", "architecture", "method", "longest_k", "layers"),
    [
        pytest.param(
            {"architectures": ["DFlashDraftModel"], "block_size": 16, "dflash_config": {"target_layer_ids": [1, 8]}},
            *("DFlashDraftModel", "dflash", 15, (1, 8)),
            id="z-lab DFlash",
        ),
        pytest.param(
            {"architectures": ["DFlash2DraftModel"], "dflash_config": {"block_size": 8, "target_layer_ids": [5, 61]}},
            *("DFlash2DraftModel", "dflash", 7, (5, 61)),
            id="DFlash2",
        ),
        pytest.param(
            {"architectures": ["Qwen3DSparkModel"], "block_size": 7, "target_layer_ids": [3]},
            *("Qwen3DSparkModel", "dspark", 7, (3,)),
            id="DSpark drafts from its anchor",
        ),
        pytest.param(
            {"architectures": ["DSparkDraftModel"], "dspark_block_size": 5, "dspark_target_layer_ids": [3, 9]},
            *("DSparkDraftModel", "dspark", 5, (3, 9)),
            id="DeepSeek DSpark",
        ),
        pytest.param(
            {"architectures": ["Qwen3XPressModel"], "block_size": 16},
            *("Qwen3XPressModel", "dflash", 15, ()),
            id="XPress is served as dflash",
        ),
        pytest.param(
            {**SPECULATORS, "block_size": 16},
            *("DFlashDraftModel", "dflash", 15, (1, 17, 33)),
            id="Speculators DFlash",
        ),
        pytest.param(
            {**SPECULATORS, "speculators_model_type": "dflash2"},
            *("DFlash2DraftModel", "dflash", 7, (1, 17, 33)),
            id="Speculators DFlash2 without a block size",
        ),
        pytest.param(
            {**SPECULATORS, "speculators_model_type": "dspark", "block_size": 8},
            *("Qwen3DSparkModel", "dspark", 7, (1, 17, 33)),
            id="Speculators DSpark with a bonus anchor",
        ),
        pytest.param(
            {**SPECULATORS, "speculators_model_type": "eagle3"},
            *("Eagle3Qwen3ForCausalLM", "eagle3", 7, (1, 17, 33)),
            id="Speculators EAGLE-3",
        ),
        pytest.param(
            {"architectures": ["Qwen3ForCausalLM"], "num_nextn_predict_layers": 1},
            *("Qwen3ForCausalLM", None, None, ()),
            id="plain model",
        ),
    ],
)
def test_the_config_decides_the_method_and_the_longest_k_whatever_the_path_is_called(
    tmp_path: Path,
    *,
    config: dict[str, Any],
    architecture: str,
    method: str | None,
    longest_k: int | None,
    layers: tuple[int, ...],
) -> None:
    draft = read_checkpoint(write(tmp_path / "eagle3-dspark-dflash-b16", json.dumps(config)))
    assert draft.architectures == (architecture,)
    assert (draft.draft_method, draft.max_speculative_tokens, draft.target_layer_ids) == (method, longest_k, layers)


def test_a_speculators_draft_is_as_wide_as_its_layers_and_may_name_another_target_width(tmp_path: Path) -> None:
    path = write(tmp_path / "m", json.dumps({**SPECULATORS, "target_hidden_size": 5120}))
    draft = read_checkpoint(path)
    assert (draft.hidden_size, draft.vocab_size, draft.target_hidden_size) == (4096, 151936, 5120)
    target = draft.model_copy(update={"hidden_size": 5120, "num_hidden_layers": 34, "target_layer_ids": ()})
    check_draft_fits(draft, target)
    with pytest.raises(CheckpointError, match="hidden size 5120 against the target's 4096"):
        check_draft_fits(draft, target.model_copy(update={"hidden_size": 4096}))


@pytest.mark.parametrize("key", ["n_predict", "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"])
def test_prediction_layers_of_the_model_itself_are_found_under_every_name(tmp_path: Path, key: str) -> None:
    config = {"architectures": ["X"], "text_config": {key: 2}}
    assert read_checkpoint(write(tmp_path / "m", json.dumps(config))).n_predict == 2


def test_a_plain_model_is_a_draft_only_where_that_is_asked_for(facts: Facts) -> None:
    plain = facts.target.model_copy(update={"hidden_size": 64, "num_hidden_layers": 2})
    with pytest.raises(CheckpointError, match="not a DFlash draft"):
        check_draft_fits(plain, facts.target)
    check_draft_fits(plain, facts.target, plain=True)
    with pytest.raises(CheckpointError, match="vocabulary"):
        check_draft_fits(plain.model_copy(update={"vocab_size": 1}), facts.target, plain=True)


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
        ('{"architectures": "X"}', "'architectures' is 'X'; it must be a list"),
        ('{"speculators_config": {}}', "'speculators_model_type' is None"),
        ('{"dflash_config": {"target_layer_ids": ["1"]}}', "'target_layer_ids' is ['1']; it must be a list"),
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
