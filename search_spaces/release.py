"""What each vLLM release can do, as data (releases/*.yaml), with where each fact was read.

A newer release than we know is served by the newest table with a warning; one older than every table is refused.
The true version of an engine comes from its /version endpoint; this module never starts or imports an engine.
"""

import re
from importlib import resources
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from search_spaces.checkpoint import Checkpoint
from search_spaces.errors import SearchSpaceError

# Ten times faster on a table of 500 lines; wheels of PyYAML have it, a build without libyaml does not.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Strict(BaseModel):
    """Base of what a table holds: frozen, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PlatformDefaults(Strict):
    """vLLM's own defaults that rules depend on, for one kind of device."""

    max_num_seqs: int = Field(description="requests scheduled at once")
    max_num_batched_tokens: int = Field(description="token budget of one step")
    kv_block_multiple: int = Field(description="KV block sizes must be multiples of this many tokens")


class Setting(Strict):
    """A flag of `vllm serve`, or a field of speculative_config."""

    type: Literal["bool", "int", "float", "str", "choice", "open_choice", "list", "json"] = Field(
        description="kind of value; of an open_choice other values than the known ones are taken too"
    )
    default: bool | int | float | str | list[Any] | dict[str, Any] | None = Field(
        description="vLLM's default; null when it is none or decided at run time"
    )
    choices: tuple[str, ...] = Field(default=(), description="all values of a choice, as they are written")
    known: tuple[str, ...] = Field(default=(), description="values of an open_choice that vLLM itself knows")

    def takes(self, value: object) -> bool:
        """Whether the value is one of a closed list of choices, or there is no such list."""
        return self.type != "choice" or value is None or str(value) in self.choices


class BlockDrop(Strict):
    """The rule that takes the last block from a prefix-cache hit."""

    methods: tuple[str, ...] = Field(description="methods that lose the block by default")
    can_disable: bool = Field(description="whether speculative_config has disable_eagle_block_drop")


class V2Only(Strict):
    """What only model runner V2 can do; it needs a GPU."""

    methods: tuple[str, ...] = Field(description="speculative methods")
    architectures: tuple[str, ...] = Field(description="draft architectures")


class Removed(Strict):
    """What the release before still had."""

    since: str = Field(description="that release line")
    flags: tuple[str, ...] = Field(description="flags of `vllm serve`")
    speculative_fields: tuple[str, ...] = Field(description="fields of speculative_config")
    methods: tuple[str, ...] = Field(description="speculative methods")


class Release(Strict):
    """One vLLM release line."""

    version: str = Field(description="release line, major.minor")
    provenance: str = Field(description="where these facts were read")
    methods: tuple[str, ...] = Field(description="values of speculative_config.method")
    deprecated_methods: tuple[str, ...] = Field(description="model-specific names that vLLM takes for mtp")
    block_drop: BlockDrop = Field(description="which methods lose the last block of a prefix hit")
    excess_draft_tokens: Literal["crash", "lowers_concurrency"] = Field(
        description="what happens when (K+1) x max_num_seqs exceeds max_num_batched_tokens"
    )
    v2_runner_only: V2Only = Field(description="what does not run on model runner V1, and so not on a CPU")
    draft_architectures: dict[str, str] = Field(description="draft classes, with the method each is served under")
    speculators_types: tuple[str, ...] = Field(
        description="speculators_model_type of checkpoints in the Speculators format that can be loaded"
    )
    defaults: dict[Literal["cpu", "gpu", "large_gpu", "huge_gpu"], PlatformDefaults] = Field(
        description="per kind of device"
    )
    speculative_fields: dict[str, Setting] = Field(description="fields of speculative_config")
    flags: dict[str, Setting] = Field(description="flags of `vllm serve` without dashes")
    removed: Removed = Field(description="what this release took away")

    @property
    def dflash_drops_last_block(self) -> bool:
        """Whether a prefix hit loses its last block under DFlash by default."""
        return "dflash" in self.block_drop.methods

    @property
    def can_disable_block_drop(self) -> bool:
        """Whether `disable_eagle_block_drop` exists and changes anything for DFlash."""
        return self.block_drop.can_disable and self.dflash_drops_last_block

    def draft_problem(self, draft: Checkpoint, *, on_cpu: bool) -> str | None:
        """Why this release cannot serve the draft, or None.

        vLLM asks its registry for `DFlash<architecture>` when a draft is served as dflash
        (transformers_utils/configs/eagle.py), so either name counts.
        """
        vllm = f"vLLM {self.version}"
        if draft.speculators_type is not None and draft.speculators_type not in self.speculators_types:
            known = ", ".join(self.speculators_types)
            return f"{vllm} cannot load Speculators drafts of type {draft.speculators_type!r}; it loads {known}"
        names = [form for name in draft.architectures for form in (name, f"DFlash{name}")]
        known_names = [name for name in names if name in self.draft_architectures]
        if not known_names:
            return f"{vllm} knows no draft architecture {', '.join(draft.architectures) or 'none'}; use a newer release"
        method = self.draft_architectures[known_names[0]]
        if on_cpu and (method in self.v2_runner_only.methods or set(names) & set(self.v2_runner_only.architectures)):
            return f"{known_names[0]} needs vLLM's model runner V2, which does not run on a CPU"
        return None


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
    release = Release.model_validate(yaml.load(table, _LOADER))  # noqa: S506 - a safe loader, in C where there is one
    if _key(usable[-1]) == wanted:
        return release, None
    return release, f"vLLM {version} is not in the release tables; using what is known of {usable[-1]}"


def _key(name: str) -> tuple[int, int]:
    major, minor = name.split(".")
    return int(major), int(minor)
