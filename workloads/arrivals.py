"""How requests arrive: rate, burstiness, and how many are in work at once. Computed from times alone."""

import math

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from workloads.prefixes import Floats

WINDOWS_S = (1, 10, 60, 600, 3600)
"""Lengths of the windows in which arrivals are counted, seconds."""

FEWEST_WINDOWS = 10
"""A peak among fewer is no peak."""

MOST_WINDOWS = 10_000_000
"""Of a trace of many weeks the short windows are left out."""


class RateWindow(BaseModel):
    """Arrivals counted in windows of one length."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    window_s: int = Field(description="Length of a window, seconds.")
    peak_rate: float = Field(description="Arrivals per second in the busiest window.")
    peak_to_mean: float = Field(description="That rate over the mean rate.")
    dispersion: float = Field(description="Variance over mean of the counts: 1 for Poisson, above for bursts.")


class Arrivals(BaseModel):
    """The arrival process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    span_s: float = Field(description="From first to last arrival, seconds.")
    rate: float | None = Field(description="Mean arrivals per second: gaps over span. None if all arrive at once.")
    gap_cv: float | None = Field(
        description="Coefficient of variation of the gaps between arrivals: 1 for Poisson, above for bursts."
    )
    windows: tuple[RateWindow, ...] = Field(description="By length; only lengths that fit at least ten times.")


class Concurrency(BaseModel):
    """How many requests were in work at once, on the server that was recorded."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    known: int = Field(description="Requests whose arrival and duration are recorded.")
    mean_by_little: float | None = Field(
        description="Arrival rate x mean duration (Little's law), all requests taken to last as long as the known ones."
    )
    mean: float = Field(
        description="Known requests only: their durations over the time from first arrival to last end."
    )
    peak: int = Field(description="Known requests only: most at once.")


def arrivals(offsets_s: Floats) -> Arrivals | None:
    """The arrival process of requests in order of arrival; None without times or requests."""
    if not len(offsets_s) or np.isnan(offsets_s).any():
        return None
    span_s = float(offsets_s[-1] - offsets_s[0])
    rate = (len(offsets_s) - 1) / span_s if span_s > 0 else None
    return Arrivals(
        span_s=span_s,
        rate=rate,
        gap_cv=gap_cv(np.diff(offsets_s)),
        windows=tuple(
            _window(offsets_s - offsets_s[0], window_s, span_s)
            for window_s in WINDOWS_S
            if FEWEST_WINDOWS * window_s <= span_s <= MOST_WINDOWS * window_s
        ),
    )


def gap_cv(gaps_s: Floats) -> float | None:
    """Standard deviation over mean of gaps; None where there is no time between arrivals."""
    return float(gaps_s.std() / gaps_s.mean()) if len(gaps_s) and gaps_s.any() else None


def concurrency(offsets_s: Floats, durations_s: Floats) -> Concurrency | None:
    """How many requests were in work at once; None where no duration was recorded beside an arrival."""
    known = ~np.isnan(offsets_s) & ~np.isnan(durations_s)
    if not known.any():
        return None
    starts_s, ends_s = offsets_s[known], offsets_s[known] + durations_s[known]
    whole_s = float(ends_s.max() - starts_s.min())
    span_s = float(np.nanmax(offsets_s) - np.nanmin(offsets_s))
    return Concurrency(
        known=int(known.sum()),
        mean_by_little=(len(offsets_s) - 1) / span_s * float(durations_s[known].mean()) if span_s > 0 else None,
        mean=float(durations_s[known].sum()) / whole_s if whole_s > 0 else 0.0,
        peak=_peak(starts_s, ends_s),
    )


def _peak(starts_s: Floats, ends_s: Floats) -> int:
    """Most intervals that overlap; one that ends as another starts does not overlap it."""
    starts_s, ends_s = np.sort(starts_s), np.sort(ends_s)
    ended = np.searchsorted(ends_s, starts_s, side="right")
    # A request of no duration ends as it starts, and was in work all the same.
    return int(np.max(np.arange(1, len(starts_s) + 1) - ended, initial=1))


def _window(offsets_s: Floats, window_s: int, span_s: float) -> RateWindow:
    """The rest of the span behind the last whole window is left out: half a window looks like a lull."""
    count = math.floor(span_s / window_s)
    numbers = np.floor(offsets_s / window_s).astype(np.int64)
    counts = np.bincount(numbers[numbers < count], minlength=count)
    mean = float(counts.mean())
    return RateWindow(
        window_s=window_s,
        peak_rate=float(counts.max()) / window_s,
        peak_to_mean=float(counts.max()) / mean,
        dispersion=float(counts.var()) / mean,
    )
