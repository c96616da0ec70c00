"""When each request of an open loop is due. Pure: the same arguments give the same times in any process.

Closed loops have no schedule. Sending, and keeping a turn behind the one before it, is `replay.py`.
"""

import random
from array import array
from collections.abc import Sequence

from workloads.errors import LoadError
from workloads.load import Load
from workloads.request import Request


def schedule(requests: Sequence[Request], load: Load, seed: int = 0) -> "array[float]":
    """Seconds after the start of the replay at which each request is due, in the order given.

    Recorded times are kept relative to the earliest of these requests and divided by the speed factor. A rate gives a
    Poisson process in the order of the requests, whose first arrival is at 0.

    Raises:
        LoadError: if the load is a closed loop, or recorded and a request has no time.
    """
    if load.kind == "recorded":
        return _recorded(requests, load.value)
    if load.kind == "rate":
        return _poisson(len(requests), load.value, seed)
    raise LoadError(f"{load} is a closed loop, in which a request is due when another ends; it has no schedule")


def _recorded(requests: Sequence[Request], speed: float) -> "array[float]":
    offsets_s = array("d")
    for request in requests:
        if request.offset_s is None:
            raise LoadError(
                f'request "{request.id}" (line {request.line}) has no timestamp, so recorded time cannot be replayed; '
                "use a concurrency=N or rate=R load, or record timestamps"
            )
        offsets_s.append(request.offset_s)
    start_s = min(offsets_s, default=0.0)
    return array("d", ((offset_s - start_s) / speed for offset_s in offsets_s))


def _poisson(count: int, rate: float, seed: int) -> "array[float]":
    # Not secret: random.Random is chosen because its sequence for a seed is the same on every platform and release.
    source = random.Random(f"poisson:{seed}")  # noqa: S311 - arrival times, not cryptography
    due_s = array("d")
    now_s = 0.0
    for _ in range(count):
        due_s.append(now_s)
        now_s += source.expovariate(rate)
    return due_s
