"""Search spaces: knobs plus starting points, from a preset or a user's YAML, resolved for one model, draft and release.

`load_space` reads the file; `SearchSpace.resolve` fixes what draft and release decide (the range of K, knobs that the
release does not have); `ResolvedSpace` turns knob values into serve configs. Sampling is the trunk's business.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from search_spaces import rules
from search_spaces.errors import SpaceFileError
from search_spaces.knobs import Knob, Scalar, Values
from search_spaces.serve_config import Argument, ServeConfig


class SearchSpace(BaseModel):
    """Knobs and starting points before draft and release are known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="name of the space")
    description: str = Field(default="", description="what it is for")
    knobs: dict[str, Knob] = Field(description="tunable values by name")
    fixed: dict[str, Scalar] = Field(default_factory=dict, description="knobs held at one value")
    seeds: tuple[dict[str, Scalar], ...] = Field(
        default=(), description="knob values to measure first; names stand for K"
    )

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        """A misspelt name would silently tune something else than its author meant."""
        named = {f"fixed.{name}": name for name in self.fixed}
        named |= {f"seeds.{i}.{name}": name for i, seed in enumerate(self.seeds) for name in seed}
        named |= {
            f"knobs.{knob}.when.{name}": name
            for knob, found in self.knobs.items()
            for name, allowed in found.when.items()
            if None not in allowed
        }
        unknown = [where for where, name in named.items() if name not in self.knobs]
        if unknown:
            raise ValueError(f"{unknown[0]} names no knob; the knobs are {', '.join(self.knobs)}")
        return self

    def resolve(
        self, facts: rules.Facts, *, fixed_args: Mapping[str, Argument], env: Mapping[str, str]
    ) -> "ResolvedSpace":
        """Fixes everything that draft and release decide.

        Raises:
            SpaceFileError: K is open but the draft's block is unknown or too short for the range.
        """
        limit = facts.draft.max_speculative_tokens if facts.draft else None
        knobs = {}
        for name, knob in self.knobs.items():
            if knob.needs and not getattr(facts.release, knob.needs):
                continue
            if knob.when.get("method") and facts.draft is None:
                continue
            if name == "method" and facts.draft is None:
                continue
            knobs[name] = _resolve_range(name, knob, limit)
        symbols: dict[Scalar, Scalar] = {"draft_block": limit, "half_block": max(1, (limit or 1) // 2)}
        seeds = tuple(
            {name: symbols.get(value, value) for name, value in {**seed, **self.fixed}.items() if name in knobs}
            for seed in self.seeds
            if facts.draft is not None or seed.get("method") in (None, "none")
        )
        return ResolvedSpace(self.name, facts, knobs, dict(self.fixed), seeds, dict(fixed_args), dict(env))


@dataclass(frozen=True, slots=True)
class ResolvedSpace:
    """A space whose every knob has a known set of values."""

    name: str
    facts: rules.Facts
    knobs: dict[str, Knob]
    fixed: dict[str, Scalar]
    seeds: tuple[dict[str, Scalar], ...]
    fixed_args: dict[str, Argument]
    env: dict[str, str]

    def tunable(self) -> dict[str, Knob]:
        """Knobs with more than one value; the others are dead and never sampled."""
        return {n: k for n, k in self.knobs.items() if n not in self.fixed and len(k.values()) > 1}

    def size(self) -> int:
        """Number of distinct combinations, dead ones included."""
        total = 1
        for knob in self.tunable().values():
            total *= len(knob.values())
        return total

    def baseline(self) -> dict[str, Scalar]:
        """vLLM's own defaults without speculation, whatever else the space holds fixed."""
        return self.complete({"method": "none"} if "method" in self.knobs else {})

    def recipe(self) -> dict[str, Scalar] | None:
        """The vendor's recipe: the longest K, prefix caching on, a token budget that holds every draft.

        None without a draft.
        """
        if self.facts.draft is None or "num_speculative_tokens" not in self.knobs:
            return None
        values = {
            "method": "dflash",
            "num_speculative_tokens": self.facts.draft.max_speculative_tokens,
            "prefix_caching": True,
            **self.fixed,
        }
        return self.starting_point(values)

    def starting_point(self, values: Values) -> dict[str, Scalar]:
        """A point that is not left out for its token budget alone: the budget is raised until it holds every draft."""
        point = self.complete(values)
        if "max_num_batched_tokens" not in values and rules.token_budget_holds_drafts(point, self.facts):
            k, seqs = point.get("num_speculative_tokens"), point.get("max_num_seqs")
            seqs = seqs or self.facts.release.defaults[self.facts.device].max_num_seqs
            if isinstance(k, int) and isinstance(seqs, int):
                point["max_num_batched_tokens"] = 1 << ((k + 1) * seqs - 1).bit_length()
        return point

    def complete(self, values: Values) -> dict[str, Scalar]:
        """Fills in fixed values and engine defaults for knobs that are not named."""
        defaults = {name: knob.engine_default for name, knob in self.knobs.items()}
        return {**defaults, **self.fixed, **values}

    def refusal(self, values: Values) -> str | None:
        """Why these values cannot be launched, or None."""
        return rules.refusal(values, self.facts)

    def refused(self, limit: int = 200_000) -> dict[str, tuple[int, str]]:
        """How many combinations each rule refuses, with one reason as an example; looks at `limit` of them at most."""
        tunable = self.tunable()
        found: dict[str, tuple[int, str]] = {}
        combinations = itertools.product(*(knob.values() for knob in tunable.values()))
        for combination in itertools.islice(combinations, limit):
            values = self.complete(dict(zip(tunable, combination, strict=True)))
            for rule in rules.RULES:
                reason = rule(values, self.facts)
                if reason:
                    found[rule.__name__] = (found.get(rule.__name__, (0, reason))[0] + 1, reason)
                    break
        return found

    def alive(self, values: Values) -> dict[str, Scalar]:
        """Values that reach the engine: neither dead nor left to it."""
        return {
            name: value
            for name, value in values.items()
            if value is not None and (name not in self.knobs or self.knobs[name].is_alive(values))
        }

    def serve_config(self, values: Values) -> ServeConfig:
        """Builds the serve config; dead knobs, nulls and the engine's own defaults leave no trace in it."""
        complete = self.complete(values)
        alive = self.alive(complete)
        identity = {n: v for n, v in alive.items() if n not in self.knobs or v != self.knobs[n].engine_default}
        tuned: dict[str, Argument] = {}
        speculative: dict[str, Any] = {}
        for name, value in identity.items():
            knob = self.knobs.get(name) or _knob_of_recipe(name)
            if knob.speculative_key:
                speculative[knob.speculative_key] = value
            elif knob.flag and value is not None:
                tuned[knob.flag] = value
        if speculative.get("method", "none") != "none" and self.facts.draft is not None:
            tuned["speculative-config"] = {**speculative, "model": self.facts.draft.path}
        return ServeConfig(
            model=self.facts.target.path,
            values=complete,
            fixed_args=self.fixed_args,
            tuned_args=tuned,
            env=self.env,
            identity=identity,
        )


def preset_names() -> tuple[str, ...]:
    """Names that `load_space` knows without a file."""
    files = resources.files("search_spaces.presets").iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


def load_space(name_or_path: str) -> SearchSpace:
    """Loads a preset by name or a user's YAML by path.

    Raises:
        SpaceFileError: no such preset or file, or the content is not a search space.
    """
    return _parse(_read(name_or_path, ()), name_or_path)


def _read(name_or_path: str, children: tuple[str, ...]) -> dict[str, Any]:
    if name_or_path in children:
        raise SpaceFileError(f"{children[0]}: extends itself ({' -> '.join((*children, name_or_path))})")
    if name_or_path in preset_names():
        text = resources.files("search_spaces.presets").joinpath(f"{name_or_path}.yaml").read_text(encoding="utf-8")
    else:
        path = Path(name_or_path)
        if not path.is_file():
            raise SpaceFileError(
                f"search space {name_or_path!r}: no such file, and not one of the presets {', '.join(preset_names())}"
            )
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SpaceFileError(f"{name_or_path}: cannot be read ({error})") from error
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SpaceFileError(f"{name_or_path}: not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(document, dict):
        raise SpaceFileError(f"{name_or_path}: must be a mapping with name and knobs, not {type(document).__name__}")
    return _inherit(document, (*children, name_or_path))


def _inherit(document: dict[str, Any], children: tuple[str, ...]) -> dict[str, Any]:
    """Merges the parent's knobs under the child's; `remove: true` drops one and what was inherited about it."""
    parent_name = document.pop("extends", None)
    knobs = document.get("knobs") or {}
    if not isinstance(knobs, dict) or not all(isinstance(changes, dict | None) for changes in knobs.values()):
        raise SpaceFileError(f"{children[-1]}: knobs: must map names to mappings such as {{choices: [16, 32]}}")
    parent = _read(str(parent_name), children) if parent_name else {"knobs": {}}
    merged: dict[str, Any] = dict(parent["knobs"])
    for name, changes in knobs.items():
        changed = dict(changes or {})
        if changed.pop("remove", False):
            merged.pop(name, None)
            parent = _without(name, parent)
            continue
        inherited = dict(merged.get(name, {}))
        if "choices" in changed:
            inherited.pop("low", None)
            inherited.pop("high", None)
        elif "low" in changed or "high" in changed:
            inherited.pop("choices", None)
        merged[name] = {**inherited, **changed}
    return {**parent, **document, "knobs": merged}


def _without(removed: str, parent: dict[str, Any]) -> dict[str, Any]:
    """A parent whose starting points no longer name a knob that its child removed."""
    seeds = [{name: value for name, value in seed.items() if name != removed} for seed in parent.get("seeds", ())]
    fixed = {name: value for name, value in parent.get("fixed", {}).items() if name != removed}
    return {**parent, "seeds": seeds, "fixed": fixed}


def _parse(document: dict[str, Any], source: str) -> SearchSpace:
    try:
        return SearchSpace.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "top level"
        raise SpaceFileError(f"{source}: {where}: {first['msg']} (got {first['input']!r:.80})") from error


def _resolve_range(name: str, knob: Knob, limit: int | None) -> Knob:
    if knob.high != "draft_block":
        return knob
    if limit is None:
        raise SpaceFileError(
            f"{name} has no upper end: the draft's config.json names no block_size; "
            "set a number in the search space (knobs: {num_speculative_tokens: {low: 1, high: 7}})"
        )
    if knob.low is not None and knob.low > limit:
        raise SpaceFileError(f"{name}: low is {knob.low}, but the draft's block allows {limit} at most; lower it")
    return knob.model_copy(update={"high": limit})


def _knob_of_recipe(name: str) -> Knob:
    """The recipe may set a knob that the space does not tune; its flag is the preset's."""
    return load_space("dflash").knobs[name]
