"""One recorded request, the workload it belongs to, and the rules that every request body must obey.

Formats build `Request` objects; nothing here knows how a file spells them. The body is kept exactly as recorded:
what is sent is decided in `wire.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import msgspec

from workloads.errors import LineError
from workloads.shape import Shape

CHAT_ENDPOINT = "/v1/chat/completions"
COMPLETIONS_ENDPOINT = "/v1/completions"
ENDPOINTS = (CHAT_ENDPOINT, COMPLETIONS_ENDPOINT)


Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class Recorded(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What the original server answered, as far as the recording knows; None is not known.

    Whoever makes one has checked its values: formats do, and msgspec where it decodes a line.

    Attributes:
        prompt_tokens: Tokens of the rendered prompt.
        completion_tokens: Tokens generated.
        cached_tokens: Prompt tokens served by the cache.
        ttft_s: Seconds to the first token.
        duration_s: Seconds to the end.
        finish_reason: Of the first choice.
        status: HTTP status of the answer.
    """

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cached_tokens: Count | None = None
    ttft_s: Seconds | None = None
    duration_s: Seconds | None = None
    finish_reason: str | None = None
    status: int | None = None

    def known(self) -> dict[str, Any]:
        """The fields that are known, by name."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class Request:
    """A recorded request.

    Attributes:
        id: Unique within the workload.
        offset_s: Seconds since the first request, or None when the recording has no times.
        endpoint: Path below the server's root, one of `ENDPOINTS`.
        body: The OpenAI request body as recorded; treat it as read-only.
        route: The recording's own label of the traffic's kind.
        session: Conversation that this request is a turn of; turns are in file order.
        tags: Further labels.
        recorded: What the original server answered.
        line: Line of the file, from 1.
        shape: Lengths and shared blocks, when they are all that is known; `body` is then made from it.
    """

    id: str
    offset_s: float | None
    endpoint: str
    body: Mapping[str, Any]
    route: str | None = None
    session: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    recorded: Recorded | None = None
    line: int = 0
    shape: Shape | None = None

    @property
    def max_tokens(self) -> int | None:
        """Limit on generated tokens, under either of its two OpenAI names."""
        limit = self.body.get("max_completion_tokens")
        return self.body.get("max_tokens") if limit is None else limit

    @property
    def temperature(self) -> float | None:
        """Recorded temperature; None means that the server's default applied."""
        return self.body.get("temperature")


class _OpenRequest:
    """A `Request` while it is filled in, because a frozen dataclass takes three times as long to set its own fields."""

    __slots__ = tuple(each.name for each in fields(Request))

    def __init__(  # noqa: PLR0917 - passing by name costs time a million times
        self,
        id: str,  # noqa: A002 - as the field
        offset_s: float | None,
        endpoint: str,
        body: Mapping[str, Any],
        route: str | None,
        session: str | None,
        tags: Mapping[str, str],
        recorded: Recorded | None,
        line: int,
        shape: Shape | None,
    ) -> None:
        self.id = id
        self.offset_s = offset_s
        self.endpoint = endpoint
        self.body = body
        self.route = route
        self.session = session
        self.tags = tags
        self.recorded = recorded
        self.line = line
        self.shape = shape


def trusted_request(*values: Any) -> Request:
    """A request from all of its fields in their order, made fast: for a million of them."""
    request: Any = _OpenRequest(*values)
    # Both have the same slots, which is what Python asks for.
    request.__class__ = Request
    return request  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class RejectedLine:
    """A line that is no usable request, or has one that is none, and why."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Workload:
    """The requests of one file.

    Attributes:
        name: Stem of the file's name.
        path: Where the file was read.
        format: Name of the format it was read as.
        digest: `sha256:<hex>` over the bytes of the file.
        requests: Usable requests in file order.
        rejected: Lines left out, in file order.
        notes: How the file was understood, one sentence each, such as the unit of its times.
        unhonoured: What records have and a replay cannot honour (model names, images, tool types), by name, with the
            number of times it was met.
        text_bearing: Whether prompts are real text, so that acceptance means something.
    """

    name: str
    path: Path
    format: str
    digest: str
    requests: tuple[Request, ...]
    rejected: tuple[RejectedLine, ...] = ()
    notes: tuple[str, ...] = ()
    unhonoured: Mapping[str, int] = field(default_factory=dict)
    text_bearing: bool = True

    @property
    def has_timestamps(self) -> bool:
        """Whether the recorded arrival times are known (all or none are)."""
        return self.requests[0].offset_s is not None


def endpoint_of(body: Mapping[str, Any], stated: str | None = None) -> str:
    """The endpoint that a body belongs to, checked against the one that the record states.

    Raises:
        LineError: if the body has neither or both of messages and prompt, or contradicts `stated`.
    """
    if stated is not None and stated not in ENDPOINTS:
        raise LineError(f'endpoint is "{stated}"; it must be {CHAT_ENDPOINT} or {COMPLETIONS_ENDPOINT}')
    has_messages, has_prompt = "messages" in body, "prompt" in body
    if has_messages and has_prompt:
        raise LineError("the body has both messages and prompt; keep the one that was sent")
    if not (has_messages or has_prompt):
        raise LineError("the body has neither messages (chat) nor prompt (completions); add the one that was sent")
    implied = CHAT_ENDPOINT if has_messages else COMPLETIONS_ENDPOINT
    if stated is not None and stated != implied:
        has = "messages" if has_messages else "prompt"
        raise LineError(f"the body has {has}, which {stated} does not take; the endpoint must be {implied}")
    return implied


def check_body(body: Mapping[str, Any]) -> None:
    """Check the fields that the replay or its accounting depends on; every other field passes through unread.

    Raises:
        LineError: naming the field, its value and what it must be.
    """
    if "messages" in body:
        _check_messages(body["messages"])
    else:
        _check_prompt(body.get("prompt"))
    for name in ("max_tokens", "max_completion_tokens"):
        limit = body.get(name)
        if limit is not None and (not _is_integer(limit) or limit < 1):
            raise LineError(f'"{name}" is {_shown(limit)}; it must be an integer of at least 1')
    temperature = body.get("temperature")
    is_number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
    if temperature is not None and (not is_number or temperature < 0):
        raise LineError(f'"temperature" is {_shown(temperature)}; it must be a number of at least 0')
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        raise LineError(f'"model" is {_shown(model)}; it must be a string')


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list) or not messages:
        raise LineError(f'"messages" is {_shown(messages)}; it must be a list of at least one message')
    for position, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise LineError(f'"messages[{position}]" is no object with a "role"; see the OpenAI chat API')


def _check_prompt(prompt: Any) -> None:
    if isinstance(prompt, str) and prompt:
        return
    if isinstance(prompt, list) and prompt:
        kinds = {type(part) for part in prompt}
        if kinds in ({str}, {int}, {list}):
            return
    raise LineError(f'"prompt" is {_shown(prompt)}; it must be a text, or a list of texts or token ids, not empty')


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """A value short enough for a message; bodies hold prompts, which messages must not spread."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
