"""What a study optimises and what it must not violate.

An objective turns the metrics of a measurement, or of one of its blocks, into one number. SLOs become Optuna
constraints `measured / limit - 1`, at most 0 when met, so violations of different units can be added.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tuner.errors import UsageError

LATENCIES = ("ttft", "tpot", "e2e", "chunk_gap")
STATISTICS = ("mean", "p50", "p90", "p99")


@dataclass(frozen=True, slots=True)
class Objective:
    """One metric and its better direction."""

    name: str
    metric: str
    direction: Literal["maximize", "minimize"]
    unit: str

    def gain(self, value: float, baseline: float) -> float:
        """How many times better than the baseline; above 1 is better whatever the direction."""
        return value / baseline if self.direction == "maximize" else baseline / value

    def better(self, one: float, other: float) -> bool:
        """Whether the first value beats the second."""
        return one > other if self.direction == "maximize" else one < other


@dataclass(frozen=True, slots=True)
class Slo:
    """One limit on a latency statistic, in seconds."""

    metric: str
    limit_s: float

    @property
    def name(self) -> str:
        """Key of the Optuna constraint."""
        return f"slo/{self.metric}"

    def violation(self, metrics: Mapping[str, float]) -> float:
        """`measured / limit - 1`; a metric that was not measured counts as violated."""
        measured = metrics.get(self.metric)
        if measured is None or math.isnan(measured):
            return 1.0
        return measured / self.limit_s - 1.0


def parse_objective(text: str) -> Objective:
    """Parses "throughput", "latency" or a latency statistic such as "tpot_p50".

    Raises:
        UsageError: the name is unknown.
    """
    if text == "throughput":
        return Objective(text, "output_tok_s", "maximize", "tok/s")
    metric = _latency_metric("e2e_p90" if text == "latency" else text)
    if metric is None:
        raise UsageError(
            f"--objective {text!r} is unknown; use throughput, latency, or one of "
            f"{{{','.join(LATENCIES)}}}_{{{','.join(STATISTICS)}}}"
        )
    return Objective(text, metric, "minimize", "s")


def parse_slos(texts: tuple[str, ...]) -> tuple[Slo, ...]:
    """Parses limits such as "ttft_p99=500ms" or "e2e_p90=3s".

    Raises:
        UsageError: metric, number or unit is wrong.
    """
    slos = []
    for text in texts:
        match = re.fullmatch(r"\s*([a-z0-9_]+)\s*=\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s)\s*", text)
        metric = _latency_metric(match[1]) if match else None
        if not match or metric is None:
            raise UsageError(
                f"--slo {text!r} is not METRIC=LIMIT with a unit, for example ttft_p99=500ms; metrics are "
                f"{{{','.join(LATENCIES)}}}_{{{','.join(STATISTICS)}}}"
            )
        limit_s = float(match[2]) / (1000 if match[3] == "ms" else 1)
        if limit_s <= 0:
            raise UsageError(f"--slo {text!r}: the limit must be above 0")
        slos.append(Slo(metric, limit_s))
    return tuple(slos)


def _latency_metric(text: str) -> str | None:
    kind, _, statistic = text.rpartition("_")
    return f"{kind}_{statistic}_s" if kind in LATENCIES and statistic in STATISTICS else None
