"""The native format: the recorded body, and beside it what a replay wants to know. Unknown fields are errors.

One JSON object a line; `body` is required, or `shape` in its place when lengths are all that is known.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workloads.errors import LineError
from workloads.formats.building import body_request, shape_request
from workloads.formats.fields import shown
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.formats.native_lines import plain_request
from workloads.request import Recorded, Request
from workloads.shape import Shape


class NativeShape(BaseModel):
    """What is known of a request without text."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    input_length: int = Field(ge=1, description="Tokens of the prompt.")
    output_length: int = Field(ge=1, description="Tokens to generate, exactly.")
    hash_ids: list[int] = Field(default_factory=list, description="Ids of the prompt's blocks; same id, same tokens.")
    block_tokens: int = Field(default=0, ge=0, description="Tokens in a block; needed with hash_ids.")


class NativeRecorded(BaseModel):
    """What the original server answered, as far as the recording knows."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    prompt_tokens: int | None = Field(default=None, ge=0, description="Tokens of the rendered prompt.")
    completion_tokens: int | None = Field(default=None, ge=0, description="Tokens generated.")
    cached_tokens: int | None = Field(default=None, ge=0, description="Prompt tokens served by the cache.")
    ttft_s: float | None = Field(default=None, ge=0, allow_inf_nan=False, description="Seconds to first token.")
    duration_s: float | None = Field(default=None, ge=0, allow_inf_nan=False, description="Seconds to the end.")
    finish_reason: str | None = Field(default=None, description="finish_reason of the first choice.")
    status: int | None = Field(default=None, description="HTTP status of the original answer.")


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
    recorded: NativeRecorded | None = Field(default=None, description="What the original server answered.")


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
        try:
            native = NativeRecord.model_validate(record)
        except ValidationError as error:
            raise LineError(_sentence(error)) from None
        if native.shape is not None and native.body is None:
            return (_shape_request(native, native.shape, line, reading),)
        if native.body is None:
            raise LineError('the required field "body" is missing')
        if native.shape is not None:
            raise LineError("it has both body and shape; keep the one that is known")
        return (
            body_request(
                record["body"],
                reading,
                request_id=native.id or f"line-{line}",
                line=line,
                offset_s=native.timestamp_s,
                session=native.session,
                route=native.route,
                tags=native.tags,
                recorded=_recorded(native),
                endpoint=native.endpoint,
            ),
        )

    request_of_line = staticmethod(plain_request)


def _recorded(native: NativeRecord) -> Recorded | None:
    return None if native.recorded is None else Recorded(**native.recorded.model_dump())


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
        recorded=_recorded(native),
    )


def _sentence(error: ValidationError) -> str:
    """The first thing that pydantic found, said in the terms of the file."""
    first = error.errors(include_url=False)[0]
    path = first["loc"]
    field = ".".join(str(part) for part in path)
    if first["type"] == "extra_forbidden":
        models: dict[Any, type[BaseModel]] = {"recorded": NativeRecorded, "shape": NativeShape}
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
        record["recorded"] = request.recorded.known()
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


NATIVE = NativeFormat()
