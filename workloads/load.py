"""How a replay is driven: in recorded time, at a concurrency, or at a rate.

A `Load` is a value with one text form, used on the command line, in file names and in trackers. It says nothing about
when a given request is due: that is `schedule.py`.
"""

import math
import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

from workloads.errors import LoadError

LoadKind = Literal["recorded", "concurrency", "rate"]
Variation = float | Literal["trace"]
_KINDS: tuple[str, ...] = get_args(LoadKind)
_FORMS: Final = (
    '"recorded", "recorded*2" (twice as fast), "concurrency=8", "concurrency=8+think" (with recorded think times), '
    '"rate=3.5" (requests per second, Poisson), "rate=3.5:cv=2" (gamma-distributed gaps of that variation) or '
    '"rate=3.5:cv=trace" (as bursty as the recording)'
)
_PART: Final = re.compile(
    r"(?:(?P<recorded>recorded)(?:\*(?P<speed>[^:+]*))?|(?P<kind>concurrency|rate)=(?P<value>[^:+]*))"
    r"(?P<think>\+think)?(?::cv=(?P<cv>.*))?"
)


@dataclass(frozen=True, slots=True)
class Load:
    """One way to drive a replay.

    Attributes:
        kind: `recorded` and `rate` are open loops (the server is never waited for), `concurrency` is a closed loop.
        value: Speed factor (recorded), number of requests in flight (concurrency), or requests per second (rate).
        cv: Of a rate only: coefficient of variation of the gaps between arrivals. None is a Poisson process, whose
            variation is 1; 0 is a steady beat; `trace` is the recording's own.
        think: Of a concurrency only: a session waits for its recorded think time before its next turn, and keeps
            its place meanwhile, so that fewer requests are in flight.
    """

    kind: LoadKind
    value: float
    cv: Variation | None = None
    think: bool = False

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise LoadError(f'the kind of a load is "{self.kind}"; it must be one of {", ".join(_KINDS)}')
        if not (math.isfinite(self.value) and self.value > 0):
            raise LoadError(f"the value of a {self.kind} load is {self.value}; it must be a number above 0")
        if self.kind == "concurrency" and self.value != int(self.value):
            raise LoadError(f"the concurrency is {self.value}; it must be a whole number of requests")
        if self.think and self.kind != "concurrency":
            raise LoadError(f"+think is for concurrency=N only; a {self.kind} load has times of its own")
        if self.cv is not None and self.kind != "rate":
            raise LoadError(f"cv={self.cv} is for rate=R only; a {self.kind} load has gaps of its own")
        if isinstance(self.cv, float) and not (math.isfinite(self.cv) and self.cv >= 0):
            raise LoadError(f"the variation of a rate's gaps is cv={self.cv}; it must be a number of at least 0")

    @property
    def is_open_loop(self) -> bool:
        """Whether requests are sent when due, however far behind the server is."""
        return self.kind != "concurrency"

    @property
    def label(self) -> str:
        """A short form for keys and column heads: `c8`, `r3.5`, `x2`; different for different loads."""
        number = f"{self.value:g}"
        if self.kind == "recorded":
            return f"x{number}"
        cv = "" if self.cv is None else f"cv{self.cv:g}" if isinstance(self.cv, float) else f"cv-{self.cv}"
        return f"{self.kind[0]}{number}{cv}{'think' if self.think else ''}"

    def __str__(self) -> str:
        number = _shown(self.value)
        if self.kind == "recorded":
            return "recorded" if self.value == 1 else f"recorded*{number}"
        cv = "" if self.cv is None else f":cv={_shown(self.cv) if isinstance(self.cv, float) else self.cv}"
        return f"{self.kind}={number}{'+think' if self.think else ''}{cv}"


def parse_loads(text: str) -> tuple[Load, ...]:
    """Read one or more loads: parts separated by commas; a bare number repeats the load before it with that value.

    Raises:
        LoadError: naming the part that cannot be read, or that comes twice.
    """
    loads: list[Load] = []
    for part in text.split(","):
        load = _parse_one(part.strip(), loads[-1] if loads else None, text)
        if load in loads:
            raise LoadError(f'load "{text}": {load} comes twice; name each load once')
        loads.append(load)
    return tuple(loads)


def _parse_one(part: str, previous: Load | None, whole: str) -> Load:
    match = _PART.fullmatch(part)
    if match is None:
        if previous is None or "=" in part:
            raise LoadError(f'load "{whole}": "{part}" is none of {_FORMS}')
        return Load(previous.kind, _number(part, whole), previous.cv, previous.think)
    kind: LoadKind = "recorded" if match["recorded"] else "rate" if match["kind"] == "rate" else "concurrency"
    value = match["speed"] if match["recorded"] else match["value"]
    cv: Variation | None = None
    if match["cv"] is not None:
        cv = "trace" if match["cv"] == "trace" else _number(match["cv"], whole)
    return Load(kind, 1.0 if value is None else _number(value, whole), cv, match["think"] is not None)


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise LoadError(f'load "{whole}": "{text}" is not a number; a load is {_FORMS}') from None


def _shown(value: float) -> str:
    return repr(float(value)).removesuffix(".0")
