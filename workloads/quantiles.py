"""The distribution of a quantity over requests or sessions, for people to read. Latencies are in `metrics.py`."""

import math

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from workloads.prefixes import Floats


class Quantiles(BaseModel):
    """Distribution of a quantity, in the quantity's own unit. Quantiles are values that occur (nearest rank)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(description="How many have the quantity.")
    mean: float = Field(description="Arithmetic mean.")
    minimum: float = Field(description="Smallest value.")
    p50: float = Field(description="Median.")
    p90: float = Field(description="90th percentile.")
    p99: float = Field(description="99th percentile.")
    maximum: float = Field(description="Largest value.")


def quantiles(values: Floats) -> Quantiles | None:
    """The distribution of those values that are known; None if none is."""
    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return None

    def rank(share: float) -> float:
        return float(known[max(0, math.ceil(share * len(known)) - 1)])

    return Quantiles(
        count=len(known),
        mean=float(known.mean()),
        minimum=float(known[0]),
        p50=rank(0.5),
        p90=rank(0.9),
        p99=rank(0.99),
        maximum=float(known[-1]),
    )
