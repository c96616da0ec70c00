"""Where a study's wall-clock time went. What is in no named activity is the tuner's own share."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

ENGINE_START = "engine start"
WARM_UP = "warm-up"
REPLAY = "replay"
ENGINE_STOP = "engine stop"
TUNER = "tuner"


class Breakdown:
    """Adds up seconds by activity; activities must not overlap."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.seconds: dict[str, float] = {ENGINE_START: 0.0, WARM_UP: 0.0, REPLAY: 0.0, ENGINE_STOP: 0.0}

    @contextmanager
    def activity(self, name: str) -> Iterator[None]:
        """Counts the time of the block under a name."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    @property
    def total_s(self) -> float:
        """Seconds since the study, or its resumption, began."""
        return time.perf_counter() - self._began

    def shares(self) -> dict[str, tuple[float, float]]:
        """Seconds and share of the total by activity, the tuner's own share last."""
        total = self.total_s
        rows = {**self.seconds, TUNER: max(0.0, total - sum(self.seconds.values()))}
        return {name: (seconds, seconds / total if total else 0.0) for name, seconds in rows.items()}
