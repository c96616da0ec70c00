"""The native format: the recorded body, and beside it what a replay wants to know. Unknown fields are errors.

One JSON object a line; `body` is required, or `shape` in its place when lengths are all that is known.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workloads.errors import LineError
from workloads.formats.building import note_unhonoured, shape_request
from workloads.formats.fields import shown
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.request import Recorded, Request, check_body, endpoint_of
from workloads.shape import Shape


class NativeShape(BaseModel):
    """What is known of a request without text."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    input_length: int = Field(ge=1, description="Tokens of the prompt.")
    output_length: int = Field(ge=1, description="Tokens to generate, exactly.")
    hash_ids: list[int] = Field(default_factory=list, description="Ids of the prompt's blocks; same id, same tokens.")
    block_tokens: int = Field(default=0, ge=0, description="Tokens in a block; needed with hash_ids.")


class NativeRecord(BaseModel):
    """One line of a native workload file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: str | None = Field(default=None, min_length=1, description='Unique name of the request; default "line-N".')
    timestamp_s: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="Arrival in seconds since the first request. On all lines or on none; never decreasing.",
    )
    endpoint: str | None = Field(
        default=None, description="/v1/chat/completions or /v1/completions; default: by the body's fields."
    )
    route: str | None = Field(default=None, min_length=1, description="The user's own label for this kind of traffic.")
    session: str | None = Field(default=None, min_length=1, description="Conversation; its turns are in file order.")
    tags: dict[str, str] = Field(default_factory=dict, description="Further labels.")
    body: dict[str, Any] | None = Field(default=None, description="The OpenAI request body, verbatim.")
    shape: NativeShape | None = Field(default=None, description="In place of a body: its lengths and shared blocks.")
    recorded: Recorded | None = Field(default=None, description="What the original server answered.")


_NO_TAGS: Final[Mapping[str, str]] = {}


class NativeFormat:
    """Reads native records."""

    name = "native"
    framings: tuple[Framing, ...] = ("json",)
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """A body or shape, without the fields that a batch file has beside it."""
        return any(
            ("body" in record or "shape" in record) and not record.keys() & {"custom_id", "method", "url"}
            for record in records
        )

    def times(self, records: Sequence[Mapping[str, Any]]) -> None:
        """The unit is in the field's name."""

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        body = record.get("body")
        if type(body) is dict and _is_plain(record):
            tags, recorded = record.get("tags", _NO_TAGS), record.get("recorded")
            known = None if recorded is None else _recorded(recorded)
            return (_body_request(record, body, tags, known, line, reading),)
        try:
            native = NativeRecord.model_validate(record)
        except ValidationError as error:
            raise LineError(_sentence(error)) from None
        if body is not None:
            return (_body_request(record, body, native.tags, native.recorded, line, reading),)
        if native.shape is None:
            raise LineError('the required field "body" is missing')
        return (_shape_request(native, native.shape, line, reading),)


def _is_plain(record: Mapping[str, Any]) -> bool:
    """Whether a record obeys `NativeRecord`, told without it: this is what costs when a million lines are read.

    False for whatever is unusual; `NativeRecord` then finds it right, or says what is wrong with it.
    """
    known = 1
    get = record.get
    for name in ("id", "endpoint", "route", "session"):
        value = get(name)
        if value is not None:
            if type(value) is not str or not value:
                return False
            known += 1
    time_s = get("timestamp_s")
    if time_s is not None:
        if (type(time_s) is not float and type(time_s) is not int) or not 0 <= time_s < float("inf"):
            return False
        known += 1
    if get("recorded") is not None:
        known += 1
    tags = get("tags")
    if tags is not None:
        if type(tags) is not dict or any(type(value) is not str for value in tags.values()):
            return False
        known += 1
    return known == len(record)


def _recorded(raw: Any) -> Recorded:
    try:
        return Recorded.model_validate(raw)
    except ValidationError as error:
        raise LineError(_sentence(error, "recorded")) from None


def _body_request(  # noqa: PLR0917 - passing by name costs time a million times
    record: Mapping[str, Any],
    body: dict[str, Any],
    tags: Mapping[str, str],
    recorded: Recorded | None,
    line: int,
    reading: Reading,
) -> Request:
    get = record.get
    endpoint = endpoint_of(body, get("endpoint"))
    check_body(body)
    note_unhonoured(body, reading)
    time_s = get("timestamp_s")
    return Request(
        get("id") or f"line-{line}",
        None if time_s is None else float(time_s),
        endpoint,
        body,
        get("route"),
        get("session"),
        tags,
        recorded,
        line,
    )


def _shape_request(native: NativeRecord, shape: NativeShape, line: int, reading: Reading) -> Request:
    if shape.hash_ids and not shape.block_tokens:
        raise LineError('"shape.block_tokens" is 0; with hash_ids it must be the number of tokens in a block')
    found = Shape(shape.input_length, shape.output_length, tuple(shape.hash_ids), shape.block_tokens)
    return shape_request(
        found,
        reading,
        request_id=native.id or f"line-{line}",
        line=line,
        offset_s=native.timestamp_s,
        session=native.session,
        route=native.route,
        tags=native.tags,
        recorded=native.recorded,
    )


def _sentence(error: ValidationError, *inside: str) -> str:
    """The first thing that pydantic found, said in the terms of the file."""
    first = error.errors(include_url=False)[0]
    path = (*inside, *first["loc"])
    field = ".".join(str(part) for part in path)
    if first["type"] == "extra_forbidden":
        models: dict[Any, type[BaseModel]] = {"recorded": Recorded, "shape": NativeShape}
        known = models.get(path[0], NativeRecord) if len(path) > 1 else NativeRecord
        return f'unknown field "{field}"; known fields are {", ".join(known.model_fields)}'
    if first["type"] == "missing":
        return f'the required field "{field}" is missing'
    return f'"{field}" is {shown(first["input"])}; {first["msg"][:1].lower()}{first["msg"][1:]}'


def native_line(request: Request) -> bytes:
    """A request as a line of a native file, with its newline. Reading it gives the same request but for its line."""
    record: dict[str, Any] = {"id": request.id}
    if request.offset_s is not None:
        record["timestamp_s"] = request.offset_s
    record |= {name: value for name in ("route", "session") if (value := getattr(request, name)) is not None}
    if request.tags:
        record["tags"] = dict(request.tags)
    if request.shape is None:
        record |= {"endpoint": request.endpoint, "body": request.body}
    else:
        shape = request.shape
        record["shape"] = {"input_length": shape.input_length, "output_length": shape.output_length}
        if shape.hash_ids:
            record["shape"] |= {"hash_ids": list(shape.hash_ids), "block_tokens": shape.block_tokens}
    if request.recorded is not None:
        record["recorded"] = request.recorded.model_dump(exclude_none=True)
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


NATIVE = NativeFormat()
