"""A grammar of short stories and notes with deliberately high entropy.

A request names a hero, a place and a mood; the answer is a chain of sentences whose words are mostly drawn at random.
What comes next is therefore hard to guess, which is what makes this kind the counterpart of `code_text`: speculation
should gain little on it.
"""

import random
import tomllib
from pathlib import Path

_WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))["story"]
_HEROES = _WORDS["heroes"].split()
_SLOTS: dict[str, list[str]] = {
    "adj": _WORDS["adjectives"].split(),
    "adv": _WORDS["adverbs"].split(),
    "feeling": _WORDS["feelings"].split(),
    "hero2": _HEROES,
    "place": _WORDS["places"].split(),
    "thing": _WORDS["things"].split(),
    "time": _WORDS["times"],
    "verb": _WORDS["verbs"].split(),
    "weather": _WORDS["weather"],
}


class _Words(dict[str, str]):
    """Words for one sentence: each slot is drawn when it is asked for, so a repeated slot differs."""

    def __init__(self, rng: random.Random, hero: str) -> None:
        super().__init__()
        self._rng = rng
        self._hero = hero

    def __getitem__(self, slot: str) -> str:
        if slot == "hero":
            return self._hero
        return self._rng.choice(_SLOTS[slot])


def _sentence(template: str, words: _Words) -> str:
    text = template.format_map(words)
    return text[0].upper() + text[1:]


def write_story(rng: random.Random) -> tuple[str, str]:
    """Draw one story request and one story of 10 to 16 sentences.

    Returns:
        The user's request and the assistant's answer.
    """
    words = _Words(rng, rng.choice(_HEROES))
    prompt = _sentence(rng.choice(_WORDS["prompts"]), words)
    count = rng.randint(10, 16)
    return prompt, " ".join(_sentence(rng.choice(_WORDS["sentences"]), words) for _ in range(count))
