"""What is in recorded traffic, in numbers and without a word of it: the whole, each profile, and what is wrong with it.

Models for files and pages, and their making from `columns.py`. How they look is the command line's business.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from workloads.arrivals import Arrivals, Concurrency, arrivals, concurrency
from workloads.clustering import find_kinds
from workloads.columns import SETTINGS, Bools, Columns, Numbers
from workloads.conversations import Conversations, conversations
from workloads.prefixes import KV_BLOCK_SIZES, hit_tokens
from workloads.problems import problems
from workloads.profile import AUTO, check_tag, labeller, profile_names
from workloads.quantiles import Quantiles, quantiles
from workloads.read import RequestStream
from workloads.request import RejectedLine, Request


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class HitRate(_Model):
    """Hit rate of a prefix cache that never forgets."""

    kv_block_size: int = Field(description="KV block size, tokens.")
    hit_rate: float = Field(description="Prompt tokens found in full cached blocks over all prompt tokens, 0 to 1.")


class PrefixSharing(_Model):
    """What prompts have in common with earlier ones of the whole file."""

    hit_rates: tuple[HitRate, ...] = Field(description="By KV block size.")
    repeated_prompts: int = Field(description="Requests whose whole prompt is that of an earlier one of the profile.")
    recorded_hit_rate: float | None = Field(
        description="Recorded cached tokens over prompt tokens, where recorded: what the original server's cache did."
    )


class SamplingMix(_Model):
    """How tokens were asked to be sampled, in numbers of requests."""

    temperatures: tuple[tuple[float | None, int], ...] = Field(
        description="Temperatures and their numbers of requests, commonest first. None: the request has none, "
        "is sent without it, and the engine's default applies, which differs between vLLM releases."
    )
    settings: dict[str, int] = Field(description="Other sampling fields that bodies have.")
    structured_output: int = Field(description="With a response format or guided decoding.")
    tools: int = Field(description="That offer tools.")
    several_choices: int = Field(description="With n above 1.")
    media: int = Field(description="With images or sounds.")
    code: int = Field(description="That ask in code or about code.")


class Traffic(_Model):
    """Some of the requests in numbers."""

    requests: int = Field(description="Number of requests.")
    share: float = Field(description="Share of all requests, 0 to 1.")
    because: tuple[str, ...] = Field(description="With profiles by auto: the conditions that its requests meet.")
    models: dict[str, int] = Field(description="Model names in the recording; empty for requests without one.")
    prompt_tokens: Quantiles | None = Field(
        description="As recorded, else the number of token ids, else a quarter of the characters."
    )
    prompt_tokens_estimated: int = Field(description="Requests whose prompt tokens are estimated from characters.")
    output_tokens: Quantiles | None = Field(description="Recorded generated tokens; None if none were recorded.")
    max_tokens: Quantiles | None = Field(description="Limits on generated tokens; None if no request has one.")
    failed: int = Field(description="Requests that the original server refused or failed (status 400 and above).")
    arrivals: Arrivals | None = Field(description="None without timestamps.")
    concurrency: Concurrency | None = Field(description="None without timestamps and recorded durations.")
    conversations: Conversations = Field(description="Sessions and think times.")
    prefix_sharing: PrefixSharing = Field(description="What a prefix cache could do.")
    sampling: SamplingMix = Field(description="Sampling parameters.")


class Rejected(_Model):
    """A line that is no usable request."""

    line: int = Field(description="Line of the file, from 1.")
    reason: str = Field(description="What is wrong with it.")


class Inspection(_Model):
    """What is in a workload file."""

    path: Path = Field(description="The file.")
    format: str = Field(description="Format that it was read as.")
    digest: str = Field(description="sha256 of the file's bytes.")
    text_bearing: bool = Field(description="Whether prompts are real text, so that acceptance means something.")
    profile_by: str = Field(description="What names a profile.")
    whole: Traffic = Field(description="All requests.")
    profiles: dict[str, Traffic] = Field(description="By name, in the order of their first request.")
    notes: tuple[str, ...] = Field(description="How the file was understood.")
    unhonoured: dict[str, int] = Field(description="What a replay cannot honour, with the number of times it was met.")
    rejected: tuple[Rejected, ...] = Field(description="Lines left out.")
    problems: tuple[str, ...] = Field(description="What makes measurements on this traffic worth less, and the remedy.")


class Origin(Protocol):
    """Where requests come from: a `RequestStream` that has been read to its end, or a `Workload`."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def text_bearing(self) -> bool:
        """Whether prompts are real text."""

    @property
    def format(self) -> str:
        """Name of the format."""

    @property
    def digest(self) -> str:
        """Digest of the file."""

    @property
    def notes(self) -> tuple[str, ...]:
        """How the file was understood."""

    @property
    def unhonoured(self) -> Mapping[str, int]:
        """What a replay cannot honour."""

    @property
    def rejected(self) -> Sequence[RejectedLine]:
        """Lines left out."""


