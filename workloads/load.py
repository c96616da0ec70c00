"""How a replay is driven: in recorded time, at a concurrency, or at a rate.

A `Load` is a value with one text form, used on the command line, in file names and in trackers. It says nothing about
when a given request is due: that is `schedule.py`.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from workloads.errors import LoadError

LoadKind = Literal["recorded", "concurrency", "rate"]
_KINDS: tuple[str, ...] = get_args(LoadKind)
_FORMS = '"recorded", "recorded*2" (twice as fast), "concurrency=8" or "rate=3.5" (requests per second)'


@dataclass(frozen=True, slots=True)
class Load:
    """One way to drive a replay.

    Attributes:
        kind: `recorded` and `rate` are open loops (the server is never waited for), `concurrency` is a closed loop.
        value: Speed factor (recorded), number of requests in flight (concurrency), or requests per second (rate).
    """

    kind: LoadKind
    value: float

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise LoadError(f'the kind of a load is "{self.kind}"; it must be one of {", ".join(_KINDS)}')
        if not (math.isfinite(self.value) and self.value > 0):
            raise LoadError(f"the value of a {self.kind} load is {self.value}; it must be a number above 0")
        if self.kind == "concurrency" and self.value != int(self.value):
            raise LoadError(f"the concurrency is {self.value}; it must be a whole number of requests")

    @property
    def is_open_loop(self) -> bool:
        """Whether requests are sent when due, however far behind the server is."""
        return self.kind != "concurrency"

    def __str__(self) -> str:
        number = repr(float(self.value)).removesuffix(".0")
        if self.kind == "recorded":
            return "recorded" if self.value == 1 else f"recorded*{number}"
        return f"{self.kind}={number}"


def parse_loads(text: str) -> tuple[Load, ...]:
    """Read one or more loads: parts separated by commas; a bare number repeats the kind before it.

    Raises:
        LoadError: naming the part that cannot be read, or that comes twice.
    """
    loads: list[Load] = []
    for part in text.split(","):
        load = _parse_one(part.strip(), loads[-1].kind if loads else None, text)
        if load in loads:
            raise LoadError(f'load "{text}": {load} comes twice; name each load once')
        loads.append(load)
    return tuple(loads)


def _parse_one(part: str, previous: LoadKind | None, whole: str) -> Load:
    if part == "recorded":
        return Load("recorded", 1.0)
    if part.startswith("recorded*"):
        return Load("recorded", _number(part.removeprefix("recorded*"), whole))
    if part.startswith("concurrency="):
        return Load("concurrency", _number(part.removeprefix("concurrency="), whole))
    if part.startswith("rate="):
        return Load("rate", _number(part.removeprefix("rate="), whole))
    if previous is None:
        raise LoadError(f'load "{whole}": "{part}" is none of {_FORMS}')
    return Load(previous, _number(part, whole))


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise LoadError(f'load "{whole}": "{text}" is not a number; a load is {_FORMS}') from None
