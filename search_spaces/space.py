"""Search spaces: knobs plus starting points, resolved for one model, draft, release and set of GPUs.

`SearchSpace.resolve` keeps what is offered (offers.py) and fixes what the draft decides; `ResolvedSpace` turns knob
values into serve configs. Files are space_files.py's business, sampling the trunk's.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from search_spaces import methods, rules
from search_spaces.errors import SpaceFileError
from search_spaces.knobs import Knob, Scalar, Values, unsafe
from search_spaces.limits import batch_limits
from search_spaces.offers import Offer, offer
from search_spaces.serve_config import Argument, ServeConfig
from search_spaces.settings import catalogue, catalogue_knob, settings_of
from search_spaces.speculation_rules import token_budget_holds_drafts


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

    @model_validator(mode="after")
    def _values_can_be_written(self) -> Self:
        named = [("fixed", self.fixed), *((f"seeds.{i}", seed) for i, seed in enumerate(self.seeds))]
        for where, values in named:
            for name, value in values.items():
                knob = self.knobs[name]
                reason = unsafe(knob.speculative_key or "", [value])
                if reason:
                    raise ValueError(f"{where}.{name}: {reason}")
                knob.written(value)
        return self

    def resolve(
        self, facts: rules.Facts, *, fixed_args: Mapping[str, Argument], env: Mapping[str, str]
    ) -> "ResolvedSpace":
        """Keeps what release, checkpoints and GPUs offer; what is left out is told with the reason.

        Raises:
            SpaceFileError: K is open but the draft's block is unknown or too short for the range, or somebody's own
                knob names what the release does not have.
        """
        searched = self._methods(facts)
        left_out: dict[str, str] = {}
        knobs: dict[str, Knob] = {}
        for name, knob in self.knobs.items():
            found = _fixed_for_all(knob, fixed_args) or offer(name, knob, facts, searched)
            if found.knob is not None:
                knobs[name] = found.knob
            if found.reason:
                left_out[name] = found.reason
        fixed = {name: value for name, value in self.fixed.items() if name in knobs}
        for name, reason in _never_alive(knobs, fixed).items():
            del knobs[name]
            left_out[name] = reason
        fixed = {name: value for name, value in fixed.items() if name in knobs}
        return ResolvedSpace(
            name=self.name,
            facts=facts,
            knobs=knobs,
            fixed=fixed,
            seeds=tuple(self._points(facts, knobs, fixed)),
            fixed_args=dict(fixed_args),
            env=dict(env),
            left_out=left_out,
        )

    def _points(
        self, facts: rules.Facts, knobs: Mapping[str, Knob], fixed: Mapping[str, Scalar]
    ) -> Iterator[dict[str, Scalar]]:
        """Seeds whose method is offered, each once, with names for K replaced."""
        limit = methods.longest_k(facts) or methods.LONGEST_K_WITHOUT_BLOCK
        symbols: dict[Scalar, Scalar] = {"draft_block": limit, "half_block": max(1, limit // 2)}
        seen: list[dict[str, Scalar]] = []
        for seed in self.seeds:
            method = seed.get("method")
            if method not in (None, "none") and ("method" not in knobs or method not in knobs["method"].values()):
                continue
            point = {name: symbols.get(value, value) for name, value in {**seed, **fixed}.items() if name in knobs}
            if point not in seen:
                seen.append(point)
                yield point

    def _methods(self, facts: rules.Facts) -> tuple[str, ...]:
        """Speculative methods that the space can set here."""
        knob = self.knobs.get("method")
        found = offer("method", knob, facts, ()).knob if knob is not None else None
        if found is None:
            return ()
        values = [self.fixed["method"]] if "method" in self.fixed else found.values()
        return tuple(str(value) for value in values if value not in (None, "none"))


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
    left_out: dict[str, str] = field(default_factory=dict)

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
        """The vendor's recipe: the draft's method at its longest K, prefix caching on, a budget that holds every draft.

        None without a draft whose method the space has.
        """
        if self.facts.draft is None or "num_speculative_tokens" not in self.knobs:
            return None
        method = methods.draft_method(self.facts.draft)
        if "method" not in self.knobs or method not in self.knobs["method"].values():
            return None
        values = {
            "method": method,
            "num_speculative_tokens": methods.longest_k(self.facts) or max(self._lengths()),
            "prefix_caching": True,
            **self.fixed,
        }
        return self.starting_point(values)

    def starting_point(self, values: Values) -> dict[str, Scalar]:
        """A point that is not left out for its token budget alone: the budget is raised until it holds every draft."""
        point = self.complete(values)
        settings = self.settings(point)
        given = "max_num_batched_tokens" in values or "max-num-batched-tokens" in self.fixed_args
        if given or not token_budget_holds_drafts(settings, self.facts):
            return point
        k, (seqs, _) = point.get("num_speculative_tokens"), batch_limits(settings, self.facts)
        if isinstance(k, int):
            point["max_num_batched_tokens"] = 1 << ((k + 1) * seqs - 1).bit_length()
        return point

    def complete(self, values: Values) -> dict[str, Scalar]:
        """Fills in fixed values, the one value of knobs with a single choice, and engine defaults for the others."""
        defaults = {
            name: knob.values()[0] if len(knob.values()) == 1 else knob.engine_default
            for name, knob in self.knobs.items()
        }
        return {**defaults, **self.fixed, **values}

    def settings(self, values: Values) -> dict[str, Any]:
        """Values and fixed arguments under the names that rules use."""
        return settings_of(values, self.knobs, self.fixed_args)

    def refusal(self, values: Values) -> str | None:
        """Why these values cannot be launched, or None."""
        return rules.refusal(self.settings(values), self.facts)

    def refused(self, limit: int) -> dict[str, tuple[int, str]]:
        """How many combinations each rule refuses, with one reason as an example; looks at `limit` of them at most."""
        found: dict[str, tuple[int, str]] = {}
        for values in self.combinations(limit):
            settings = self.settings(values)
            for rule in rules.RULES:
                reason = rule(settings, self.facts)
                if reason:
                    found[rule.__name__] = (found.get(rule.__name__, (0, reason))[0] + 1, reason)
                    break
        return found

    def combinations(self, limit: int) -> Iterator[dict[str, Scalar]]:
        """All combinations of tunable values, or `limit` different ones spread over the whole space."""
        tunable = {name: knob.values() for name, knob in self.tunable().items()}
        total = self.size()
        stride = 1
        if total > limit:  # a step of the golden ratio meets every knob's values about equally often
            stride = int(total * 0.6180339887) | 1
            while math.gcd(stride, total) > 1:
                stride += 2
        for number in range(min(total, limit)):
            index = number * stride % total
            values: dict[str, Scalar] = {}
            for name, choices in tunable.items():
                index, position = divmod(index, len(choices))
                values[name] = choices[position]
            yield self.complete(values)

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
        identity = {name: value for name, value in alive.items() if value != self._knob(name).engine_default}
        tuned: dict[str, Argument] = {}
        speculative: dict[str, Any] = {}
        for name, value in identity.items():
            knob = self._knob(name)
            if knob.speculative_key:
                speculative[knob.speculative_key] = knob.written(value)
            elif knob.flag and knob.json_key:
                given = tuned.get(knob.flag, self.fixed_args.get(knob.flag))
                tuned[knob.flag] = {**(given if isinstance(given, dict) else {}), knob.json_key: knob.written(value)}
            elif knob.flag:
                tuned[knob.flag] = knob.written(value)
        method = methods.METHODS.get(str(speculative.get("method", "none")))
        if method is not None:
            if method.source == "draft" and self.facts.draft is not None:
                speculative["model"] = self.facts.draft.path
            tuned["speculative-config"] = speculative
        return ServeConfig(
            model=self.facts.target.path,
            values=complete,
            fixed_args=self.fixed_args,
            tuned_args=tuned,
            env=self.env,
            identity=identity,
        )

    def _knob(self, name: str) -> Knob:
        """A starting point or a schedule may set a knob that the space does not tune: then the catalogue's."""
        if name in self.knobs:
            return self.knobs[name]
        if name not in catalogue():
            raise SpaceFileError(f"{name} is no knob of the space {self.name} nor of the catalogue")
        return catalogue_knob(name)

    def _lengths(self) -> list[int]:
        return [value for value in self.knobs["num_speculative_tokens"].values() if isinstance(value, int)]


def _fixed_for_all(knob: Knob, fixed_args: Mapping[str, Argument]) -> Offer | None:
    """What --engine-args says holds for every launch; a search must not overrule it."""
    argument = fixed_args.get(knob.flag or "")
    if knob.json_key is not None:
        argument = argument.get(knob.json_key) if isinstance(argument, dict) else None
    if argument is None:
        return None
    return Offer(None, f"--engine-args sets --{knob.flag} for every launch")


def _never_alive(knobs: Mapping[str, Knob], fixed: Mapping[str, Scalar]) -> dict[str, str]:
    """Knobs that matter only with values of others that cannot be set here."""
    found = {}
    for name, knob in knobs.items():
        for other, allowed in knob.when.items():
            if other in fixed:
                possible: tuple[Scalar, ...] = (fixed[other],)
            else:
                possible = knobs[other].values() if other in knobs else (None,)
            if not any(value in allowed for value in possible):
                found[name] = f"it matters only with {other}={' or '.join(map(str, allowed))}"
    return found
