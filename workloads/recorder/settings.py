"""What a recording is asked to do, and the checks that need no file and no network."""

import re
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workloads.errors import WorkloadError

CREDENTIAL = re.compile(r"auth|cookie|token|secret|password|api[-_]?key|credential", re.IGNORECASE)
"""Names of headers and of body fields whose values are never stored."""

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class RecordError(WorkloadError):
    """The recorder cannot start as asked."""


class RecordSettings(BaseModel):
    """Options of one recording."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    upstream: str = Field(description="Root URL of the server that answers, such as http://127.0.0.1:8000.")
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8001, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    out: Path = Field(description="File to write; it must not exist.")
    rotate_bytes: int | None = Field(default=None, gt=0, description="Size at which a new file is begun, in bytes.")
    rotate_every_s: float | None = Field(default=None, gt=0, description="Age at which a new file is begun, seconds.")
    redact: tuple[str, ...] = Field(default=("none",), description='"none", "hash", or regular expressions.')
    session_header: str = Field(default="x-session-id", description="Request header that names the conversation.")
    route_header: str = Field(default="x-route", description="Request header that names the kind of traffic.")
    pending_bytes: int = Field(
        default=256 * 2**20, gt=0, description="Exchanges waiting for the writer, in bytes; beyond it they are dropped."
    )
    grace_s: float = Field(default=3.0, ge=0, description="Seconds that running requests get when the recorder stops.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_upstream(self.upstream)
        for option, header in (("--session-header", self.session_header), ("--route-header", self.route_header)):
            if not _HEADER.fullmatch(header):
                raise RecordError(f"{option} {header!r} is no name of a header; give one such as x-session-id")
            if CREDENTIAL.search(header):
                raise RecordError(
                    f"{option} {header!r} carries credentials, which are never stored; use another header"
                )
        _check_redact(self.redact)
        return self

    @property
    def root(self) -> str:
        """The upstream without a slash at its end, so that a request's path can follow."""
        return self.upstream.rstrip("/")


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port of "127.0.0.1:8001", "[::1]:8001", ":8001" or "8001".

    Raises:
        RecordError: it is none of these.
    """
    match = re.fullmatch(r"(?:(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]*):)?([0-9]{1,5})", text)
    if not match or int(match[2]) > 65535:
        raise RecordError(f"--listen {text!r} is no address; give HOST:PORT such as 127.0.0.1:8001")
    return (match[1] or "127.0.0.1").strip("[]"), int(match[2])


def _check_upstream(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or re.search(r"\s", url):
        raise RecordError(f"--upstream {url!r} is no URL of a server; give one such as http://127.0.0.1:8000")
    if "@" in parts.netloc:
        raise RecordError("--upstream holds a user name; leave it out: the clients' own credentials are passed on")
    if parts.query or parts.fragment:
        raise RecordError(f"--upstream {url!r} has a query or a fragment; give the root of the server alone")
    if parts.path.rstrip("/").endswith("/v1"):
        raise RecordError(f"--upstream {url!r} ends in /v1, which is part of each request; give the URL without it")


def _check_redact(values: tuple[str, ...]) -> None:
    if not values:
        raise RecordError('--redact is empty; give "hash", "none" or a regular expression')
    for value in values:
        if value in ("hash", "none"):
            if len(values) > 1:
                raise RecordError(f"--redact {value} stands alone; give it without the other {len(values) - 1}")
            continue
        try:
            pattern = re.compile(value)
        except re.error as error:
            raise RecordError(f"--redact {value!r} is no regular expression: {error}; correct it") from None
        if pattern.match(""):
            raise RecordError(f"--redact {value!r} matches an empty text; make it match what is to be replaced")
