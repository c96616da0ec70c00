"""A request's prompt as one text or one list of token ids, in the order in which a chat template lays it out.

Only for comparing prompts with each other: which of them start alike, and how long they are. It is no chat template;
the marks around roles are ours. What is sent is decided in `wire.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

Prompt = str | Sequence[int]
"""Text, or token ids."""


def prompts(body: Mapping[str, Any]) -> list[Prompt]:
    """The prompts of a body: one, unless a completions request has a list of them."""
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list):
        return [prompt] if isinstance(prompt[0], int) else list(prompt)
    return ["".join(_chat(body))]


def asked(body: Mapping[str, Any]) -> str:
    """The text of the latest user message, or of a text prompt; empty where there is none."""
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return prompt
    if prompt is not None:
        return prompt[0] if isinstance(prompt[0], str) else ""
    for message in reversed(body.get("messages", ())):
        if message["role"] == "user":
            return "".join(_content(message.get("content")))
    return ""


def has_media(body: Mapping[str, Any]) -> bool:
    """Whether a message has a part that is no text: an image, a sound."""
    return any(
        isinstance(part, dict) and "text" not in part
        for message in body.get("messages", ())
        if isinstance(message.get("content"), list)
        for part in message["content"]
    )


def _chat(body: Mapping[str, Any]) -> Iterator[str]:
    # Templates put the tools before or into the system message, so they are the start of what requests share.
    for name in ("tools", "functions"):
        if body.get(name):
            yield _json(body[name])
    for message in body["messages"]:
        yield f"\x02{message['role']}\n"
        yield from _content(message.get("content"))
        if message.get("tool_calls"):
            yield _json(message["tool_calls"])
        yield "\x03"


def _content(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            text = part.get("text") if isinstance(part, dict) else None
            yield text if isinstance(text, str) else _json(part)


def _json(value: Any) -> str:
    # Sorted, because the same tools in another order of fields are rendered alike by most templates.
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
