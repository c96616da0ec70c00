"""The numbers of each request of a traffic, in arrays: everything that is said about traffic is computed from these.

Holds no text: prompts are looked at when they pass, and leave lengths and hashes. Memory is about 250 bytes a request,
whatever its prompt's length. What the numbers say is in `arrivals.py`, `conversations.py`, `clustering.py`,
`sampling.py` and `inspection.py`.
"""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.prefixes import BLOCK_TOKENS, CHARS_PER_TOKEN, HEAD_DEPTHS, Floats, SeenBlocks, chain, heads
from workloads.rendering import asked, has_media, prompts
from workloads.request import Request

FLAGS = ("structured_output", "tools", "several_choices", "media", "code", "failed", "in_session")
"""What a request has or not; the position is the bit in `Numbers.flags`."""

SETTINGS = (
    *("top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("seed", "stop", "logit_bias", "logprobs", "chat_template_kwargs"),
)
"""Sampling fields, counted where a body has them; the position is the bit in `Numbers.settings`."""

STRUCTURED = ("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar")

CODE_MARKS_PER_100_WORDS = 2.0
"""From so many marks of code on, a text is code; prose has nearly none, a question about code has several."""

LOOKED_AT_CHARS = 500
"""Characters at the end of the latest user message that are searched for code."""

_CODE_MARKS = (
    *("_", "()", "==", "!=", ">=", "<=", "+=", "->", "=>", "::", "&&", "</", "/>", "```", '":'),
    *(";\n", "{\n", "}\n", "\n    ", "\nimport ", "def ", "const ", "#include", "SELECT ", "WHERE "),
)

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Numbers:
    """One value a request, in order of arrival. NaN where the recording does not say.

    Attributes:
        offset_s: Arrival since the first request.
        duration_s: Recorded time from sending to the end.
        prompt_tokens: As recorded, else the number of token ids, else estimated from characters.
        prompt_known: Whether that is a count and no estimate.
        shared_tokens: Of the prompt's beginning, those that an earlier prompt had too.
        output_tokens: As recorded.
        max_tokens: Limit on generated tokens.
        cached_tokens: Recorded prompt tokens that the cache served.
        temperature: As recorded; NaN means the server's default.
        session: Number of the conversation; a request without one has its own.
        label: Number of the profile label in `Columns.labels`.
        model: Number of the model name in `Columns.models`.
        flags: Bits by `FLAGS`.
        settings: Bits by `SETTINGS`.
        prompt_hash: Equal for equal prompts.
        heads: Hashes of beginnings, requests x `HEAD_DEPTHS`; 0 beyond the end.
    """

    offset_s: Floats
    duration_s: Floats
    prompt_tokens: Floats
    prompt_known: Bools
    shared_tokens: Floats
    output_tokens: Floats
    max_tokens: Floats
    cached_tokens: Floats
    temperature: Floats
    session: Ints
    label: Ints
    model: Ints
    flags: Ints
    settings: Ints
    prompt_hash: Ints
    heads: Ints

    def __len__(self) -> int:
        return len(self.session)

    def has(self, flag: str) -> Bools:
        """Which requests have a flag of `FLAGS`."""
        return np.asarray(self.flags >> FLAGS.index(flag) & 1, dtype=np.bool_)

    def where(self, chosen: Bools | Ints) -> "Numbers":
        """The numbers of some requests."""
        return Numbers(**{name: getattr(self, name)[chosen] for name in self.__slots__})


class Columns:
    """Collects the numbers of requests that pass by.

    Args:
        label: What names a request's profile; None where it has no such label.
    """

    def __init__(self, label: Callable[[Request], str | None] = lambda _: None) -> None:
        self.labels: dict[str | None, int] = {}
        self.models: dict[str, int] = {}
        self.tag_keys: set[str] = set()
        self._label = label
        self._seen = SeenBlocks()
        self._sessions: dict[str, int] = {}
        self._session_count = 0
        self._floats = {name: array("d") for name in Numbers.__annotations__ if Numbers.__annotations__[name] is Floats}
        self._ints = {name: array("q") for name in Numbers.__annotations__ if Numbers.__annotations__[name] is Ints}
        self._known = array("b")

    def add(self, request: Request) -> None:
        """Take the numbers of the next request in order of arrival."""
        body, recorded = request.body, request.recorded
        tokens, shared, known = self._prompt(request)
        floats: dict[str, float | None] = {
            "offset_s": request.offset_s,
            "duration_s": recorded.duration_s if recorded else None,
            "prompt_tokens": tokens,
            "shared_tokens": shared,
            "output_tokens": recorded.completion_tokens if recorded else None,
            "max_tokens": request.max_tokens,
            "cached_tokens": recorded.cached_tokens if recorded else None,
            "temperature": request.temperature,
        }
        for name, value in floats.items():
            self._floats[name].append(float("nan") if value is None else value)
        self._known.append(known)
        model = body.get("model") or ""
        self.tag_keys.update(request.tags)
        ints = {
            "session": self._session(request.session),
            "label": self.labels.setdefault(self._label(request), len(self.labels)),
            "model": self.models.setdefault(model, len(self.models)),
            "flags": _bits(_flags(request)),
            "settings": _bits([body.get(name) is not None for name in SETTINGS]),
        }
        for name, number in ints.items():
            self._ints[name].append(number)

    def numbers(self) -> Numbers:
        """Everything so far."""
        arrays: dict[str, Any] = {name: np.array(values, dtype=np.float64) for name, values in self._floats.items()}
        arrays |= {name: np.array(values, dtype=np.int64) for name, values in self._ints.items()}
        arrays["heads"] = arrays["heads"].reshape(-1, len(HEAD_DEPTHS))
        return Numbers(prompt_known=np.array(self._known, dtype=np.bool_), **arrays)

    def _prompt(self, request: Request) -> tuple[float, float, bool]:
        """Tokens of the prompts, those of their beginnings that came before, and whether the first is a count."""
        chars = ids = shared_chars = shared_ids = 0
        first: list[int] = []
        whole = 0
        for prompt in prompts(request.body):
            hashes = chain(prompt)
            blocks = self._seen.add(hashes)
            first = first or hashes
            if isinstance(prompt, str):
                chars += len(prompt)
                shared_chars += blocks * BLOCK_TOKENS * CHARS_PER_TOKEN
                whole = hash((whole, prompt))
            else:
                ids += len(prompt)
                shared_ids += blocks * BLOCK_TOKENS
                whole = hash((whole, *prompt))
        self._ints["heads"].extend(heads(first))
        self._ints["prompt_hash"].append(whole)
        recorded = request.recorded.prompt_tokens if request.recorded else None
        estimate = ids + chars / CHARS_PER_TOKEN
        shared = shared_ids + shared_chars / CHARS_PER_TOKEN
        if recorded is None or not estimate:
            return (estimate if recorded is None else recorded), shared, recorded is not None or not chars
        # Its own count says how many characters a token of this prompt has.
        return recorded, shared * recorded / estimate, True

    def _session(self, session: str | None) -> int:
        if session is not None and session in self._sessions:
            return self._sessions[session]
        number = self._session_count
        self._session_count += 1
        if session is not None:
            self._sessions[session] = number
        return number


def is_code(text: str) -> bool:
    """Whether a text is code, data, or a question about code, judged by the marks that prose does not have."""
    end = text[-LOOKED_AT_CHARS:]
    # Counting literals is twenty times as fast as one expression of all of them, and this is done for every request.
    marks = sum(map(end.count, _CODE_MARKS))
    return marks * 100 >= CODE_MARKS_PER_100_WORDS * (end.count(" ") + 1)


def _flags(request: Request) -> list[bool]:
    body, recorded = request.body, request.recorded
    response_format = body.get("response_format")
    is_free = isinstance(response_format, dict) and response_format.get("type") == "text"
    return [
        any(body.get(name) for name in STRUCTURED[is_free:]),
        bool(body.get("tools") or body.get("functions")),
        (body.get("n") or 1) > 1,
        has_media(body),
        # A shape's prompt is made each time it is asked for, and says nothing.
        request.shape is None and is_code(asked(body)),
        recorded is not None and (recorded.status or 200) >= 400,
        request.session is not None,
    ]


def _bits(values: list[bool]) -> int:
    return sum(value << position for position, value in enumerate(values))
