"""Sets of conversations: every question becomes a request that carries the history up to it.

The answers in the history are the recorded ones. All requests of a conversation form a session.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workloads.errors import LineError
from workloads.formats.building import body_request
from workloads.formats.fields import shown
from workloads.formats.format import Reading
from workloads.request import Request

ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "assistant": "assistant",
    "system": "system",
}


@dataclass(frozen=True, slots=True)
class Turn:
    """A request of a conversation: the messages up to a question, and its place among all messages."""

    messages: list[dict[str, Any]]
    place: int


def read_messages(entries: Any, field: str, role_field: str, text_field: str) -> list[dict[str, Any]]:
    """Messages as OpenAI spells them.

    Raises:
        LineError: if an entry has no known role or no text.
    """
    if not isinstance(entries, list) or not entries:
        raise LineError(f'"{field}" is {shown(entries)}; it must be a list of at least one message')
    messages = []
    for place, entry in enumerate(entries):
        role = entry.get(role_field) if isinstance(entry, dict) else None
        if role not in ROLES:
            raise LineError(f'"{field}[{place}].{role_field}" is {shown(role)}; it must be one of {", ".join(ROLES)}')
        content = entry.get(text_field)
        if not isinstance(content, str):
            raise LineError(f'"{field}[{place}].{text_field}" is {shown(content)}; it must be a text')
        messages.append({"role": ROLES[role], "content": content})
    return messages


def turns(messages: Sequence[Mapping[str, Any]]) -> Iterator[Turn]:
    """A turn for each question; one that follows another without an answer between them belongs to the same turn."""
    for place, message in enumerate(messages):
        is_last = place + 1 == len(messages)
        if message["role"] == "user" and (is_last or messages[place + 1]["role"] != "user"):
            yield Turn([dict(each) for each in messages[: place + 1]], place)


def conversation_requests(
    messages: list[dict[str, Any]],
    reading: Reading,
    *,
    name: str,
    line: int,
    offsets_s: Mapping[int, float] | None = None,
    model: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> tuple[Request, ...]:
    """The requests of a conversation.

    Args:
        messages: All of them, as OpenAI spells them.
        reading: Of the file.
        name: The conversation's own name; its line is added, because these sets have names twice.
        line: Where it is in the file.
        offsets_s: When each question was asked, by its place; None if no times are known.
        model: Who answered.
        tags: For each request.

    Raises:
        LineError: if there is no question, or a message cannot be sent.
    """
    while messages and messages[0]["role"] == "assistant":
        reading.unhonoured["answer before the first question of a conversation"] += 1
        messages, offsets_s = messages[1:], offsets_s and {place - 1: at for place, at in offsets_s.items()}
    session = f"{name}#{line}"
    extra = {"model": model} if model else {}
    asked = list(turns(messages))
    if not asked:
        raise LineError("the conversation has no question; it must have a message by a user")
    return tuple(
        body_request(
            {**extra, "messages": turn.messages},
            reading,
            request_id=f"{session}/{number}",
            line=line,
            offset_s=offsets_s.get(turn.place) if offsets_s else None,
            session=session,
            tags=tags,
        )
        for number, turn in enumerate(asked, start=1)
    )
