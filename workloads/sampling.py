"""A small part of a long recording that behaves like the whole: sessions whole, bursts and shared prompts kept.

Drawing single requests would thin the traffic out: lower rate, smoother arrivals, fewer prompts that share a beginning
while it is in the cache. So the recording is divided into strata of equally many requests, and of each stratum one
contiguous run of sessions is kept, with the recorded gaps between their starts; the runs are put behind each other. Of
`DRAWS` such samples the one is taken that is nearest to the whole in hit rate, rate, burstiness and the shares of
profiles and large shared prompts. The price: what is shared over a long time is seen less often, so the hit rate is a
little low, and rhythms longer than a run are cut. `SampleDifference` says by how much.
"""

import dataclasses
import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from workloads.arrivals import gap_cv
from workloads.columns import Columns, Ints, Numbers
from workloads.errors import ProfileError
from workloads.prefixes import BLOCK_TOKENS, HEAD_DEPTHS, Floats
from workloads.profile import labeller
from workloads.read import RequestStream
from workloads.request import Request, Workload

DRAWS = 32

MOST_RUNS = 16

REQUESTS_PER_RUN = 32
"""Fewer long runs are better than many short ones: each begins with prompts that nobody sent before."""

LARGE_GROUP_SHARE = 0.01
"""Groups of requests with the same beginning are watched from this share of all requests on."""

GROUP_DEPTH = HEAD_DEPTHS.index(4)
"""Requests whose first 64 tokens are equal are one group."""


@dataclass(frozen=True, slots=True)
class SampleDifference:
    """How a sample differs from the whole. Each figure is (whole, sample); NaN where there are no times.

    Attributes:
        requests: Number of requests.
        hit_rate: Share of prompt tokens whose beginning had been sent before, to `HEAD_DEPTHS`.
        rate: Arrivals per second.
        gap_cv: Coefficient of variation of the gaps between arrivals.
        group_distance: Share of requests by which profiles and large groups differ in size (total variation).
    """

    requests: tuple[int, int]
    hit_rate: tuple[float, float]
    rate: tuple[float, float]
    gap_cv: tuple[float, float]
    group_distance: float

    def __str__(self) -> str:
        whole, kept = self.requests
        text = f"a sample of {kept:,} of {whole:,} requests"
        text += f": prefix hit rate {self.hit_rate[1]:.3f} ({self.hit_rate[0]:.3f})"
        if not math.isnan(self.rate[0]):
            text += f", {self.rate[1]:.3g} ({self.rate[0]:.3g}) requests/s"
        if not math.isnan(self.gap_cv[0]):
            text += f", variation of gaps {self.gap_cv[1]:.2f} ({self.gap_cv[0]:.2f})"
        return f"{text}; the whole in brackets; {self.group_distance:.1%} of the requests are of other groups"

    @property
    def size(self) -> float:
        """One number to choose by: 0.1 is a tenth of the rate, or a tenth of all prompt tokens, amiss."""
        ratios = [sample / whole for whole, sample in (self.rate, self.gap_cv) if whole > 0 and sample > 0]
        hit = abs(self.hit_rate[1] - self.hit_rate[0])
        return hit + sum(abs(math.log(ratio)) for ratio in ratios) / 2 + self.group_distance / 2


@dataclass(frozen=True, slots=True)
class Sample:
    """Which requests are kept.

    Attributes:
        positions: Of the kept requests in the recording, in their new order of arrival.
        offsets_s: Their new times; NaN without times.
        difference: How the sample differs from the whole.
    """

    positions: Ints
    offsets_s: Floats
    difference: SampleDifference


def read_sample(
    opened: Callable[[], RequestStream], count: int, *, seed: int = 0, profile_by: str = "route"
) -> tuple[Workload, SampleDifference | None]:
    """Read about `count` requests of a file, within one session, in memory that the whole would not fit into.

    A regular file is read twice; a pipe is held in memory. A file that has no more requests is taken whole, and then
    there is no difference.

    Args:
        opened: Starts to read the file.
        count: Requests to keep.
        seed: The same seed keeps the same requests.
        profile_by: Profiles whose shares are to be kept; `auto` watches groups of equal beginnings only.

    Raises:
        WorkloadError: as `stream_requests`.
        ProfileError: if `count` is below 2, or as `split_profiles`.
    """
    if count < 2:
        raise ProfileError(f"a sample of {count} requests is too small; it must be at least 2")
    columns = Columns(labeller(profile_by))
    stream = opened()
    is_pipe = not stream.path.is_file()
    held: dict[int, Request] = {}
    for place, request in enumerate(stream):
        columns.add(request)
        if is_pipe or place < count:
            held[place] = request
    numbers = columns.numbers()
    if len(numbers) <= count:
        return _workload(stream, tuple(held.values())), None
    sample = choose(numbers, count, seed)
    if not is_pipe:
        wanted = set(sample.positions.tolist())
        held = {place: request for place, request in enumerate(opened()) if place in wanted}
    kept = tuple(
        dataclasses.replace(held[place], offset_s=None if math.isnan(offset_s) else offset_s)
        for place, offset_s in zip(sample.positions.tolist(), sample.offsets_s.tolist(), strict=True)
    )
    return _workload(stream, kept, str(sample.difference)), sample.difference


