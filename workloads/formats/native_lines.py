"""Native lines read fast: parsed and checked in one go by msgspec, so that a million of them take seconds.

What is unusual is left to `native.py`, whose model defines the format and words all errors. Here nothing may be
accepted that is refused there.
"""

from typing import Annotated, Any, Final, Literal

import msgspec

from workloads.formats.format import Reading
from workloads.request import CHAT_ENDPOINT, Recorded, Request, Seconds, trusted_request

Name = Annotated[str, msgspec.Meta(min_length=1)]


class _Line(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    body: dict[str, Any]
    id: Name | None = None
    timestamp_s: Seconds | None = None
    endpoint: Literal["/v1/chat/completions"] | None = None
    route: Name | None = None
    session: Name | None = None
    tags: dict[str, str] = {}
    recorded: Recorded | None = None


_decode: Final = msgspec.json.Decoder(_Line).decode


def plain_request(raw: bytes, line: int, reading: Reading) -> Request | None:
    """The request of a line that is a chat of texts; None for any other line."""
    try:
        found = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # `native.py` says what is wrong.
        return None
    body = found.body
    if not _is_plain_chat(body):
        return None
    model = body.get("model")
    if model:
        reading.unhonoured[f'model name "{model}"'] += 1
    return trusted_request(
        found.id or f"line-{line}",
        found.timestamp_s,
        CHAT_ENDPOINT,
        body,
        found.route,
        found.session,
        found.tags,
        found.recorded,
        line,
        None,
    )


def _is_plain_chat(body: dict[str, Any]) -> bool:
    """Whether a body obeys `check_body` and has nothing that a replay may not honour, seen without a closer look."""
    if "prompt" in body or "tools" in body:
        return False
    try:
        messages = body["messages"]
        for message in messages:
            if type(message["role"]) is not str or type(message["content"]) is not str:
                return False
    except (KeyError, TypeError):
        return False
    if type(messages) is not list or not messages:
        return False
    get = body.get
    limit, other, temperature, model = get("max_tokens"), get("max_completion_tokens"), get("temperature"), get("model")
    return (
        (limit is None or (type(limit) is int and limit > 0))
        and (other is None or (type(other) is int and other > 0))
        and (temperature is None or ((type(temperature) is float or type(temperature) is int) and temperature >= 0))
        and (model is None or type(model) is str)
    )
