"""How much CPU a process and its descendants have used, sampled until something happens."""

import threading
import time
from pathlib import Path

PERIOD_S = 0.05


def tree_cpu_ns(root: int) -> int:
    """CPU time so far of a process and its living descendants."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        waiting.extend(children.get(pid, []))
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                total += int(task.read_text(encoding="ascii").split()[0])
            except OSError:
                continue
    return total


class Sampler(threading.Thread):
    """Samples a process tree until it is told to stop."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.root = root
        self.samples: list[tuple[float, float]] = [(time.monotonic(), 0.0)]
        self.ended = threading.Event()

    def run(self) -> None:
        """Called by threading."""
        while not self.ended.wait(PERIOD_S):
            self.samples.append((time.monotonic(), tree_cpu_ns(self.root) / 1e9))

    def at(self, moment_s: float) -> float:
        """CPU seconds by that moment, on a straight line between samples or on from the last two."""
        later = next((place for place, (time_s, _) in enumerate(self.samples) if time_s >= moment_s), None)
        place = len(self.samples) - 1 if later is None else max(1, later)
        (start_s, before), (end_s, after) = self.samples[place - 1], self.samples[place]
        return before + (after - before) * (moment_s - start_s) / (end_s - start_s)
