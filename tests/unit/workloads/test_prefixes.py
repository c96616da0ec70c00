"""What an endless prefix cache would find, against a search through all earlier prompts."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import Recorded, Request
from workloads.columns import Columns, Numbers
from workloads.prefixes import CHARS_PER_TOKEN, KV_BLOCK_SIZES, SeenBlocks, chain, hit_tokens


def numbers(prompts: Sequence[str | list[int]], recorded_tokens: int | None = None) -> Numbers:
    columns = Columns()
    for line, prompt in enumerate(prompts):
        recorded = Recorded(prompt_tokens=recorded_tokens) if recorded_tokens else None
        columns.add(Request(f"r{line}", None, "/v1/completions", {"prompt": prompt}, recorded=recorded, line=line))
    return columns.numbers()


@st.composite
def families(draw: st.DrawFn) -> list[list[int]]:
    """Prompts of token ids that branch off each other at any place."""
    prompts: list[list[int]] = []
    for number in range(draw(st.integers(1, 12))):
        stem = draw(st.sampled_from(prompts)) if prompts else []
        kept = stem[: draw(st.integers(0, len(stem)))]
        prompts.append(kept + [1000 + number] * draw(st.integers(0 if kept else 1, 1200)))
    return prompts


def found_by_search(prompts: Sequence[Sequence[object]], size: int) -> list[int]:
    """Tokens in full blocks of the longest beginning that an earlier prompt has, one token always left to compute."""
    found = []
    for place, prompt in enumerate(prompts):
        blocks = [
            count
            for count in range((len(prompt) - 1) // size + 1)
            if any(list(earlier[: count * size]) == list(prompt[: count * size]) for earlier in prompts[:place])
        ]
        found.append(max(blocks, default=0) * size)
    return found


@settings(max_examples=25, deadline=None)
@given(families(), st.sampled_from(KV_BLOCK_SIZES))
def test_hits_are_those_that_a_search_finds_at_every_kv_block_size(prompts: list[list[int]], size: int) -> None:
    seen = numbers(prompts)
    assert hit_tokens(seen.shared_tokens, seen.prompt_tokens, size).tolist() == found_by_search(prompts, size)


def test_text_counts_as_four_characters_a_token_where_nothing_was_recorded() -> None:
    shared = "s" * 64 * 40
    seen = numbers([shared + "a" * 200, shared + "b" * 200])
    assert seen.prompt_tokens.tolist() == [690, 690]
    assert seen.shared_tokens.tolist() == [0, 640]
    assert not seen.prompt_known.any()


def test_a_recorded_length_says_how_many_characters_a_token_has() -> None:
    shared = "漢" * 64 * 10
    seen = numbers([shared + "a" * 640, shared + "b" * 640], recorded_tokens=1280)
    assert seen.shared_tokens.tolist() == [0, 640]
    assert hit_tokens(seen.shared_tokens, seen.prompt_tokens, 640).tolist() == [0, 640]
    assert seen.prompt_known.all()


def test_tools_are_the_beginning_of_a_prompt_and_roles_are_part_of_it() -> None:
    tools = [{"type": "function", "function": {"name": "look_up", "description": "d" * 400}}]
    messages = [{"role": "user", "content": "x" * 400}]
    columns = Columns()
    for body in ({"tools": tools}, {"tools": tools}, {}, {"role": "system"}):
        first = {**messages[0], "role": body.pop("role", "user")}
        columns.add(Request("r", None, "/v1/chat/completions", {**body, "messages": [first]}))
    assert (columns.numbers().shared_tokens > 0).tolist() == [False, True, False, False]


def test_a_prompt_is_a_repeat_only_if_all_of_it_is() -> None:
    seen = numbers(["a" * 70, "a" * 71, "a" * 70])
    assert len(np.unique(seen.prompt_hash)) == 2


def test_blocks_in_use_are_remembered_and_memory_is_bounded() -> None:
    seen = SeenBlocks(remembered=100)
    used = chain("used" * 160)
    seen.add(used)
    for number in range(300):
        fresh = chain(f"{number} " + "x" * 640)
        assert seen.add(fresh) == 0
        assert seen.add(used) == len(used)
        assert len(seen._recent) + len(seen._older) <= 2 * (100 + len(fresh))
    assert seen.add(chain("0 " + "x" * 640)) == 0


@pytest.mark.parametrize("kv_block_size", KV_BLOCK_SIZES)
def test_kv_block_sizes_are_whole_numbers_of_compared_blocks(kv_block_size: int) -> None:
    assert kv_block_size % 16 == 0
    assert len(chain("x" * kv_block_size * CHARS_PER_TOKEN)) == kv_block_size // 16
