"""Redaction takes words out and leaves what a replay measures."""

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workloads.errors import LineError
from workloads.recorder.redaction import HashRedaction, PatternRedaction
from workloads.recorder.substitution import Substitution

KEY = b"k" * 32
SUBSTITUTION = Substitution(KEY)
LETTERS = st.sampled_from("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
WORDS = st.one_of(
    st.text(LETTERS, min_size=1, max_size=12),
    st.from_regex(r"[0-9]{1,12}", fullmatch=True),
    st.text(st.sampled_from("你好世界文字"), min_size=1, max_size=6),
    st.sampled_from(["the", "The", "THE", "answer", "return", "a", "I"]),
)
TEXTS = st.text(st.one_of(st.characters(codec="utf-8"), LETTERS, st.sampled_from(" \n\t.,0123456789")), max_size=200)


@given(WORDS, WORDS)
@example("the", "The")
@example("7", "8")
@example("07", "7")
def test_different_words_stay_different_and_keep_their_length(one: str, other: str) -> None:
    new = SUBSTITUTION.text(one)
    assert len(new) == len(one)
    assert (new == SUBSTITUTION.text(other)) == (one == other)


@given(TEXTS, TEXTS)
def test_texts_that_begin_alike_still_do(one: str, other: str) -> None:
    shared = "You are a helpful assistant, Ada. "
    assert SUBSTITUTION.text(shared + one).startswith(SUBSTITUTION.text(shared))
    assert SUBSTITUTION.text(shared + one) == SUBSTITUTION.text(shared) + SUBSTITUTION.text(one)
    assert SUBSTITUTION.text(f"{one} {other}") == f"{SUBSTITUTION.text(one)} {SUBSTITUTION.text(other)}"


@given(TEXTS)
def test_layout_stays(text: str) -> None:
    letters = re.compile(r"[^\W_]")
    assert letters.sub("", SUBSTITUTION.text(text)) == letters.sub("", text)


def test_a_common_word_becomes_a_common_word_so_that_it_remains_one_token() -> None:
    words = ["The", "answer", "should", "return", "several", "values", "Before", "THE", "server", "can", "write"]
    fresh = Substitution(KEY)
    common = {word for words in fresh._common.values() for word in words}
    replaced = fresh.text(" ".join(words)).split()
    assert all(word.lower() in common for word in replaced)
    assert [word[0].isupper() for word in replaced] == [word[0].isupper() for word in words]


def test_a_vocabulary_larger_than_the_common_words_stays_one_to_one() -> None:
    words = sorted({f"{a}{b}{c}{d}" for a in "bcdf" for b in "aeiou" for c in ("lm", "rst", "n") for d in "aeiouxyz"})
    words += [f"{word}{word}" for word in words]
    replaced = Substitution(KEY).text(" ".join(words)).split()
    assert len(set(replaced)) == len(words)
    assert [len(word) for word in replaced] == [len(word) for word in words]


def test_another_key_is_another_substitution() -> None:
    text = "whoever has the file cannot try words out"
    assert Substitution(b"x" * 32).text(text) != SUBSTITUTION.text(text)


def body() -> dict[str, Any]:
    """A request with a secret in every place that holds content."""
    schema = {"type": "object", "properties": {"city": {"type": "string", "description": "Zanzibar"}}}
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"city": "Zanzibar", "n": 10}'}}
    return {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Zanzibar"},
            {"role": "user", "name": "Zanzibar", "content": [{"type": "text", "text": "Zanzibar"}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:Zanzibar"}}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "Zanzibar"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "description": "Zanzibar", "parameters": schema}}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}},
        "stop": ["Zanzibar", "\n\n"],
        "user": "Zanzibar",
        "metadata": {"customer": "Zanzibar"},
        "an_unknown_extension": {"text": "Zanzibar"},
        "temperature": 0.1,
        "logit_bias": {"17": 1},
    }


def test_hash_reaches_every_text_and_leaves_a_request_that_can_be_sent() -> None:
    before = body()
    after = HashRedaction(KEY).body(before)
    assert "zanzibar" not in json.dumps(after).lower()
    assert before == body()
    for name in ("model", "temperature", "logit_bias"):
        assert after[name] == before[name]
    assert [message["role"] for message in after["messages"]] == [message["role"] for message in before["messages"]]
    function = after["messages"][3]["tool_calls"][0]["function"]
    assert function["name"] == "f"
    assert json.loads(function["arguments"])["n"] == 10
    assert after["tools"][0]["function"]["parameters"]["properties"]["city"]["type"] == "string"
    assert after["stop"][1] == "\n\n"


def test_hash_refuses_what_it_cannot_replace() -> None:
    with pytest.raises(LineError, match="token ids"):
        HashRedaction(KEY).body({"prompt": [1, 2, 3]})


def test_a_pattern_leaves_a_stable_placeholder_of_the_same_length_and_nothing_else_changes() -> None:
    redaction = PatternRedaction(KEY, [r"[\w.]+@[\w.]+", r"\d{6,}"])
    text = "Mail ada@example.org or call 030123456; again: ada@example.org, thanks"
    changed = redaction.body({"messages": [{"role": "user", "content": text}], "seed": 123456789})
    assert changed is not None
    new = changed["messages"][0]["content"]
    assert len(new) == len(text)
    assert re.fullmatch(r"Mail (\[[0-9a-f]{13}\]) or call \[[0-9a-f]{7}\]; again: \1, thanks", new)
    assert changed["seed"] == 123456789
    assert redaction.replaced == 3
    assert redaction.body({"prompt": "nothing to see"}) is None
