"""Native lines read fast: parsed and checked in one go by msgspec, so that a million of them take seconds.

What is unusual is left to `native.py`, whose model defines the format and words all errors. Here nothing may be
accepted that is refused there.
"""

from typing import Annotated, Any, Final

import msgspec

from workloads.formats.format import Reading
from workloads.request import CHAT_ENDPOINT, Recorded, Request, trusted_request

Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


class _Recorded(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cached_tokens: Count | None = None
    ttft_s: Seconds | None = None
    duration_s: Seconds | None = None
    finish_reason: str | None = None
    status: int | None = None


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    body: dict[str, Any]
    id: Name | None = None
    timestamp_s: Seconds | None = None
    endpoint: str | None = None
    route: Name | None = None
    session: Name | None = None
    tags: dict[str, str] = {}
    recorded: _Recorded | None = None


_decode: Final = msgspec.json.Decoder(_Line).decode
_fields: Final = msgspec.structs.asdict
_new: Final = Recorded.__new__
_set: Final = object.__setattr__
_RECORDED: Final = set(Recorded.model_fields)


def plain_request(raw: bytes, line: int, reading: Reading) -> Request | None:
    """The request of a line that is a chat of texts; None for any other line."""
    try:
        found = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # `native.py` says what is wrong.
        return None
    body = found.body
    if (found.endpoint is not None and found.endpoint != CHAT_ENDPOINT) or not _is_plain_chat(body):
        return None
    model = body.get("model")
    if model:
        reading.unhonoured[f'model name "{model}"'] += 1
    recorded = found.recorded
    return trusted_request(
        found.id or f"line-{line}",
        found.timestamp_s,
        CHAT_ENDPOINT,
        body,
        found.route,
        found.session,
        found.tags,
        None if recorded is None else _checked(recorded),
        line,
        None,
    )


def _is_plain_chat(body: dict[str, Any]) -> bool:
    """Whether a body obeys `check_body` and has nothing that a replay may not honour, seen without a closer look."""
    get = body.get
    messages = get("messages")
    if type(messages) is not list or not messages or "prompt" in body or "tools" in body:
        return False
    for message in messages:
        if type(message) is not dict or type(message.get("role")) is not str or type(message.get("content")) is not str:
            return False
    limit, other, temperature, model = get("max_tokens"), get("max_completion_tokens"), get("temperature"), get("model")
    return (
        (limit is None or (type(limit) is int and limit > 0))
        and (other is None or (type(other) is int and other > 0))
        and (temperature is None or ((type(temperature) is float or type(temperature) is int) and temperature >= 0))
        and (model is None or type(model) is str)
    )


def _checked(found: _Recorded) -> Recorded:
    """What the server answered; msgspec has checked it already, so pydantic's own checks and copies are left out."""
    model = _new(Recorded)
    _set(model, "__dict__", _fields(found))
    _set(model, "__pydantic_fields_set__", _RECORDED)
    _set(model, "__pydantic_extra__", None)
    _set(model, "__pydantic_private__", None)
    return model
