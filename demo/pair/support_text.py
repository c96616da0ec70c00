"""A fictional shop's product handbook, and questions that it answers.

`HANDBOOK` is the one long system prompt that all support requests share. Handbook, questions and answers are all built
from the facts in `handbook.toml`, so an answer always repeats the handbook's words. Shop, products and numbers are
invented.
"""

import random
import tomllib
from pathlib import Path
from typing import Any

_FACTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("handbook.toml").read_text(encoding="utf-8"))
_PRODUCTS: list[dict[str, str]] = _FACTS["products"]
_POLICIES: list[dict[str, str]] = _FACTS["policies"]
_ASPECTS: list[dict[str, Any]] = _FACTS["aspects"]

_INSTRUCTIONS = (
    "You are the support assistant of Fernhill Goods, a shop for things that last. "
    "Answer in one or two short sentences.\n"
    "Use only this handbook. Repeat its words. If it does not say, offer extension 240."
)
_GREETINGS = (
    "",
    "Hello. ",
    "Hi, ",
    "Good morning. ",
    "Quick question: ",
    "One more thing: ",
    "Please help. ",
    "Thanks. ",
)
_MOODS = ("", " I am in a hurry.", " It is a gift.", " I ordered it last week.", " I could not find it.", " Thank you!")
_POLICY_QUESTIONS = ("How do I {t}?", "I want to {t}.", "Can I {t}?", "What is the way to {t}?")
_POLICY_SHARE = 0.2


def _handbook() -> str:
    parts = [_INSTRUCTIONS, "# Products"]
    for number, product in enumerate(_PRODUCTS, start=1):
        parts.append(f"## {number}. {product['name']} {product['what']}")
        parts.extend(f"- {aspect['answer'].format(**product)}" for aspect in _ASPECTS)
    parts.append("# General notes")
    parts.extend(f"- {aspect['closing']}" for aspect in _ASPECTS)
    parts.append("# Policies")
    parts.extend(f"- To {policy['topic']}: {policy['rule']}" for policy in _POLICIES)
    return "\n".join(parts)


HANDBOOK = _handbook()


def write_support(rng: random.Random) -> tuple[str, str]:
    """Draw one customer question and the answer in the handbook's words.

    Returns:
        The user's question and the assistant's answer.
    """
    greeting, mood = rng.choice(_GREETINGS), rng.choice(_MOODS)
    if rng.random() < _POLICY_SHARE:
        policy = rng.choice(_POLICIES)
        question = rng.choice(_POLICY_QUESTIONS).format(t=policy["topic"])
        return f"{greeting}{question}{mood}", policy["rule"]
    product, aspect = rng.choice(_PRODUCTS), rng.choice(_ASPECTS)
    name = rng.choice((product["name"], f"{product['name']} {product['what']}", product["what"]))
    question = rng.choice(aspect["questions"]).format(p=name, f=product["fault"])
    return f"{greeting}{question}{mood}", f"{aspect['answer'].format(**product)} {aspect['closing']}"
