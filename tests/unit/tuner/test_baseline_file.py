"""A user's own serve config is the baseline word for word, whether the search space knows its flags or not."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from search_spaces import Checkpoint, Facts, ResolvedSpace, load_release, load_space
from tuner.baseline import read_baseline
from tuner.errors import UsageError


def checkpoint(path: str, architecture: str, draft_block: int | None) -> Checkpoint:
    return Checkpoint(
        path=path,
        architectures=(architecture,),
        hidden_size=128,
        vocab_size=4096,
        num_hidden_layers=32,
        max_position_embeddings=4096,
        draft_block=draft_block,
        target_layer_ids=(),
    )


@pytest.fixture
def space() -> ResolvedSpace:
    facts = Facts(
        target=checkpoint("/models/target", "Qwen3ForCausalLM", None),
        draft=checkpoint("/models/draft", "DFlashDraftModel", 16),
        release=load_release("0.32.0")[0],
        device="cpu",
    )
    return load_space("dflash").resolve(facts, fixed_args={}, env={})


def baseline(tmp_path: Path, space: ResolvedSpace, document: object) -> dict[str, Any]:
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    config = read_baseline(file, space)
    return {"flags": config.engine_args, "values": config.values, "id": config.id}


def test_known_flags_are_knob_values_and_the_same_config_as_the_search_s_own(
    tmp_path: Path, space: ResolvedSpace
) -> None:
    speculation = {"method": "dflash", "model": "/models/draft", "num_speculative_tokens": 7}
    found = baseline(tmp_path, space, {"model": "/models/target", "block-size": 32, "speculative-config": speculation})

    own = space.serve_config({"method": "dflash", "num_speculative_tokens": 7, "kv_block_size": 32})
    assert found["id"] == own.id
    assert found["values"]["num_speculative_tokens"] == 7


def test_another_speculative_method_reaches_the_engine_word_for_word(tmp_path: Path, space: ResolvedSpace) -> None:
    speculation = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 5}
    found = baseline(tmp_path, space, {"speculative_config": speculation, "middleware": ["a", "b"]})

    assert found["flags"] == {"speculative-config": speculation, "middleware": ["a", "b"]}


def test_two_files_that_differ_in_an_unknown_flag_are_two_configs(tmp_path: Path, space: ResolvedSpace) -> None:
    ids = {baseline(tmp_path, space, {"stream-interval": n})["id"] for n in (1, 4)}

    assert len(ids) == 2


def test_host_port_and_key_are_left_to_the_launch(tmp_path: Path, space: ResolvedSpace) -> None:
    found = baseline(
        tmp_path, space, {"host": "0.0.0.0", "port": 8000, "api-key": "secret", "no-enable-prefix-caching": True}
    )

    assert found["flags"] == {"enable-prefix-caching": False}


@pytest.mark.parametrize(("text", "said"), [("- a list", "must be a mapping"), ("a: [", "cannot be read")])
def test_what_is_no_mapping_is_refused_with_the_file_s_name(
    tmp_path: Path, space: ResolvedSpace, text: str, said: str
) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(UsageError, match=said) as raised:
        read_baseline(file, space)
    assert str(file) in str(raised.value)


def test_a_baseline_with_faked_acceptance_is_refused(tmp_path: Path, space: ResolvedSpace) -> None:
    speculation = {"method": "dflash", "num_speculative_tokens": 7, "rejection_sample_method": "synthetic"}
    with pytest.raises(UsageError, match="fake or change the output"):
        baseline(tmp_path, space, {"speculative-config": speculation})
