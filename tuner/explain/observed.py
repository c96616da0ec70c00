"""What a study observed, arranged to be explained: an arm per configuration and condition, its settings told apart.

Reads trial records alone. Says what a configuration *is* (method, K, caching, other flags), not what follows from it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from search_spaces import Scalar, ServeConfig
from tuner.objective import Objective
from tuner.records import Measurement, TrialRecord
from workloads import Load, parse_loads

SPECULATION, CACHING, DROP_DISABLED = "speculation", "prefix caching", "block drop off"
# Flags that the factors above already stand for.
_OWN_FLAGS = ("speculative-config", "enable-prefix-caching")


@dataclass(frozen=True)
class Arm:
    """One configuration under one condition, with every valid measurement of it."""

    condition: str
    profile: str
    records: tuple[TrialRecord, ...]
    measurements: tuple[Measurement, ...]
    """On the search's part of the traffic; of the confirmation where the search has none."""

    @property
    def config(self) -> ServeConfig:
        """How its engine was started."""
        return self.records[0].plan.serve_config

    @property
    def label(self) -> str:
        """The configuration in short."""
        return self.config.label()

    @property
    def trials(self) -> tuple[int, ...]:
        """Numbers of its trials."""
        return tuple(record.plan.number for record in self.records)

    @cached_property
    def flags(self) -> Mapping[str, Any]:
        """vLLM flags in effect, without dashes."""
        return {**self.config.engine_args, **self._applied_flags()}

    @property
    def speculative(self) -> Mapping[str, Any]:
        """The speculative configuration; empty without."""
        given = self.config.engine_args.get("speculative-config")
        return given if isinstance(given, dict) and given.get("method", "dflash") != "none" else {}

    @property
    def method(self) -> str | None:
        """Speculative method; None without speculation."""
        return str(self.speculative.get("method", "draft_model")) if self.speculative else None

    @property
    def k(self) -> int:
        """Draft tokens per step; 0 without speculation."""
        found = self.speculative.get("num_speculative_tokens", len(self.curve))
        return int(found) if self.speculative else 0

    @property
    def caching(self) -> bool:
        """Whether the prefix cache is on; it is unless told otherwise."""
        return self.flags.get("enable-prefix-caching", True) is not False

    @cached_property
    def factors(self) -> dict[str, Scalar]:
        """Settings that a study can cross; None where the setting has no effect or is left to the engine."""
        special = {k: v for k, v in self.speculative.items() if k not in ("model", "disable_eagle_block_drop")}
        method = special.pop("method", None)
        named = ", ".join(
            [f"K={special.pop('num_speculative_tokens', '?')}", *(f"{k}={v}" for k, v in special.items())]
        )
        factors: dict[str, Scalar] = {
            SPECULATION: f"{method} {named}" if self.speculative else None,
            CACHING: self.caching,
        }
        if self.speculative and self.caching:
            factors[DROP_DISABLED] = bool(self.speculative.get("disable_eagle_block_drop", False))
        for flag, value in self.config.tuned_args.items():
            if flag not in _OWN_FLAGS:
                factors[flag] = value if isinstance(value, bool | int | float | str) else str(value)
        return factors

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Means over the measurements; counters are means too, so that their ratios hold."""
        names = {name for m in self.measurements for name in m.metrics}
        return {name: _mean([m.metrics[name] for m in self.measurements if name in m.metrics]) for name in names}

    @cached_property
    def load(self) -> Load:
        """How it was driven."""
        return parse_loads(self.measurements[0].load)[0]

    @property
    def temperature(self) -> float | None:
        """What was sent; None as recorded."""
        return self.measurements[0].temperature

    @property
    def in_flight(self) -> float | None:
        """Requests in flight, mean."""
        return self.metrics.get("in_flight_mean")

    @property
    def running(self) -> float:
        """Requests that the engine ran at once, mean; 1 where nothing is known."""
        return self.metrics.get("running_mean") or self.in_flight or 1.0

    @property
    def concurrency(self) -> float:
        """Requests in flight: the asked number in a closed loop, else the mean."""
        return self.load.value if self.load.kind == "concurrency" else self.in_flight or 1.0

    @cached_property
    def curve(self) -> tuple[float, ...]:
        """p_k: accepted at position k / drafts."""
        metrics = self.metrics
        names = sorted(name for name in metrics if name.startswith("accepted_at_"))
        return tuple(metrics[name] for name in names)

    @property
    def cached_tokens(self) -> float | None:
        """Prompt tokens found in the cache: as the engine counts, else as the answers say."""
        return self.metrics.get("prefix_hit_tokens", self.metrics.get("cached_tokens"))

    @property
    def version(self) -> str:
        """vLLM release that answered."""
        return next((r.engine_version for r in self.records if r.engine_version), "")

    def block_values(self, metric: str) -> dict[int, float]:
        """Geometric mean of a block metric over the measurements, by block."""
        values: dict[int, list[float]] = {}
        for measurement in self.measurements:
            for block in measurement.blocks:
                if (value := block.metrics.get(metric, 0.0)) > 0:
                    values.setdefault(block.block, []).append(math.log(value))
        return {number: math.exp(_mean(logs)) for number, logs in values.items()}

    def _applied_flags(self) -> dict[str, Any]:
        """What the engine uses instead; knobs are named with underscores, flags with dashes."""
        names = {"prefix_caching": "enable-prefix-caching", "kv_block_size": "block-size"}
        found: dict[str, Any] = {}
        for record in self.records:
            found |= {names.get(name, name.replace("_", "-")): value for name, value in record.applied.items()}
        return found


def arms_of(records: Sequence[TrialRecord], profiles: Mapping[str, str]) -> dict[str, list[Arm]]:
    """Arms by condition, in order of their first trial.

    Args:
        records: finished trials.
        profiles: profile of each condition's key; a key that is missing is its own profile.
    """
    grouped: dict[tuple[str, str, float | None], list[tuple[TrialRecord, Measurement]]] = {}
    for record in records:
        for condition, measurement in record.measurements.items():
            if measurement.valid:
                key = (condition, record.plan.serve_config.id, record.plan.temperature)
                grouped.setdefault(key, []).append((record, measurement))
    arms: dict[str, list[Arm]] = {}
    for (condition, _, _), found in grouped.items():
        searched = [row for row in found if row[1].part == "search"] or found
        arm = Arm(
            condition=condition,
            profile=profiles.get(condition, condition),
            records=tuple(record for record, _ in searched),
            measurements=tuple(measurement for _, measurement in searched),
        )
        arms.setdefault(condition, []).append(arm)
    return arms


def log_gains(over: Arm, under: Arm, objective: Objective) -> dict[int, float]:
    """Logarithm of how many times better one arm is than the other, by block; of the whole without blocks."""
    ours, theirs = over.block_values(objective.metric), under.block_values(objective.metric)
    shared = {b: math.log(objective.gain(ours[b], theirs[b])) for b in ours if b in theirs}
    if shared or _parts(over) != _parts(under):
        return shared
    ours_all, theirs_all = over.metrics.get(objective.metric, 0.0), under.metrics.get(objective.metric, 0.0)
    return {0: math.log(objective.gain(ours_all, theirs_all))} if ours_all > 0 and theirs_all > 0 else {}


def without_speculation(arm: Arm, arms: Iterable[Arm]) -> Arm | None:
    """The arm that differs by speculation alone, else one that does not speculate at all (the first measured)."""
    plain = [other for other in arms if other.method is None]
    own = {name: value for name, value in arm.factors.items() if name not in (SPECULATION, DROP_DISABLED)}
    same = [other for other in plain if {n: v for n, v in other.factors.items() if n != SPECULATION} == own]
    return next(iter(same or [other for other in plain if other.caching == arm.caching] or plain), None)


def _parts(arm: Arm) -> set[str]:
    return {m.part for m in arm.measurements}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
