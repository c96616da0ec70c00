"""Taking the content out of request bodies, so that what a replay measures besides acceptance stays as it was.

`hash` replaces every word by another one: always the same for the same word, so texts that began alike still do, and
of the same length, so that they have about as many tokens. Patterns replace what they match by a placeholder of its
length. Both are keyed with a secret that is never stored: whoever has the file cannot try words out. It remains a
substitution: lengths, punctuation, layout and the frequency of words can be seen in it. It is no anonymisation.
"""

import hashlib
import re
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import orjson

from workloads.errors import LineError
from workloads.recorder.substitution import Substitution

_AS_IT_IS = frozenset(
    {
        "model",
        "role",
        "type",
        "id",
        "tool_call_id",
        "tool_choice",
        "finish_reason",
        "detail",
        "format",
        "service_tier",
        "reasoning_effort",
        "verbosity",
        "modalities",
        "encoding_format",
        "chat_template",
        "chat_template_kwargs",
        "guided_regex",
        "guided_grammar",
        "structural_tag",
    }
)
"""Fields that say how a request is to be handled; their texts stay."""

_DIGESTED = frozenset({"metadata", "user", "safety_identifier", "prompt_cache_key", "cache_salt", "url", "data"})
"""Fields whose texts are labels or payloads, not words: they become digests."""

_SCHEMAS = frozenset({"tools", "functions", "response_format", "structured_outputs", "guided_json"})
"""Fields that must keep names and structure; only the prose in them is replaced."""

_CALLS = frozenset({"function", "function_call"})
"""Calls of tools: the tool's name stays as it is where the tool is described."""

_PROSE = frozenset({"description", "title"})

Replace = Callable[[str], str]


class Redaction(Protocol):
    """One way to change bodies."""

    @property
    def name(self) -> str:
        """What the tag `redacted` says."""

    @property
    def replaced(self) -> int:
        """Matches that placeholders stand for."""

    @property
    def replaced_share(self) -> float:
        """Share of all characters seen that were replaced."""

    def body(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """The changed body, or None where nothing changes.

        Raises:
            LineError: its content cannot be taken out.
        """

    def label(self, text: str) -> str:
        """What stands for the name of a conversation."""


class NoRedaction:
    """Leaves everything."""

    name = "none"
    replaced = 0
    replaced_share = 0.0

    def body(self, body: dict[str, Any]) -> None:
        """See `Redaction.body`."""

    def label(self, text: str) -> str:
        """See `Redaction.label`."""
        return text


class HashRedaction:
    """Replaces every word."""

    name = "hash"
    replaced = 0
    replaced_share = 1.0

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._text = Substitution(key).text

    def body(self, body: dict[str, Any]) -> dict[str, Any]:
        """See `Redaction.body`."""
        prompt = body.get("prompt")
        if isinstance(prompt, list) and not all(isinstance(part, str) for part in prompt):
            raise LineError("the prompt is token ids, which --redact hash cannot replace")
        return {name: self._value(name, value) for name, value in body.items()}

    def label(self, text: str) -> str:
        """See `Redaction.label`."""
        return hashlib.blake2b(text.encode(errors="replace"), key=self._key, digest_size=12).hexdigest()

    def _value(self, name: str, value: Any) -> Any:
        if name in _AS_IT_IS:
            return value
        if name in _DIGESTED:
            return _mapped(value, self.label)
        if name in _SCHEMAS:
            return self._prose_of(value)
        return self._content(name, value)

    def _content(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            return self._arguments(value) if name == "arguments" else self._text(value)
        if isinstance(value, list):
            return [self._value(name, each) for each in value]
        if isinstance(value, dict):
            kept = {"name"} if name in _CALLS else set()
            return {key: each if key in kept else self._value(key, each) for key, each in value.items()}
        return value

    def _arguments(self, text: str) -> str:
        """Arguments of a recorded tool call: chat templates parse them, so they must stay JSON."""
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError:
            return self._text(text)
        return orjson.dumps(_mapped(document, self._text)).decode()

    def _prose_of(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return [self._prose_of(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        return {
            name: self._text(value) if name in _PROSE and isinstance(value, str) else self._prose_of(value)
            for name, value in schema.items()
        }


class PatternRedaction:
    """Replaces what regular expressions match, in every text of a body."""

    name = "pattern"

    def __init__(self, key: bytes, patterns: Sequence[str]) -> None:
        self.replaced = 0
        self._key = key
        self._patterns = [re.compile(pattern) for pattern in patterns]
        self._seen_chars = 0
        self._replaced_chars = 0

    @property
    def replaced_share(self) -> float:
        """Share of all characters seen that placeholders stand for."""
        return self._replaced_chars / self._seen_chars if self._seen_chars else 0.0

    def body(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """See `Redaction.body`."""
        before = self.replaced
        changed = _mapped(body, self._text)
        return changed if self.replaced > before else None

    def label(self, text: str) -> str:
        """See `Redaction.label`."""
        return self._text(text)

    def _text(self, text: str) -> str:
        self._seen_chars += len(text)
        for pattern in self._patterns:
            text = pattern.sub(self._placeholder, text)
        return text

    def _placeholder(self, match: re.Match[str]) -> str:
        found = match[0]
        if not found:
            return found
        self.replaced += 1
        self._replaced_chars += len(found)
        digits = hashlib.shake_128(self._key + found.encode(errors="replace")).hexdigest(len(found))
        return f"[{digits[: max(len(found) - 2, 4)]}]"


def make_redaction(values: Sequence[str]) -> Redaction:
    """The redaction that `--redact` asks for, with a key of its own."""
    if tuple(values) == ("none",):
        return NoRedaction()
    key = secrets.token_bytes(32)
    return HashRedaction(key) if tuple(values) == ("hash",) else PatternRedaction(key, values)


def what_it_is_worth(values: Sequence[str], replaced: int, replaced_share: float) -> str | None:
    """What whoever tunes on the recording must know, if anything."""
    if tuple(values) == ("none",):
        return None
    if tuple(values) == ("hash",):
        return (
            "every word was replaced: arrivals, lengths and shared prefixes are as recorded, acceptance is not, so K "
            "must not be tuned on this recording (its records carry the tag redacted=hash)"
        )
    if not replaced:
        return "no pattern of --redact matched anything: the texts are as they were sent"
    return (
        f"placeholders stand for {replaced} matches, {replaced_share:.2%} of all characters; acceptance is real for "
        "the rest of the text (records that were changed carry the tag redacted=pattern)"
    )


def _mapped(value: Any, replace: Replace) -> Any:
    """The same structure with every text replaced."""
    if isinstance(value, str):
        return replace(value)
    if isinstance(value, list):
        return [_mapped(each, replace) for each in value]
    if isinstance(value, dict):
        return {name: _mapped(each, replace) for name, each in value.items()}
    return value
