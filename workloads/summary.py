"""A profile in numbers: lengths, sampling, arrivals, sessions. No text of any prompt gets in here.

Token counts are the recording's own; nothing is tokenised. Lengths in characters are there for recordings without
counts.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workloads.request import Request


class Quantiles(BaseModel):
    """Distribution of a quantity, in the quantity's own unit. Quantiles are values that occur (nearest rank)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(description="Requests that have the quantity.")
    mean: float = Field(description="Arithmetic mean.")
    minimum: float = Field(description="Smallest value.")
    p50: float = Field(description="Median.")
    p90: float = Field(description="90th percentile.")
    p99: float = Field(description="99th percentile.")
    maximum: float = Field(description="Largest value.")


class ProfileSummary(BaseModel):
    """What is in a profile."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="Name of the profile.")
    requests: int = Field(description="Number of requests.")
    sessions: int = Field(description="Number of conversations; a request without a session counts as one.")
    turns_per_session: float = Field(description="Mean number of requests in a session.")
    models: tuple[str, ...] = Field(description="Model names in the recording, sorted.")
    endpoints: tuple[str, ...] = Field(description="Endpoints in the recording, sorted.")
    temperatures: tuple[tuple[float | None, int], ...] = Field(
        description="Temperatures and their numbers of requests, commonest first. None: the request has none, "
        "is sent without it, and the engine's default applies, which differs between vLLM releases."
    )
    prompt_chars: Quantiles | None = Field(description="Characters of text in the prompt.")
    prompt_tokens: Quantiles | None = Field(description="Recorded prompt tokens; None if none were recorded.")
    completion_tokens: Quantiles | None = Field(description="Recorded generated tokens; None if none were recorded.")
    max_tokens: Quantiles | None = Field(description="Limits on generated tokens; None if no request has one.")
    duration_s: float | None = Field(description="From first to last arrival in seconds; None without timestamps.")
    arrival_rate: float | None = Field(description="Mean arrivals per second; None without timestamps.")
    arrival_cv: float | None = Field(
        description="Coefficient of variation of the gaps between arrivals: 1 for Poisson, above for bursts."
    )
    structured_output: int = Field(description="Requests with a response format or guided decoding.")
    tools: int = Field(description="Requests that offer tools.")
    several_choices: int = Field(description="Requests with n above 1.")


def summarise_requests(name: str, requests: Sequence[Request], turns: Sequence[int]) -> ProfileSummary:
    """Summarise requests of which `turns` says how many belong to each session."""
    recorded = [request.recorded for request in requests if request.recorded is not None]
    temperatures = Counter(request.temperature for request in requests)
    return ProfileSummary(
        name=name,
        requests=len(requests),
        sessions=len(turns),
        turns_per_session=len(requests) / len(turns) if turns else 0.0,
        models=tuple(sorted({request.body["model"] for request in requests if request.body.get("model")})),
        endpoints=tuple(sorted({request.endpoint for request in requests})),
        temperatures=tuple(temperatures.most_common()),
        prompt_chars=_quantiles(prompt_chars(request.body) for request in requests),
        prompt_tokens=_quantiles(record.prompt_tokens for record in recorded),
        completion_tokens=_quantiles(record.completion_tokens for record in recorded),
        max_tokens=_quantiles(request.max_tokens for request in requests),
        **_arrivals([request.offset_s for request in requests if request.offset_s is not None]),
        structured_output=_having(requests, "response_format", "structured_outputs", "guided_json", "guided_regex"),
        tools=_having(requests, "tools", "functions"),
        several_choices=sum((request.body.get("n") or 1) > 1 for request in requests),
    )


def prompt_chars(body: Mapping[str, Any]) -> int:
    """Characters of text in a body's messages or prompt; token ids and images count as none."""
    if "prompt" in body:
        prompt = body["prompt"]
        parts = prompt if isinstance(prompt, list) else [prompt]
        return sum(len(part) for part in parts if isinstance(part, str))
    return sum(_content_chars(message.get("content")) for message in body["messages"])


def _content_chars(content: Any) -> int:
    if isinstance(content, str):
        return len(content)
    if not isinstance(content, list):
        return 0
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return sum(len(text) for text in texts if isinstance(text, str))


def _having(requests: Sequence[Request], *names: str) -> int:
    return sum(any(request.body.get(name) for name in names) for request in requests)


def _arrivals(offsets_s: list[float]) -> dict[str, float | None]:
    duration_s = offsets_s[-1] - offsets_s[0] if offsets_s else None
    gaps_s = [later - earlier for earlier, later in pairwise(offsets_s)]
    if not gaps_s or not duration_s:
        return {"duration_s": duration_s, "arrival_rate": None, "arrival_cv": None}
    mean_s = duration_s / len(gaps_s)
    return {
        "duration_s": duration_s,
        "arrival_rate": 1 / mean_s,
        "arrival_cv": statistics.pstdev(gaps_s) / mean_s,
    }


def _quantiles(values: Iterable[float | None]) -> Quantiles | None:
    known = sorted(value for value in values if value is not None)
    if not known:
        return None

    def rank(share: float) -> float:
        return known[max(0, math.ceil(share * len(known)) - 1)]

    return Quantiles(
        count=len(known),
        mean=statistics.fmean(known),
        minimum=known[0],
        p50=rank(0.5),
        p90=rank(0.9),
        p99=rank(0.99),
        maximum=known[-1],
    )
