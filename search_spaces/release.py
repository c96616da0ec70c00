"""What each vLLM release can do, as data (releases/*.yaml), with where each fact was read.

A newer release than we know is served by the newest table with a warning; one older than every table is refused.
The true version of an engine comes from its /version endpoint; this module never starts or imports an engine.
"""

import re
from importlib import resources
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from search_spaces.errors import SearchSpaceError


class PlatformDefaults(BaseModel):
    """vLLM's own defaults that rules depend on, for one kind of device."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_num_seqs: int = Field(description="requests scheduled at once")
    max_num_batched_tokens: int = Field(description="token budget of one step")
    kv_block_multiple: int = Field(description="KV block sizes must be multiples of this many tokens")


class Flag(BaseModel):
    """One option of `vllm serve`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    choices: tuple[str, ...] | None = Field(default=None, description="values it takes; null where any will do")
    default: bool | int | float | str | None = Field(default=None, description="vLLM's default; null: its own choice")


class Release(BaseModel):
    """One vLLM release line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str = Field(description="release line, major.minor")
    provenance: str = Field(description="where these facts were read")
    methods: tuple[str, ...] = Field(description="values of speculative_config.method")
    speculative_keys: tuple[str, ...] = Field(description="keys that speculative_config accepts")
    dflash_drops_last_block: bool = Field(
        description="whether a prefix hit loses its last block under DFlash by default"
    )
    excess_draft_tokens: Literal["crash", "lowers_concurrency"] = Field(
        description="what happens when (K+1) x max_num_seqs exceeds max_num_batched_tokens"
    )
    defaults: dict[Literal["cpu", "gpu", "large_gpu"], PlatformDefaults] = Field(description="per kind of device")
    flags: dict[str, Flag] = Field(
        default_factory=dict, description="options of `vllm serve` without dashes; empty where they were not read"
    )
    speculative_choices: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="values that a key of speculative_config takes, where they are a list"
    )

    @property
    def can_disable_block_drop(self) -> bool:
        """Whether `disable_eagle_block_drop` exists and changes anything for DFlash."""
        return "disable_eagle_block_drop" in self.speculative_keys and self.dflash_drops_last_block


def known_releases() -> tuple[str, ...]:
    """Release lines with a table, oldest first."""
    names = [file.name.removesuffix(".yaml") for file in resources.files("search_spaces.releases").iterdir()]
    return tuple(sorted((name for name in names if re.fullmatch(r"\d+\.\d+", name)), key=_key))


def load_release(version: str) -> tuple[Release, str | None]:
    """Finds the table for a version such as "0.32.0+cpu".

    Returns:
        The table and, when the exact line is not known, a warning sentence.

    Raises:
        SearchSpaceError: the version is not one, or older than the oldest table.
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    if not match:
        raise SearchSpaceError(f"engine version {version!r} is not of the form major.minor; is this a vLLM server?")
    wanted = (int(match[1]), int(match[2]))
    known = known_releases()
    usable = [name for name in known if _key(name) <= wanted]
    if not usable:
        raise SearchSpaceError(
            f"vLLM {version} is older than {known[0]}, the oldest release with DFlash support here; upgrade vLLM"
        )
    table = resources.files("search_spaces.releases").joinpath(f"{usable[-1]}.yaml").read_text(encoding="utf-8")
    release = Release.model_validate(yaml.safe_load(table))
    if _key(usable[-1]) == wanted:
        return release, None
    return release, f"vLLM {version} is not in the release tables; using what is known of {usable[-1]}"


def _key(name: str) -> tuple[int, int]:
    major, minor = name.split(".")
    return int(major), int(minor)
