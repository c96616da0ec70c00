"""Tokens and text: prefix-stable, one token per word, a function of the prompt."""

import pytest

from runners.simulated.text import WORDS, Answer, render_chat, seed_of, token_text, tokenize, word_token


def test_tokens_of_a_prefix_are_a_prefix_of_the_tokens() -> None:
    text = "def add(first, second):\n    return first + second  # 12345 größe\n" * 3
    tokens = tokenize(text)
    for cut in range(1, len(text)):
        known = tokenize(text[:cut])[:-1]
        assert tokens[: len(known)] == known


def test_every_word_is_one_token_with_its_leading_space() -> None:
    assert len(set(WORDS)) == len(WORDS)
    assert {len(tokenize(word)) for word in WORDS} == {1}


def test_generated_text_is_tokenised_into_the_generated_tokens() -> None:
    answer = Answer(77, 50, closed=False)
    assert tokenize(answer.text(0, 50)) == tuple(answer.token(index) for index in range(50))
    assert tokenize("\n" + answer.text(0, 50))[1:] == tuple(word_token(77, index) for index in range(50))


def test_chunks_join_to_the_whole_text() -> None:
    answer = Answer(5, 40, closed=True)
    assert "".join(answer.text(start, start + 7) for start in range(0, 42, 7)) == answer.text(0, 40)


def test_the_closing_token_counts_but_has_no_text() -> None:
    closed, cut = Answer(5, 10, closed=True), Answer(5, 10, closed=False)
    assert closed.text(0, 10) == cut.text(0, 9)
    assert (closed.finish_reason, cut.finish_reason) == ("stop", "length")


def test_a_stop_string_ends_the_answer_where_it_is_complete() -> None:
    plain = Answer(9, 30, closed=False)
    word = token_text(9, 11)
    first = next(index for index in range(30) if token_text(9, index) == word)
    stopped = Answer(9, 30, closed=False, stop=(word.strip() + " ", word))
    assert stopped.tokens == first + 1
    assert stopped.finish_reason == "stop"
    assert plain.text(0, 30).startswith(stopped.text(0, stopped.tokens))


def test_a_stop_string_that_does_not_occur_changes_nothing() -> None:
    assert Answer(9, 30, closed=False, stop=("%%%",)).tokens == 30


def test_a_corrupt_answer_differs_only_at_every_sixteenth_token() -> None:
    right, wrong = Answer(9, 64, closed=False), Answer(9, 64, closed=False, corrupt=16)
    different = [index for index in range(64) if right.text(index, index + 1) != wrong.text(index, index + 1)]
    assert set(different) <= {15, 31, 47, 63}
    assert different


def test_seeds_depend_on_every_token_and_on_what_is_added() -> None:
    assert seed_of((1, 2, 3)) == seed_of((1, 2, 3))
    assert len({seed_of((1, 2, 3)), seed_of((1, 2, 4)), seed_of((3, 2, 1)), seed_of((1, 2, 3), 1)}) == 4


@pytest.mark.parametrize(
    ("content", "text"),
    [("hello", "hello"), ([{"type": "text", "text": "he"}, {"type": "text", "text": "llo"}], "hello"), (None, "")],
)
def test_chat_content_may_be_a_string_parts_or_nothing(content: object, text: str) -> None:
    assert render_chat([{"role": "user", "content": content}]) == f"<|user|>\n{text}\n<|assistant|>\n"
