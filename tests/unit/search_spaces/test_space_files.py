"""Search spaces as files: inheritance, narrowing, and errors that name the file and the field."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from search_spaces import Facts, ResolvedSpace, SpaceFileError, load_space, preset_names


def write(directory: Path, text: str, name: str = "mine.yaml") -> str:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_every_preset_loads_under_its_own_name() -> None:
    assert preset_names() == ("batching", "dflash", "dflash2", "full", "memory", "quick", "speculation")
    assert [load_space(name).name for name in preset_names()] == list(preset_names())


def test_quick_is_dflash_without_the_removed_knobs() -> None:
    whole, quick = load_space("dflash"), load_space("quick")
    removed = {"kv_block_size", "max_num_seqs", "max_num_batched_tokens"}
    assert set(whole.knobs) - removed == set(quick.knobs)
    assert whole.seeds == quick.seeds


def test_a_child_narrows_choices_and_keeps_the_rest_of_the_knob(tmp_path: Path) -> None:
    path = write(tmp_path, "name: mine\nextends: dflash\nknobs: {kv_block_size: {choices: [32, 64]}}\n")
    knob = load_space(path).knobs["kv_block_size"]
    assert knob.values() == (32, 64)
    assert knob.flag == "block-size"


def test_a_child_turns_choices_into_a_range_and_back(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "name: mine\nextends: dflash\nknobs:\n"
        "  max_num_seqs: {low: 1, high: 3}\n  num_speculative_tokens: {choices: [3, 7]}\n",
    )
    knobs = load_space(path).knobs
    assert knobs["max_num_seqs"].values() == (1, 2, 3)
    assert knobs["num_speculative_tokens"].values() == (3, 7)
    assert "dflash" in knobs["num_speculative_tokens"].when["method"]


def test_a_removed_knob_leaves_no_trace_in_inherited_seeds(tmp_path: Path) -> None:
    path = write(tmp_path, "name: mine\nextends: dflash\nknobs: {prefix_caching: {remove: true}}\n")
    space = load_space(path)
    assert "prefix_caching" not in space.knobs
    assert all("prefix_caching" not in seed for seed in space.seeds)


def test_a_fixed_knob_is_not_searched_but_launched(tmp_path: Path, facts: Facts) -> None:
    path = write(tmp_path, "name: mine\nextends: quick\nfixed: {prefix_caching: false}\n")
    space = load_space(path).resolve(facts, fixed_args={}, env={})
    assert "prefix_caching" not in space.tunable()
    recipe = space.recipe()
    assert recipe is not None
    assert [space.baseline()["prefix_caching"], recipe["prefix_caching"]] == [False, False]
    assert [False] * len(space.seeds) == [seed["prefix_caching"] for seed in space.seeds]
    assert "--no-enable-prefix-caching" in space.serve_config(space.baseline()).to_argv()


def test_a_knob_with_a_single_choice_is_launched_with_it(tmp_path: Path, facts: Facts) -> None:
    path = write(tmp_path, "name: mine\nextends: quick\nknobs: {num_speculative_tokens: {choices: [5]}}\n")
    space = load_space(path).resolve(facts, fixed_args={}, env={})
    assert "num_speculative_tokens" not in space.tunable()
    config = space.serve_config(space.complete({"method": "dflash"}))
    assert '"num_speculative_tokens": 5' in " ".join(config.to_argv())
    assert "speculative" not in " ".join(space.serve_config(space.baseline()).to_argv())


def test_the_baseline_never_speculates_even_where_the_method_is_fixed(tmp_path: Path, facts: Facts) -> None:
    path = write(tmp_path, "name: mine\nextends: quick\nfixed: {method: dflash}\n")
    space = load_space(path).resolve(facts, fixed_args={}, env={})
    assert "--speculative-config" not in space.serve_config(space.baseline()).to_argv()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("knobs: {}\n", "name: Field required"),
        ("- a\n", "must be a mapping"),
        ("name: x\nknobs: [a]\n", "knobs: must map names to mappings"),
        ("name: x\nknobs: {a: 5}\n", "knobs: must map names to mappings"),
        ("name: x\nknobs: {a: {choices: [1]}}\n", "knobs.a: Value error, give exactly one of flag"),
        ("name: x\nextends: quick\nknobs: {prefix_caching: {chioces: [true]}}\n", "knobs.prefix_caching.chioces"),
        ("name: x\nextends: quick\nfixed: {prefix_cache: true}\n", "fixed.prefix_cache names no knob"),
        ("name: x\nextends: quick\nseeds: [{}, {kv_block: 32}]\n", "seeds.1.kv_block names no knob"),
        ("name: x\nextends: quick\nknobs: {method: {remove: true}}\n", ".when.method names no knob"),
        ("name: x\nextends: nothing\n", "search space 'nothing': no such file"),
        ("name: x\nknobs: {a: {choices: [1}\n", "not valid YAML"),
        ("name: x\nextra: 1\nknobs: {}\n", "extra: Extra inputs"),
        ("name: !!python/object/apply:os.system [echo]\n", "not valid YAML"),
    ],
)
def test_a_malformed_space_is_refused_with_the_place(tmp_path: Path, text: str, complaint: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SpaceFileError) as refused:
        load_space(path)
    assert complaint in str(refused.value)
    assert "mine.yaml" in str(refused.value) or "nothing" in str(refused.value)


def test_spaces_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    one, two = str(tmp_path / "one.yaml"), str(tmp_path / "two.yaml")
    write(tmp_path, f"name: one\nextends: {two}\n", "one.yaml")
    write(tmp_path, f"name: two\nextends: {one}\n", "two.yaml")
    with pytest.raises(SpaceFileError, match="extends itself"):
        load_space(one)


def test_a_missing_space_is_told_with_the_presets() -> None:
    with pytest.raises(SpaceFileError, match="presets batching, dflash, dflash2"):
        load_space("quikc")


def test_a_space_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpaceFileError, match="cannot be read"):
        load_space(str(path))


def test_k_ends_where_the_draft_block_does(facts: Facts) -> None:
    space = load_space("dflash").resolve(facts, fixed_args={}, env={})
    assert tuple(range(1, 16)) == space.knobs["num_speculative_tokens"].values()


def test_an_unknown_draft_block_asks_for_a_number(facts: Facts) -> None:
    assert facts.draft is not None
    blockless = replace(facts, draft=facts.draft.model_copy(update={"draft_block": None}))
    with pytest.raises(SpaceFileError, match="num_speculative_tokens has no upper end"):
        load_space("dflash").resolve(blockless, fixed_args={}, env={})


def test_a_range_above_the_draft_block_is_refused(tmp_path: Path, facts: Facts) -> None:
    path = write(tmp_path, "name: x\nextends: quick\nknobs: {num_speculative_tokens: {low: 20, high: draft_block}}\n")
    with pytest.raises(SpaceFileError, match="low is 20, but the draft's block allows 15"):
        load_space(path).resolve(facts, fixed_args={}, env={})


def test_without_a_draft_nothing_of_speculation_is_left(facts: Facts) -> None:
    space = load_space("dflash").resolve(replace(facts, draft=None), fixed_args={}, env={})
    assert {"prefix_caching", "kv_block_size", "max_num_seqs", "max_num_batched_tokens"} == set(space.knobs)
    assert space.recipe() is None
    assert space.seeds == ({"prefix_caching": False},)


def test_the_block_drop_is_a_knob_where_the_release_has_and_needs_it(
    resolved: Callable[..., ResolvedSpace],
) -> None:
    found = {
        version: "disable_eagle_block_drop" in resolved(version=version).knobs
        for version in ("0.29", "0.30", "0.32", "0.33")
    }
    assert found == {"0.29": False, "0.30": True, "0.32": True, "0.33": False}


def test_a_starting_point_is_not_lost_to_the_token_budget_alone(resolved: Callable[..., ResolvedSpace]) -> None:
    space = resolved(device="gpu")
    corner = next(
        seed for seed in space.seeds if seed.get("method") == "dflash" and seed.get("prefix_caching") is False
    )
    assert "max_num_batched_tokens" in (space.refusal(space.complete(corner)) or "")
    raised = space.starting_point(corner)
    assert (raised["max_num_batched_tokens"], space.refusal(raised)) == (4096, None)


def test_refused_combinations_are_counted_by_rule(resolved: Callable[..., ResolvedSpace]) -> None:
    refused = resolved().refused(2_000)
    # On the CPU a KV block of 16 is refused: one of the five sizes.
    assert set(refused) == {"kv_block_size_is_aligned", "token_budget_holds_drafts"}
    assert "kv_block_size=16" in refused["kv_block_size_is_aligned"][1]
