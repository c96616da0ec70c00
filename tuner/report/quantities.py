"""Names, units and number formats of metrics for people."""

import math
from dataclasses import dataclass

STATISTICS = {"mean": "mean", "p50": "median", "p90": "90th percentile", "p99": "99th percentile"}
LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E", "chunk_gap": "gap between events"}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A metric as it is shown: what it is called, in which unit, and by what its values are multiplied."""

    name: str
    unit: str
    factor: float

    @property
    def label(self) -> str:
        """Name and unit, for an axis or the head of a column."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def text(self, value: float | None) -> str:
        """One value with its unit."""
        return "not measured" if value is None else f"{number(value * self.factor)} {self.unit}".rstrip()


def quantity(metric: str) -> Quantity:
    """How a metric of docs/metrics.md is shown; latencies are in milliseconds."""
    if metric == "output_tok_s":
        return Quantity("output tokens per second", "tok/s", 1.0)
    kind, _, statistic = metric.removesuffix("_s").rpartition("_")
    if kind in LATENCIES and statistic in STATISTICS:
        return Quantity(f"{LATENCIES[kind]}, {STATISTICS[statistic]}", "ms", 1000.0)
    return Quantity(metric.replace("_", " "), "", 1.0)


def number(value: float) -> str:
    """Three significant digits, never in powers of ten, with thousands apart."""
    if not math.isfinite(value):
        return "-"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{min(digits, 6)}f}"


def gain(value: float) -> str:
    """A ratio to the baseline."""
    return f"{value:.2f}x"


def interval(low: float | None, high: float | None) -> str:
    """The ends of an interval of ratios."""
    return "-" if low is None or high is None else f"{low:.2f} to {high:.2f}"


def percent(low: float | None, high: float | None) -> str:
    """The ends of an interval of percentages."""
    return "-" if low is None or high is None else f"{low:.0f} to {high:.0f}"


def share(value: float | None) -> str:
    """A share in percent."""
    return "-" if value is None else f"{value:.0%}"