def choose(numbers: Numbers, count: int, seed: int = 0) -> Sample:
    """The best of `DRAWS` samples of about `count` of the requests."""
    sessions = _Sessions.of(numbers)
    runs = max(1, min(MOST_RUNS, count // REQUESTS_PER_RUN))
    groups = _groups(numbers)
    samples = []
    for draw in range(DRAWS):
        # Not secret: its sequence for a seed is the same on every platform and release.
        source = random.Random(f"sample:{seed}:{draw}")  # noqa: S311 - a draw of requests, not cryptography
        positions, offsets_s = sessions.arrange(sessions.draw(count, runs, source))
        difference = _difference(numbers, groups, positions, offsets_s)
        samples.append(Sample(positions, offsets_s, difference))
    return min(samples, key=lambda sample: sample.difference.size)


@dataclass(frozen=True, slots=True)
class _Sessions:
    """The sessions of a recording in the order of their first request.

    Attributes:
        of_request: Session of each request.
        first: First request of each session.
        until: Requests of the sessions before each session, and of all behind the last.
        offset_s: Arrival of each request.
    """

    of_request: Ints
    first: Ints
    until: Ints
    offset_s: Floats

    @classmethod
    def of(cls, numbers: Numbers) -> "_Sessions":
        # Sessions are numbered as they appear, so that their numbers are in the order of their first request.
        _, first, of_request, sizes = np.unique(
            numbers.session, return_index=True, return_inverse=True, return_counts=True
        )
        return cls(of_request, first, np.concatenate([[0], np.cumsum(sizes)]), numbers.offset_s)

    def draw(self, count: int, runs: int, source: random.Random) -> list[range]:
        """One run of sessions from each stratum, together of about `count` requests."""
        total = int(self.until[-1])
        chosen: list[range] = []
        taken = 0
        for run in range(runs):
            begin, end = (int(np.searchsorted(self.until, total * edge / runs)) for edge in (run, run + 1))
            wanted = count * (run + 1) / runs - taken
            if begin == end or wanted <= 0:
                # A long session covers whole strata, which have none of their own then; or it was enough by itself.
                continue
            room = max(0.0, float(self.until[end] - self.until[begin]) - wanted)
            start = int(np.searchsorted(self.until, self.until[begin] + source.uniform(0, room), side="right")) - 1
            start = max(start, begin)
            stop = int(np.argmin(np.abs(self.until[start + 1 : end + 1] - self.until[start] - wanted))) + start + 1
            chosen.append(range(start, stop))
            taken += int(self.until[stop] - self.until[start])
        return chosen

    def arrange(self, runs: list[range]) -> tuple[Ints, Floats]:
        """The requests of runs of sessions, the runs behind each other in time."""
        sessions = np.concatenate([np.arange(run.start, run.stop) for run in runs])
        starts_s = self.offset_s[self.first]
        # The first session of a run keeps the gap that it had to the session before it.
        gaps_s = np.diff(starts_s, prepend=starts_s[0])[sessions]
        gaps_s[0] = 0
        shift_s = np.full(len(self.first), np.nan)
        shift_s[sessions] = np.cumsum(gaps_s) - starts_s[sessions]
        is_kept = np.zeros(len(self.first), dtype=np.bool_)
        is_kept[sessions] = True
        positions = np.flatnonzero(is_kept[self.of_request])
        offsets_s = self.offset_s[positions] + shift_s[self.of_request[positions]]
        # Sums of differences are off in the last digits, which must not put a turn before the one it follows.
        offsets_s = np.maximum(np.round(offsets_s, 9), 0)
        order = np.argsort(offsets_s, kind="stable")
        return positions[order], offsets_s[order]


def _workload(stream: RequestStream, requests: tuple[Request, ...], *notes: str) -> Workload:
    return Workload(
        name=stream.path.stem,
        path=stream.path,
        format=stream.format,
        digest=stream.digest,
        requests=requests,
        rejected=tuple(stream.rejected),
        notes=(*stream.notes, *notes),
        unhonoured=stream.unhonoured,
        text_bearing=stream.text_bearing,
    )


def _groups(numbers: Numbers) -> Ints:
    """Number of each request's group: its profile and, where it is a large one, its beginning; small ones are one."""
    _, group, counts = np.unique(
        np.stack([numbers.label, numbers.heads[:, GROUP_DEPTH]], axis=1),
        axis=0,
        return_inverse=True,
        return_counts=True,
    )
    is_large = counts >= LARGE_GROUP_SHARE * len(numbers)
    return np.where(is_large[group], group, len(counts) + numbers.label)


def _difference(numbers: Numbers, groups: Ints, positions: Ints, offsets_s: Floats) -> SampleDifference:
    size = int(groups.max()) + 1
    shares = [np.bincount(each, minlength=size) / len(each) for each in (groups, groups[positions])]
    return SampleDifference(
        requests=(len(numbers), len(positions)),
        hit_rate=(_hit_rate(numbers), _hit_rate(numbers.where(positions))),
        rate=(_rate(numbers.offset_s), _rate(offsets_s)),
        gap_cv=tuple(  # type: ignore[arg-type] # two of them
            math.nan if cv is None else cv for cv in (gap_cv(np.diff(numbers.offset_s)), gap_cv(np.diff(offsets_s)))
        ),
        group_distance=float(np.abs(shares[0] - shares[1]).sum() / 2),
    )


def _hit_rate(numbers: Numbers) -> float:
    """Hit rate of a cache that knows beginnings at `HEAD_DEPTHS` only; needs no text."""
    shared = np.zeros(len(numbers))
    for column, depth in enumerate(HEAD_DEPTHS):
        hashes = numbers.heads[:, column]
        _, first, place = np.unique(hashes, return_index=True, return_inverse=True)
        shared[(first[place] != np.arange(len(hashes))) & (hashes != 0)] = depth * BLOCK_TOKENS
    return float(np.minimum(shared, numbers.prompt_tokens).sum() / max(1.0, numbers.prompt_tokens.sum()))


def _rate(offsets_s: Floats) -> float:
    span_s = float(offsets_s[-1] - offsets_s[0])
    return (len(offsets_s) - 1) / span_s if span_s > 0 else math.nan
