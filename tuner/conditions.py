"""Conditions: under what one running engine is measured. A condition is a profile, a temperature and a load.

Every launch is measured under every condition, because a start costs minutes and a replay seconds.
"""

import re
from dataclasses import dataclass

from tuner.errors import UsageError
from workloads import Load, Profile, WorkloadError, parse_loads

SEARCH_RANGE = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class TemperaturePlan:
    """What `--temperature` asks for: recorded, fixed values, or a range to search."""

    fixed: tuple[float | None, ...]
    search_range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """A profile at a temperature (None as recorded) under a load."""

    key: str
    profile: str
    temperature: float | None
    load: Load


def parse_temperature(text: str) -> TemperaturePlan:
    """Parses "recorded", "0,0.6,1.0", "search" or "search:0.2-0.9".

    Raises:
        UsageError: not one of those, or a value outside 0 to 2.
    """
    if text == "recorded":
        return TemperaturePlan((None,))
    match = re.fullmatch(r"search(?::([0-9.]+)-([0-9.]+))?", text)
    try:
        if match:
            low, high = (float(match[1]), float(match[2])) if match[1] else SEARCH_RANGE
            values: tuple[float, ...] = (low, high)
        else:
            low, high = 0.0, 2.0
            values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not values or low >= high or len(set(values)) != len(values) or not all(0 <= value <= 2 for value in values):
        raise UsageError(
            f"--temperature {text!r} is none of: recorded, values from 0 to 2 such as 0,0.6,1.0, search:LOW-HIGH"
        )
    return TemperaturePlan((None,), (low, high)) if match else TemperaturePlan(values)


def plan_conditions(profiles: tuple[Profile, ...], temperature: TemperaturePlan, load: str) -> tuple[Condition, ...]:
    """Crosses profiles, temperatures and loads; keys are short where only one temperature or load exists.

    Raises:
        UsageError: the load is malformed, or asks for recorded times that the workload lacks.
    """
    try:
        loads = parse_loads(load)
    except WorkloadError as error:
        raise UsageError(f"--load: {error}") from error
    timeless = [p.name for p in profiles if any(r.offset_s is None for r in p.requests)]
    if timeless and any(one.kind == "recorded" or one.cv == "trace" or one.think for one in loads):
        raise UsageError(
            f"--load {load}: profile {timeless[0]!r} has no timestamps; use --load concurrency=N or rate=R"
        )
    conditions = []
    for profile in profiles:
        for one_temperature in temperature.fixed:
            for one_load in loads:
                key = profile.name
                if len(temperature.fixed) > 1:
                    key += f"/t{one_temperature:g}"
                if len(loads) > 1:
                    key += f"/{one_load.label}"
                conditions.append(Condition(key, profile.name, one_temperature, one_load))
    return tuple(conditions)
