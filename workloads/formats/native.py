"""The native format: the recorded body, and beside it what a replay wants to know. Unknown fields are errors.

One JSON object a line; only `body` is required.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workloads.errors import LineError
from workloads.formats.format import Reading
from workloads.formats.framing import Framing
from workloads.request import Recorded, Request, check_body, endpoint_of


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
    body: dict[str, Any] = Field(description="The OpenAI request body, verbatim.")
    recorded: Recorded | None = Field(default=None, description="What the original server answered.")


class NativeFormat:
    """Reads native records."""

    name = "native"
    framing: Framing = "json"
    in_time_order = True

    def recognises(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """A body, without the fields that a batch file has beside it."""
        return any("body" in record and not record.keys() & {"custom_id", "method", "url"} for record in records)

    def times(self, records: Sequence[Mapping[str, Any]]) -> None:
        """The unit is in the field's name."""

    def requests(self, record: Mapping[str, Any], line: int, reading: Reading) -> tuple[Request, ...]:
        """See `Format.requests`."""
        del reading
        try:
            native = NativeRecord.model_validate(record)
        except ValidationError as error:
            raise LineError(_sentence(error)) from None
        endpoint = endpoint_of(native.body, native.endpoint)
        check_body(native.body)
        request = Request(
            id=native.id or f"line-{line}",
            offset_s=native.timestamp_s,
            endpoint=endpoint,
            body=native.body,
            route=native.route,
            session=native.session,
            tags=native.tags,
            recorded=native.recorded,
            line=line,
        )
        return (request,)


def _sentence(error: ValidationError) -> str:
    """The first thing that pydantic found, said in the terms of the file."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = Recorded if len(first["loc"]) > 1 else NativeRecord
        return f'unknown field "{field}"; known fields are {", ".join(known.model_fields)}'
    if first["type"] == "missing":
        return f'the required field "{field}" is missing'
    shown = repr(first["input"])
    shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
    return f'"{field}" is {shown}; {first["msg"][:1].lower()}{first["msg"][1:]}'


NATIVE = NativeFormat()
