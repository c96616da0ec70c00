"""The demo corpus: deterministic, split for good, parseable, and small enough for the models' context."""

import ast
import itertools

import pytest

from demo.pair.corpus import HELD_OUT_ONE_IN, KINDS, Example, examples, is_held_out, render_chat
from demo.pair.support_text import HANDBOOK


def _draw(kind: str, seed: int, count: int, *, held_out: bool) -> list[Example]:
    return list(itertools.islice(examples(kind, seed, held_out=held_out), count))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_text(kind: str) -> None:
    assert _draw(kind, 3, 50, held_out=False) == _draw(kind, 3, 50, held_out=False)


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_gives_other_text(kind: str) -> None:
    assert _draw(kind, 3, 50, held_out=False) != _draw(kind, 4, 50, held_out=False)


@pytest.mark.parametrize("kind", KINDS)
def test_training_and_held_out_prompts_never_meet_whatever_the_seeds(kind: str) -> None:
    trained = {example.prompt for seed in range(3) for example in _draw(kind, seed, 300, held_out=False)}
    held_out = {example.prompt for seed in range(3) for example in _draw(kind, seed, 100, held_out=True)}
    assert set() == trained & held_out


def test_about_one_prompt_in_eight_is_held_out() -> None:
    share = sum(is_held_out(f"prompt {number}") for number in range(4000)) / 4000
    assert abs(share - 1 / HELD_OUT_ONE_IN) < 0.02


def test_every_code_answer_is_valid_python_in_a_fence() -> None:
    for example in _draw("code", 5, 300, held_out=True):
        first, *lines, last = example.answer.split("\n")
        assert (first, last) == ("```python", "```")
        ast.parse("\n".join(lines))


def test_code_prompts_hardly_repeat() -> None:
    drawn = _draw("code", 6, 1000, held_out=False)
    assert len({example.prompt for example in drawn}) > 990


def test_a_support_answer_stands_in_the_handbook_word_for_word() -> None:
    for example in _draw("support", 7, 200, held_out=True):
        assert example.answer.split(". ", maxsplit=1)[0] in HANDBOOK


def test_chat_text_carries_the_marks_of_the_chat_template() -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    expected = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>assistant\n"
    assert expected == render_chat(messages, add_generation_prompt=True)
