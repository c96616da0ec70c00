"""Recorded times: which unit they are in, and how long after the first request each of them is.

A unit is told by magnitude (an epoch time cannot be mistaken) and by what its format documents, as long as that makes
sense. Where two units make sense the user has to say; nothing is guessed in silence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from workloads.errors import LineError, WorkloadFormatError
from workloads.formats.fields import number_of

TimeUnit = Literal["s", "ms", "us", "ns", "iso"]
TIME_UNITS: tuple[TimeUnit, ...] = get_args(TimeUnit)
_UNITS: dict[str, TimeUnit] = {unit: unit for unit in TIME_UNITS}
NS_PER_UNIT = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds", "iso": "dates"}

# 2001 to 2096 in each unit: no relative time of a recording shorter than thirty years is that large in seconds.
EPOCH_FROM_S, EPOCH_TO_S = 10**9, 4 * 10**9

# (requests per second at most, mean seconds between requests at most). A documented unit is doubted only outside of the
# wide limits; one that nothing documents must be the only one within the narrow ones.
WIDE = (1000.0, 600.0)
NARROW = (100.0, 60.0)

_DATE_WANTED = "it must be a date and time such as 2026-08-01T10:00:00Z"


@dataclass(frozen=True, slots=True)
class RecordedTimes:
    """Times as they stand in the first records of a file.

    Attributes:
        name: Name of the field, for messages.
        values: Numbers or texts, in file order; None where a record has none.
        unit: Unit that the format documents for relative times; None if it documents none.
    """

    name: str
    values: Sequence[Any]
    unit: TimeUnit | None = None


@dataclass(slots=True)
class Clock:
    """Turns recorded times into seconds since the first request read.

    Attributes:
        unit: Unit of the numbers.
        name: Name of the field, for messages.
    """

    unit: TimeUnit = "s"
    name: str = "timestamp"
    _first_ns: int | None = None

    def offset_s(self, value: Any) -> float:
        """Seconds since the first time that was asked for; negative for an earlier one.

        Raises:
            LineError: if the value is no time.
        """
        now_ns = self.ns(value)
        if self._first_ns is None:
            self._first_ns = now_ns
        return (now_ns - self._first_ns) / 1e9

    def ns(self, value: Any) -> int:
        """The time in nanoseconds since whatever it is counted from.

        Raises:
            LineError: if the value is no time.
        """
        return to_ns(value, self.unit, self.name)


def to_ns(value: Any, unit: TimeUnit, name: str) -> int:
    """A recorded time in nanoseconds.

    Raises:
        LineError: if it is none in that unit.
    """
    if unit == "iso":
        if isinstance(value, str):
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                raise LineError(f'"{name}" is {value[:40]!r}; {_DATE_WANTED}') from None
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            since = moment - datetime(1970, 1, 1, tzinfo=UTC)
            return ((since.days * 86400 + since.seconds) * 10**6 + since.microseconds) * 1000
        raise LineError(f'"{name}" is {value!r:.40}; {_DATE_WANTED}')
    number = _number(value)
    if number is None or not math.isfinite(number):
        raise LineError(f'"{name}" is {value!r:.40}; it must be a number of {UNIT_NAMES[unit]}')
    if isinstance(number, int):
        return number * NS_PER_UNIT[unit]
    # The whole part apart: a float cannot hold today's date in nanoseconds.
    whole = int(number)
    return whole * NS_PER_UNIT[unit] + round((number - whole) * NS_PER_UNIT[unit])


def settle(times: RecordedTimes | None, asked: str | None, where: str) -> tuple[Clock, str | None]:
    """The clock for a file, and the sentence that says how its times are read; None if it has no times.

    Raises:
        WorkloadFormatError: if more than one unit makes sense, or the one asked for does not fit.
    """
    wanted = _UNITS[asked] if asked else None
    values = [value for value in times.values if value is not None and value != ""] if times else []
    if times is None or not values:
        return Clock(wanted or "s"), None
    numbers = [number for value in values if (number := _number(value)) is not None]
    if wanted is not None:
        unit, is_epoch = wanted, wanted != "iso" and bool(numbers) and _epoch_unit(numbers[0]) is not None
    elif not numbers:
        unit, is_epoch = "iso", True
    else:
        epoch = _epoch_unit(min(numbers))
        unit, is_epoch = (epoch, True) if epoch else (_relative_unit(numbers, times, where), False)
    return Clock(unit, times.name), _sentence(unit, times.name, is_epoch=is_epoch)


def _sentence(unit: TimeUnit, name: str, *, is_epoch: bool) -> str:
    if unit == "iso":
        return f'times ("{name}") read as dates, UTC where they name no zone'
    since = "since 1970" if is_epoch else "since the first request"
    return f'times ("{name}") read as {UNIT_NAMES[unit]} {since}'


def _number(value: Any) -> int | float | None:
    if isinstance(value, str):
        return number_of(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _epoch_unit(number: float) -> TimeUnit | None:
    units: tuple[TimeUnit, ...] = ("s", "ms", "us", "ns")
    for unit in units:
        if EPOCH_FROM_S <= number * NS_PER_UNIT[unit] / 1e9 < EPOCH_TO_S:
            return unit
    return None


def _relative_unit(numbers: list[int | float], times: RecordedTimes, where: str) -> TimeUnit:
    if times.unit is not None and (max(numbers) == min(numbers) or _is_sensible(numbers, times.unit, WIDE)):
        return times.unit
    units: tuple[TimeUnit, ...] = ("s", "ms")
    sensible = [unit for unit in units if _is_sensible(numbers, unit, NARROW)]
    if times.unit is None and len(sensible) == 1:
        return sensible[0]
    listed = ", ".join(f"{number:g}" for number in numbers[:4])
    documented = f", though the format says {UNIT_NAMES[times.unit]}" if times.unit else ""
    raise WorkloadFormatError(
        f'{where}: the unit of "{times.name}" ({listed} ...) is not clear{documented}; '
        "say it with --time-unit s, ms, us or ns"
    )


def _is_sensible(numbers: list[int | float], unit: TimeUnit, limits: tuple[float, float]) -> bool:
    """Whether these times, read in a unit, are requests at a believable rate."""
    if len(numbers) < 2:
        return False
    mean_gap_s = (max(numbers) - min(numbers)) / (len(numbers) - 1) * NS_PER_UNIT[unit] / 1e9
    return 1 / limits[0] <= mean_gap_s <= limits[1]
