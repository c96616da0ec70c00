"""From knob values to a command line and a YAML that start the same engine, under an id that says so."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces import Checkpoint, EngineArgumentError, Facts, ResolvedSpace, load_release, load_space
from search_spaces import parse_engine_args as parse


def flags_of_argv(argv: tuple[str, ...]) -> dict[str, Any]:
    return {name: parse_value(value) for name, value in parse(argv[1:]).items()}


def flags_of_yaml(text: str) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    for name, value in yaml.safe_load(text).items():
        if name.startswith("no-"):
            assert value is True
            flags[name.removeprefix("no-")] = False
        elif name != "model":
            flags[name] = parse_value(value)
    return flags


def parse_value(value: Any) -> Any:
    return value if isinstance(value, bool | dict) else str(value)


def test_argv_and_yaml_say_the_same(resolved: Callable[..., ResolvedSpace]) -> None:
    space = resolved()
    values: dict[str, Any] = {
        "method": "dflash",
        "num_speculative_tokens": 7,
        "prefix_caching": False,
        "kv_block_size": 64,
    }
    config = space.serve_config(values)
    expected = {
        "dtype": "float32",
        "enable-prefix-caching": False,
        "block-size": "64",
        "speculative-config": {"method": "dflash", "num_speculative_tokens": 7, "model": "/models/draft"},
    }
    assert expected == flags_of_argv(config.to_argv())
    assert expected == flags_of_yaml(config.to_yaml())
    assert config.to_argv()[0] == yaml.safe_load(config.to_yaml())["model"] == "/models/target"


def test_a_switch_that_is_off_takes_the_form_that_every_release_reads(resolved: Callable[..., ResolvedSpace]) -> None:
    config = resolved().serve_config({"prefix_caching": False})
    assert "--no-enable-prefix-caching" in config.to_argv()
    assert yaml.safe_load(config.to_yaml())["no-enable-prefix-caching"] is True


def test_no_speculation_leaves_no_speculative_config(resolved: Callable[..., ResolvedSpace]) -> None:
    config = resolved().serve_config({"method": "none", "num_speculative_tokens": 7})
    assert "--speculative-config" not in config.to_argv()


def test_a_null_is_left_to_the_engine(resolved: Callable[..., ResolvedSpace]) -> None:
    assert "--block-size" not in resolved().serve_config({"kv_block_size": None}).to_argv()


def test_a_tuned_flag_replaces_a_fixed_one(facts: Facts) -> None:
    space = load_space("dflash").resolve(facts, fixed_args={"max-num-seqs": 8}, env={})
    assert space.serve_config({"max_num_seqs": 64}).engine_args["max-num-seqs"] == 64
    assert space.serve_config({}).engine_args["max-num-seqs"] == 8


@pytest.mark.parametrize(
    ("values", "label"),
    [
        ({}, "no speculation"),
        ({"num_speculative_tokens": 7}, "no speculation"),
        ({"prefix_caching": False}, "no speculation, prefix_caching=off"),
        ({"method": "dflash", "num_speculative_tokens": 7}, "dflash K=7"),
        (
            {"method": "dflash", "num_speculative_tokens": 3, "kv_block_size": 32, "disable_eagle_block_drop": True},
            "dflash K=3, disable_eagle_block_drop=on, kv_block_size=32",
        ),
    ],
)
def test_a_label_names_what_is_not_the_default(
    resolved: Callable[..., ResolvedSpace], values: dict[str, Any], label: str
) -> None:
    assert label == resolved().serve_config(values).label()


def test_the_id_is_the_same_in_every_process_and_release_of_python(resolved: Callable[..., ResolvedSpace]) -> None:
    # Written down once: a change here means that old studies are not recognised any more.
    assert resolved().serve_config({"method": "dflash", "num_speculative_tokens": 7}).id == "4196ac1388"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"method": "none", "num_speculative_tokens": 9}),
        ({}, {"prefix_caching": True, "kv_block_size": None}),
        ({"disable_eagle_block_drop": True}, {"disable_eagle_block_drop": False}),
        (
            {"method": "dflash", "num_speculative_tokens": 3, "prefix_caching": False},
            {
                "method": "dflash",
                "num_speculative_tokens": 3,
                "prefix_caching": False,
                "disable_eagle_block_drop": True,
            },
        ),
    ],
)
def test_equal_launches_have_one_id(
    resolved: Callable[..., ResolvedSpace], one: dict[str, Any], other: dict[str, Any]
) -> None:
    space = resolved()
    assert space.serve_config(one).id == space.serve_config(other).id
    assert space.serve_config(one).to_argv() == space.serve_config(other).to_argv()


def test_different_launches_have_different_ids(facts: Facts) -> None:
    values: dict[str, Any] = {"method": "dflash", "num_speculative_tokens": 7}
    spaces = [
        load_space("dflash").resolve(facts, fixed_args=dict(args), env=dict(env))
        for args, env in (([], []), ([("dtype", "float32")], []), ([], [("A", "1")]))
    ]
    ids = [space.serve_config(values).id for space in spaces]
    ids += [spaces[0].serve_config({**values, "num_speculative_tokens": k}).id for k in (1, 15)]
    ids += [spaces[0].serve_config({**values, "disable_eagle_block_drop": True}).id, spaces[0].serve_config({}).id]
    assert len(ids) == len(set(ids))


def _space() -> ResolvedSpace:
    target = Checkpoint(
        path="/models/target",
        architectures=("Qwen3ForCausalLM",),
        hidden_size=128,
        vocab_size=4096,
        num_hidden_layers=32,
        max_position_embeddings=4096,
    )
    draft = target.model_copy(
        update={"path": "/models/draft", "architectures": ("DFlashDraftModel",), "draft_block": 16}
    )
    facts = Facts(target=target, draft=draft, release=load_release("0.32.0")[0], device="cpu")
    return load_space("dflash").resolve(facts, fixed_args={}, env={})


SPACE = _space()
ANY_VALUES = st.fixed_dictionaries({name: st.sampled_from(knob.values()) for name, knob in SPACE.tunable().items()})


@settings(deadline=None)
@given(values=ANY_VALUES, data=st.data())
def test_the_id_ignores_every_dead_knob(values: dict[str, Any], data: st.DataObject) -> None:
    config = SPACE.serve_config(values)
    changed = dict(values)
    for name, knob in SPACE.tunable().items():
        if not knob.is_alive(SPACE.complete(values)):
            changed[name] = data.draw(st.sampled_from(knob.values()), label=name)
    assert config.id == SPACE.serve_config(changed).id
    assert config.to_argv() == SPACE.serve_config(changed).to_argv()


@settings(deadline=None)
@given(one=ANY_VALUES, other=ANY_VALUES)
def test_equal_ids_mean_equal_command_lines_and_the_reverse(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = SPACE.serve_config(one), SPACE.serve_config(other)
    assert (first.id == second.id) == (_without_defaults(first.to_argv()) == _without_defaults(second.to_argv()))


def _without_defaults(argv: tuple[str, ...]) -> list[str]:
    """The words without those that ask for what the engine does anyway."""
    words = [word for word in argv if word != "--enable-prefix-caching"]
    return [word.replace(', "disable_eagle_block_drop": false', "") for word in words]


@settings(deadline=None)
@given(values=ANY_VALUES)
def test_argv_and_yaml_agree_for_all_values(values: dict[str, Any]) -> None:
    config = SPACE.serve_config(values)
    assert flags_of_argv(config.to_argv()) == flags_of_yaml(config.to_yaml())


@pytest.mark.parametrize(
    ("words", "parsed"),
    [
        ([], {}),
        (["--enforce-eager"], {"enforce-eager": True}),
        (["--no-enable-prefix-caching"], {"enable-prefix-caching": False}),
        (["--max-num-seqs", "8"], {"max-num-seqs": 8}),
        (["--max-num-seqs=8"], {"max-num-seqs": 8}),
        (["--gpu-memory-utilization", "0.9"], {"gpu-memory-utilization": 0.9}),
        (["--gpu-memory-utilization", "0.90"], {"gpu-memory-utilization": "0.90"}),
        (["--revision", "12345e7"], {"revision": "12345e7"}),
        (["--revision", "0012"], {"revision": "0012"}),
        (["--revision", "1_000"], {"revision": "1_000"}),
        (["--x", "inf"], {"x": "inf"}),
        (["--x", "-1"], {"x": -1}),
        (["--x="], {"x": ""}),
        (["--x", "a=b"], {"x": "a=b"}),
        (["--hf-overrides", '{"a": [1]}'], {"hf-overrides": {"a": [1]}}),
    ],
)
def test_engine_arguments_are_taken_as_written(words: list[str], parsed: dict[str, Any]) -> None:
    assert parsed == parse(words)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["float32"], "follows no --flag"),
        (["--dtype", "float32", "x"], "'x' follows no --flag"),
        (["--port", "8000"], "--port is set by the tuner"),
        (["--host=0.0.0.0"], "--host is set by the tuner"),
        (["--api-key", "k"], "--api-key is set by the tuner"),
        (["--hf-overrides", '{"a":'], "not valid JSON"),
    ],
)
def test_engine_arguments_that_cannot_be_carried_are_refused(words: list[str], complaint: str) -> None:
    with pytest.raises(EngineArgumentError) as refused:
        parse(words)
    assert complaint in str(refused.value)


def test_the_recipe_is_the_longest_k_with_the_cache(resolved: Callable[..., ResolvedSpace]) -> None:
    recipe = resolved().recipe()
    assert recipe is not None
    assert tuple(recipe[n] for n in ("method", "num_speculative_tokens", "prefix_caching")) == ("dflash", 15, True)
    assert recipe["max_num_batched_tokens"] is None


@pytest.mark.parametrize(("name", "device"), [("dflash", "gpu"), ("dflash", "large_gpu"), ("quick", "large_gpu")])
def test_the_recipe_raises_the_token_budget_where_the_defaults_do_not_hold_it(
    resolved: Callable[..., ResolvedSpace], name: str, device: str
) -> None:
    space = resolved(name, device=device)
    recipe = space.recipe()
    assert recipe is not None
    assert space.refusal({**recipe, "max_num_batched_tokens": None}) is not None
    assert space.refusal(recipe) is None
    budget = {"gpu": 4096, "large_gpu": 16384}[device]
    argv = space.serve_config(recipe).to_argv()
    assert str(budget) == argv[argv.index("--max-num-batched-tokens") + 1]


def test_the_size_counts_combinations(resolved: Callable[..., ResolvedSpace]) -> None:
    assert resolved().size() == 2 * 15 * 2 * 2 * 5 * 4 * 4


def test_the_draft_reaches_the_engine_as_json_with_spaces_and_quotes(facts: Facts) -> None:
    assert facts.draft is not None
    hostile = """/models/it's "the" draft; $(touch x)"""
    space = load_space("quick").resolve(
        replace(facts, draft=facts.draft.model_copy(update={"path": hostile})), fixed_args={}, env={}
    )
    argv = space.serve_config({"method": "dflash", "num_speculative_tokens": 3}).to_argv()
    assert hostile == json.loads(argv[argv.index("--speculative-config") + 1])["model"]


def test_a_token_for_the_hub_is_refused_because_exports_would_show_it() -> None:
    with pytest.raises(EngineArgumentError, match="hf-token"):
        parse(("--hf-token", "x"))
