"""What a space offers follows from the release, the checkpoints and the GPUs; nothing is left out silently."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces import (
    EngineArgumentError,
    Facts,
    ResolvedSpace,
    SpaceFileError,
    known_releases,
    load_space,
    parse_engine_args,
    preset_names,
    unknown_flags,
)
from search_spaces.methods import METHODS
from search_spaces.settings import catalogue, catalogue_knob
from tests.unit.search_spaces.conftest import checkpoint, release
from tests.unit.search_spaces.test_every_rule import dense, gpus, hybrid
from tests.unit.search_spaces.test_space_files import write

DRAFTS = {
    "dflash": "DFlashDraftModel",
    "dspark": "Qwen3DSparkModel",
    "eagle3": "Eagle3LlamaForCausalLM",
    "medusa": "MedusaModel",
    "draft_model": "Qwen3ForCausalLM",
}


def resolve(name: str, facts: Facts, version: str = "0.32", **changes: Any) -> ResolvedSpace:
    known = replace(facts, device="gpu", release=release(version), gpus=gpus(2, 80, (9, 0)), target_geometry=dense())
    return load_space(name).resolve(replace(known, **changes), fixed_args={}, env={})


def draft_of(facts: Facts, method: str) -> Any:
    assert facts.draft is not None
    return facts.draft.model_copy(update={"architectures": (DRAFTS[method],)})


@pytest.mark.parametrize("version", known_releases())
@pytest.mark.parametrize("preset", preset_names())
def test_a_preset_offers_only_what_the_release_takes(facts: Facts, preset: str, version: str) -> None:
    space = resolve(preset, facts, version)
    for name, knob in space.knobs.items():
        if knob.speculative_key:
            assert knob.speculative_key in space.facts.release.speculative_fields, name
        else:
            assert knob.flag in space.facts.release.flags, name
    for combination in space.combinations(100):
        space.refusal(combination)
        for flag, value in space.serve_config(combination).tuned_args.items():
            if flag not in ("speculative-config", "compilation-config"):
                assert space.facts.release.flags[flag].takes(value), (flag, value)


@pytest.mark.parametrize("method", sorted(DRAFTS))
def test_speculation_offers_what_the_draft_is_made_for_and_what_needs_none(facts: Facts, method: str) -> None:
    space = resolve("speculation", facts, draft=draft_of(facts, method))
    assert {"none", "ngram", "suffix", method} == set(space.knobs["method"].values())
    recipe = space.recipe()
    assert recipe is not None
    assert recipe["method"] == method
    assert space.refusal(recipe) is None


def test_speculation_without_a_draft_offers_what_needs_none(facts: Facts) -> None:
    with_mtp = facts.target.model_copy(update={"n_predict": 1})
    assert set(resolve("speculation", facts, draft=None).knobs["method"].values()) == {"none", "ngram", "suffix"}
    space = resolve("speculation", facts, draft=None, target=with_mtp)
    assert set(space.knobs["method"].values()) == {"none", "ngram", "suffix", "mtp"}
    assert "give --draft" in space.left_out["method"]


def test_a_method_that_a_release_dropped_is_not_offered(facts: Facts) -> None:
    draft = draft_of(facts, "medusa")
    offered = {
        v: "medusa" in resolve("speculation", facts, v, draft=draft).knobs["method"].values() for v in ("0.32", "0.33")
    }
    assert offered == {"0.32": True, "0.33": False}


@pytest.mark.parametrize(
    ("method", "values", "key"),
    [
        ("ngram", {"num_speculative_tokens": 4, "prompt_lookup_max": 5}, "prompt_lookup_max"),
        ("suffix", {"suffix_decoding_max_tree_depth": 12}, "suffix_decoding_max_tree_depth"),
        ("dflash", {"num_speculative_tokens": 4}, "model"),
    ],
)
def test_a_method_reaches_the_engine_with_its_own_fields_only(
    facts: Facts, method: str, values: dict[str, Any], key: str
) -> None:
    space = resolve("speculation", facts)
    everything = {name: knob.values()[-1] for name, knob in space.knobs.items()}
    argv = space.serve_config({**everything, "method": method, **values}).to_argv()
    config = json.loads(argv[argv.index("--speculative-config") + 1])
    assert config["method"] == method
    assert key in config
    foreign = {"ngram": "suffix_", "suffix": "prompt_", "dflash": "prompt_"}[method]
    assert [name for name in config if name.startswith(foreign)] == []
    assert ("num_speculative_tokens" in config) == METHODS[method].takes_k
    assert ("model" in config) == (method == "dflash")


def test_hybrids_get_the_knobs_of_their_states_and_others_do_not(facts: Facts) -> None:
    named = {"mamba_cache_mode", "mamba_block_size"}
    assert named <= set(resolve("memory", facts, "0.31", target_geometry=hybrid()).knobs)
    dense_space = resolve("memory", facts, "0.31")
    assert set() == named & set(dense_space.knobs)
    assert dense_space.left_out["mamba_cache_mode"] == "the model has no recurrent layers"
    # 0.32 has align only, which is what prefix caching does anyway
    assert "mamba_cache_mode" not in resolve("memory", facts, target_geometry=hybrid()).tunable()


def test_knobs_of_gpus_are_left_out_without_one(facts: Facts) -> None:
    space = resolve("full", facts, device="cpu", gpus=())
    assert set() == {"attention_backend", "cudagraph_mode", "kv_cache_dtype", "tensor_parallel_size"} & set(space.knobs)


@pytest.mark.parametrize(
    ("knobs", "complaint"),
    [
        ("x: {choices: [1, 2], flag: max-num-seq}", "no flag --max-num-seq; the nearest is 'max-num-seqs'"),
        ("x: {choices: [1], speculative_key: draft_sample_metod}", "the nearest is 'draft_sample_method'"),
        ("kv_cache_dtype: {choices: [auto, fp9]}", "does not take 'fp9' for --kv-cache-dtype; the nearest is 'fp8'"),
        ("method: {choices: [none, dflsh]}", "no speculative method 'dflsh'"),
        ("x: {choices: [synthetic], speculative_key: rejection_sample_method}", "fake or change the output"),
        ("x: {choices: [0.5], speculative_key: synthetic_acceptance_length}", "fakes or changes the output"),
        ("x: {choices: ['{}'], flag: speculative-config}", "write keys of --speculative-config as speculative_key"),
        ("x: {choices: [true], flag: no-async-scheduling}", "without no-"),
        ("num_speculative_tokens_per_batch_size: {choices: ['2-8:7']}", "must begin at batch size 1"),
    ],
)
def test_what_no_release_has_is_an_error_that_helps(tmp_path: Path, facts: Facts, knobs: str, complaint: str) -> None:
    path = write(tmp_path, f"name: mine\nextends: dflash\nknobs:\n  {knobs}\n")
    with pytest.raises(SpaceFileError) as refused:
        resolve(path, facts)
    assert complaint in str(refused.value)


@pytest.mark.parametrize("where", ["fixed: {how: fly}", "seeds: [{how: synthetic}]"])
def test_unsafe_values_get_in_by_no_other_door(tmp_path: Path, facts: Facts, where: str) -> None:
    knob = "{choices: [standard], speculative_key: rejection_sample_method}"
    with pytest.raises(SpaceFileError, match="fake or change"):
        resolve(write(tmp_path, f"name: mine\nextends: dflash\nknobs: {{how: {knob}}}\n{where}\n"), facts)
    with pytest.raises(EngineArgumentError, match="fake or change"):
        parse_engine_args(("--speculative-config", '{"method": "dflash", "rejection_sample_method": "fly"}'))


def test_any_flag_of_the_release_can_be_a_knob(tmp_path: Path, facts: Facts) -> None:
    path = write(
        tmp_path,
        "name: mine\nknobs:\n  interval: {choices: [1, 4], flag: stream-interval, engine_default: 1}\n"
        "  graphs: {choices: [NONE, PIECEWISE], flag: compilation-config, json_key: cudagraph_mode}\n"
        "  sizes: {choices: ['1,2,4'], flag: cudagraph-capture-sizes, written_as: integers}\n",
    )
    space = resolve(path, facts)
    argv = space.serve_config({"interval": 4, "graphs": "PIECEWISE", "sizes": "1,2,4"}).to_argv()
    assert argv[1:] == (
        *("--stream-interval", "4"),
        *("--compilation-config", '{"cudagraph_mode": "PIECEWISE"}'),
        *("--cudagraph-capture-sizes", "1", "2", "4"),
    )


def test_a_knob_by_another_name_is_judged_all_the_same(tmp_path: Path, facts: Facts) -> None:
    path = write(tmp_path, "name: mine\nextends: quick\nknobs: {users: {choices: [4, 4096], flag: max-num-seqs}}\n")
    space = resolve(path, facts)
    values: Mapping[str, Any] = {"method": "dflash", "num_speculative_tokens": 7}
    assert "max_num_seqs = 32768 exceeds" in (space.refusal(space.complete({**values, "users": 4096})) or "")
    assert space.refusal(space.complete({**values, "users": 4})) is None


def test_fixed_arguments_are_judged_like_knobs(facts: Facts) -> None:
    known = replace(facts, device="gpu", gpus=gpus(2, 80), target_geometry=dense())
    refused = {
        args: load_space("quick").resolve(known, fixed_args=parse_engine_args(args.split()), env={}).refusal({})
        for args in ("--max-num-seqs 16", "--max-num-batched-tokens 8 --max-num-seqs 16", "--tensor-parallel-size 4")
    }
    assert [bool(reason) for reason in refused.values()] == [False, True, True]


def test_every_knob_of_the_catalogue_is_valid_and_full_has_them_all() -> None:
    assert [catalogue_knob(name).optional for name in catalogue()] == [True] * len(catalogue())
    assert set(catalogue()) == set(load_space("full").knobs)


@settings(max_examples=30)
@given(st.integers(1, 400))
def test_a_sample_of_combinations_has_no_doubles_and_is_all_when_there_is_room(limit: int) -> None:
    facts = Facts(
        target=checkpoint("t", architecture="Qwen3ForCausalLM", layers=32),
        draft=None,
        release=release("0.32"),
        device="gpu",
        target_geometry=dense(),
    )
    space = load_space("dflash").resolve(facts, fixed_args={}, env={})
    seen = [json.dumps(values, sort_keys=True) for values in space.combinations(limit)]
    assert len(seen) == min(limit, space.size())
    assert len(set(seen)) == len(seen)


def test_a_sample_meets_every_value_of_every_knob(facts: Facts) -> None:
    space = resolve("full", facts)
    met: dict[str, set[Any]] = {name: set() for name in space.tunable()}
    for values in space.combinations(500):
        for name, seen in met.items():
            seen.add(values[name])
    assert {name: set(knob.values()) for name, knob in space.tunable().items()} == met


def test_a_fixed_argument_that_the_release_may_not_know_is_said_with_the_nearest() -> None:
    args = parse_engine_args(["--max-model-length", "4096", "--max_num_seqs", "4", "--compilation-config.mode", "3"])
    (sentence,) = unknown_flags(args, release("0.32"))
    assert "--max-model-length" in sentence
    assert "the nearest is 'max-model-len'" in sentence