def inspect_stream(opened: Callable[[], RequestStream], profile_by: str = "route") -> Inspection:
    """Look at a file as it is read; errors are those of `inspect_traffic`."""
    labeller(profile_by)  # refused before a file is opened that nobody would read to its end
    stream = opened()
    return inspect_traffic(stream, stream, profile_by)


def inspect_traffic(requests: Iterable[Request], origin: Origin, profile_by: str = "route") -> Inspection:
    """Look at requests in order of arrival, each once; memory does not grow with their text.

    Raises:
        ProfileError: as `split_profiles`.
        WorkloadError: as the requests' source, when it ends.
    """
    columns = Columns(labeller(profile_by))
    for request in requests:
        columns.add(request)
    numbers = columns.numbers()
    profiles = _profiles(numbers, columns, profile_by)
    everything = np.ones(len(numbers), dtype=np.bool_)
    models = list(columns.models)
    return Inspection(
        path=origin.path,
        format=origin.format,
        digest=origin.digest,
        text_bearing=origin.text_bearing,
        profile_by=profile_by,
        whole=_traffic(numbers, everything, models, ()),
        profiles={name: _traffic(numbers, chosen, models, because) for name, (chosen, because) in profiles.items()},
        notes=origin.notes,
        unhonoured=dict(origin.unhonoured),
        rejected=tuple(Rejected(line=each.line, reason=each.reason) for each in origin.rejected),
        problems=tuple(
            problems(numbers, {name: chosen for name, (chosen, _) in profiles.items()}, origin.text_bearing)
        ),
    )


def _profiles(numbers: Numbers, columns: Columns, profile_by: str) -> dict[str, tuple[Bools, tuple[str, ...]]]:
    """Which requests belong to each profile, and why."""
    if profile_by == AUTO:
        found = find_kinds(numbers)
        return {kind.name: (found.of_request == place, kind.because) for place, kind in enumerate(found.kinds)}
    if set(columns.labels) == {None}:
        check_tag(profile_by, columns.tag_keys)
    return {
        name: (numbers.label == place, ())
        for name, place in zip(profile_names(columns.labels), columns.labels.values(), strict=True)
    }


def _traffic(everything: Numbers, chosen: Bools, models: list[str], because: tuple[str, ...]) -> Traffic:
    numbers = everything.where(chosen)
    return Traffic(
        requests=len(numbers),
        share=len(numbers) / len(everything),
        because=because,
        models={models[place]: count for place, count in Counter(numbers.model.tolist()).most_common()},
        prompt_tokens=quantiles(numbers.prompt_tokens),
        prompt_tokens_estimated=int((~numbers.prompt_known).sum()),
        output_tokens=quantiles(numbers.output_tokens),
        max_tokens=quantiles(numbers.max_tokens),
        failed=int(numbers.has("failed").sum()),
        arrivals=arrivals(numbers.offset_s),
        concurrency=concurrency(numbers.offset_s, numbers.duration_s),
        conversations=conversations(numbers),
        prefix_sharing=_prefix_sharing(numbers),
        sampling=_sampling_mix(numbers),
    )


def _prefix_sharing(numbers: Numbers) -> PrefixSharing:
    prompt_tokens = max(1.0, float(numbers.prompt_tokens.sum()))
    known = ~np.isnan(numbers.cached_tokens)
    cached = float(numbers.cached_tokens[known].sum()) / max(1.0, float(numbers.prompt_tokens[known].sum()))
    return PrefixSharing(
        hit_rates=tuple(
            HitRate(
                kv_block_size=size,
                hit_rate=float(hit_tokens(numbers.shared_tokens, numbers.prompt_tokens, size).sum()) / prompt_tokens,
            )
            for size in KV_BLOCK_SIZES
        ),
        repeated_prompts=len(numbers) - len(np.unique(numbers.prompt_hash)),
        recorded_hit_rate=cached if known.any() else None,
    )


def _sampling_mix(numbers: Numbers) -> SamplingMix:
    temperatures = Counter(None if math.isnan(value) else value for value in numbers.temperature.tolist())
    settings = {name: int((numbers.settings >> place & 1).sum()) for place, name in enumerate(SETTINGS)}
    return SamplingMix(
        temperatures=tuple(temperatures.most_common()),
        settings={name: count for name, count in settings.items() if count},
        **{
            name: int(numbers.has(name).sum())
            for name in ("structured_output", "tools", "several_choices", "media", "code")
        },
    )
