"""When each request is due: in an open loop by the clock, in a session by the turn before it.

Pure: the same arguments give the same times in any process. Sending is `loops.py`.
"""

import random
import statistics
from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise

from workloads.errors import LoadError
from workloads.load import Load
from workloads.request import Request


def schedule(requests: Sequence[Request], load: Load, seed: int = 0) -> "array[float]":
    """Seconds after the start of the replay at which each request is due, in the order given.

    Recorded times are kept relative to the earliest of these requests and divided by the speed factor. A rate gives
    arrivals in the order of the requests, the first at 0: a Poisson process, or gamma-distributed gaps of the load's
    variation.

    Raises:
        LoadError: if the load is a closed loop, or needs recorded times and a request has none.
    """
    if load.kind == "recorded":
        start_s = min((offset_s := _offsets_s(requests, load)), default=0.0)
        return array("d", ((each_s - start_s) / load.value for each_s in offset_s))
    if load.kind == "rate":
        return _arrivals(len(requests), load.value, _variation(requests, load), seed)
    raise LoadError(f"{load} is a closed loop, in which a request is due when another ends; it has no schedule")


def think_times(turns: Sequence[Request], load: Load) -> list[float | None]:
    """For each turn of one session, the seconds that its user thought after the turn before had ended.

    None is for the first turn, and for turns whose predecessor's time or duration was not recorded. Recorded think
    times shrink with the speed of a recorded load; a rate replaces recorded time, so it has none.

    Raises:
        LoadError: if the load asks for think times and they cannot be known.
    """
    if not turns or load.kind == "rate" or (load.kind == "concurrency" and not load.think):
        return [None] * len(turns)
    speed = load.value if load.kind == "recorded" else 1.0
    times_s: list[float | None] = [None]
    for before, turn in pairwise(turns):
        duration_s = before.recorded.duration_s if before.recorded is not None else None
        if duration_s is None or before.offset_s is None or turn.offset_s is None:
            if load.think:
                raise LoadError(
                    f'the think time before request "{turn.id}" (line {turn.line}) is not known, because the turn '
                    "before it has no recorded time or duration; use the load without +think"
                )
            times_s.append(None)
        else:
            times_s.append(max(0.0, turn.offset_s - before.offset_s - duration_s) / speed)
    return times_s


def _offsets_s(requests: Iterable[Request], load: Load) -> "array[float]":
    offsets_s = array("d")
    for request in requests:
        if request.offset_s is None:
            raise LoadError(
                f'request "{request.id}" (line {request.line}) has no timestamp, so {load} cannot be replayed; '
                "use a concurrency=N or rate=R load, or record timestamps"
            )
        offsets_s.append(request.offset_s)
    return offsets_s


def _variation(requests: Sequence[Request], load: Load) -> float:
    """Coefficient of variation that the load's gaps are to have."""
    if load.cv is None:
        return 1.0
    if load.cv != "trace":
        return load.cv
    gaps_s = [later - earlier for earlier, later in pairwise(sorted(_offsets_s(requests, load)))]
    mean_s = statistics.fmean(gaps_s) if gaps_s else 0.0
    if not mean_s:
        raise LoadError(
            f"{load} takes its burstiness from the recorded gaps, but these {len(requests)} requests have none; "
            "give a number, such as cv=2"
        )
    return statistics.pstdev(gaps_s) / mean_s


def _arrivals(count: int, rate: float, cv: float, seed: int) -> "array[float]":
    # Not secret: random.Random is chosen because its sequence for a seed is the same on every platform.
    source = random.Random(f"arrivals:{seed}")  # noqa: S311 - arrival times, not cryptography
    shape = 1 / cv**2 if cv > 0 else 0.0  # a gamma distribution's variation is 1/sqrt(shape)
    due_s = array("d")
    now_s = 0.0
    for _ in range(count):
        due_s.append(now_s)
        if cv == 1:
            now_s += source.expovariate(rate)
        elif cv > 0:
            now_s += source.gammavariate(shape, 1 / (shape * rate))
        else:
            now_s += 1 / rate
    return due_s
