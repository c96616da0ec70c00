"""What is really sent for a recorded request: its body, verbatim but for the fields that a replay must control.

Pure. Replaced: the model, streaming and its usage statistics. Added only when asked for or needed: temperature, cache
salt, a seed. Everything else (tools, response_format, n, stop, logit_bias ...) goes out as it was recorded.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from workloads.errors import WorkloadError
from workloads.request import Request

STREAM_OPTIONS = {"include_usage": True, "continuous_usage_stats": True}
"""vLLM's continuous statistics say how many tokens an event carries: under speculation that is not one."""


@dataclass(frozen=True, slots=True)
class Target:
    """The server that is measured.

    Attributes:
        base_url: Scheme, host and port, such as `http://127.0.0.1:8000`.
        api_key: Sent as a bearer token; empty for none.
        model: Served model name; takes the place of the recorded one.
    """

    base_url: str
    api_key: str
    model: str

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise WorkloadError(f'the base URL is "{self.base_url}"; it must start with http:// or https://')
        if "@" in self.base_url.split("/")[2]:
            raise WorkloadError("the base URL has a user name in it; give the server's key as the API key instead")
        if not (self.api_key.isascii() and self.api_key.isprintable()) or " " in self.api_key:
            raise WorkloadError(
                "the API key has characters that no HTTP header takes; check it for spaces or line ends"
            )


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a replay changes in every body.

    Attributes:
        temperature: Replaces the recorded one; None keeps what was recorded, absence included.
        seed: Base of the sampling seeds given to requests that have none; None gives none.
        cache_salt: Keeps a measurement's prefix cache apart from every other's; None sends none.
    """

    temperature: float | None = None
    seed: int | None = 0
    cache_salt: str | None = None


def wire_body(request: Request, model: str, overrides: Overrides) -> bytes:
    """The JSON to send for `request`."""
    body: dict[str, Any] = {
        **request.body,
        "model": model,
        "stream": True,
        "stream_options": STREAM_OPTIONS,
    }
    if overrides.temperature is not None:
        body["temperature"] = overrides.temperature
    if overrides.cache_salt is not None:
        body["cache_salt"] = overrides.cache_salt
    if overrides.seed is not None and _samples(body) and body.get("seed") is None:
        body["seed"] = sampling_seed(overrides.seed, request.id)
    return orjson.dumps(body)


def sampling_seed(replay_seed: int, request_id: str) -> int:
    """A seed that is the same in every replay with this replay seed, in any process."""
    digest = hashlib.sha256(f"{replay_seed}:{request_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _samples(body: Mapping[str, Any]) -> bool:
    # Without a temperature the server's default applies, which has been 1.0 and the model's own in different vLLM
    # releases.
    temperature = body.get("temperature")
    return temperature is None or temperature > 0
