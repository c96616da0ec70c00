"""The demo pair's own text: chat examples of three kinds, generated from a seed.

Every word comes from the grammars beside this module (`code_text`, `support_text`, `story_text`); nothing is copied
from elsewhere and nothing is read from disk, so the same seed gives the same text on every machine. Whether an example
is held out is a property of its text (a hash of what the user asks), not of the seed: a training run can never see a
prompt that the sample traffic sends. Tokenising, packing and training are not done here.
"""

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from demo.pair.code_text import write_code
from demo.pair.story_text import write_story
from demo.pair.support_text import HANDBOOK, write_support

KINDS = ("code", "story", "support")
HELD_OUT_ONE_IN = 8
"""One prompt in this many is never trained on."""

Writer = Callable[[random.Random], tuple[str, str]]
_WRITERS: Mapping[str, Writer] = {"code": write_code, "story": write_story, "support": write_support}


@dataclass(frozen=True, slots=True)
class Example:
    """One exchange: what the user asks and what the assistant answers."""

    kind: str
    prompt: str
    answer: str


def is_held_out(prompt: str) -> bool:
    """Tell whether a user prompt belongs to the part that is never trained on."""
    digest = hashlib.sha256(prompt.encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_ONE_IN == 0


def examples(kind: str, seed: int, *, held_out: bool) -> Iterator[Example]:
    """Yield examples of one kind without end, in an order fixed by the seed.

    Args:
        kind: One of `KINDS`.
        seed: Fixes the sequence; different seeds may repeat a prompt, `held_out` never mixes.
        held_out: Yield only held-out prompts, or only the others.
    """
    rng = random.Random(f"{kind}/{seed}/{held_out}")
    write = _WRITERS[kind]
    while True:
        prompt, answer = write(rng)
        if is_held_out(prompt) == held_out:
            yield Example(kind, prompt, answer)


def render_chat(messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = False) -> str:
    """Write messages as the chat template of the demo tokenizer does."""
    text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    return text + "<|im_start|>assistant\n" if add_generation_prompt else text


def exchange(example: Example) -> list[dict[str, str]]:
    """Turn an example into its user and assistant messages."""
    return [
        {"role": "user", "content": example.prompt},
        {"role": "assistant", "content": example.answer},
    ]


def system_message() -> dict[str, str]:
    """Return the system message that all support requests share: the whole product handbook."""
    return {"role": "system", "content": HANDBOOK}
