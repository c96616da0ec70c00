"""Parts of a workload with a recommendation of their own, and how they are cut to search, to confirm and to pair.

Everything here is deterministic in any process: order comes from the file, chance from hashes of ids. What a profile
looks like in numbers is `inspection.py`; how kinds of requests are told apart without a label is `clustering.py`.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from workloads.clustering import find_kinds
from workloads.columns import Columns
from workloads.errors import ProfileError
from workloads.request import Request, Workload

DEFAULT_OUTPUT_TOKENS = 256
"""Assumed output of a request that neither limits nor records it. Only used to balance blocks."""

AUTO = "auto"
"""Divides by what requests are like."""

Session = tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A slice of a profile, sessions kept whole: the unit that is paired between configurations."""

    profile: str
    index: int
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """A named part of a workload.

    Attributes:
        name: Label fit for file names and metric names; unique within the workload.
        requests: In order of arrival.
        because: The conditions that make a request one of this profile, where the tuner found them itself (`auto`).
    """

    name: str
    requests: tuple[Request, ...]
    because: tuple[str, ...] = ()

    @property
    def has_timestamps(self) -> bool:
        """Whether recorded time can be replayed."""
        return bool(self.requests) and self.requests[0].offset_s is not None

    def sessions(self) -> tuple[Session, ...]:
        """The conversations in the order of their first turn; a request without a session is one of its own."""
        groups: dict[tuple[str, str], list[Request]] = {}
        for request in self.requests:
            groups.setdefault(_session_key(request), []).append(request)
        return tuple(tuple(turns) for turns in groups.values())

    def split(self, held_out_share: float, seed: int = 0) -> "tuple[Profile, Profile]":
        """Divide by session into a part to search with and a part held out, of about `held_out_share` of the requests.

        Raises:
            ProfileError: if the share is not in [0, 1), or there are fewer than two sessions to divide.
        """
        if not 0 <= held_out_share < 1:
            raise ProfileError(f"the held-out share is {held_out_share}; it must be at least 0 and below 1")
        if held_out_share == 0:
            return self, Profile(self.name, (), self.because)
        sessions = self.sessions()
        if len(sessions) < 2:
            raise ProfileError(
                f'profile "{self.name}" has {len(sessions)} session, of which none can be held out; '
                "record more traffic or hold out nothing"
            )
        drawn = sorted(sessions, key=lambda turns: _draw(seed, _session_key(turns[0])))
        count = _nearest_cut([len(turns) for turns in drawn], held_out_share)
        held_out = {_session_key(turns[0]) for turns in drawn[:count]}
        return (
            Profile(self.name, tuple(r for r in self.requests if _session_key(r) not in held_out), self.because),
            Profile(self.name, tuple(r for r in self.requests if _session_key(r) in held_out), self.because),
        )

    def blocks(self, count: int) -> tuple[Block, ...]:
        """Cut into at most `count` consecutive blocks of about equal estimated work; never more than sessions.

        Consecutive, so that the blocks of an open loop follow each other in time.

        Raises:
            ProfileError: if `count` is below 1.
        """
        if count < 1:
            raise ProfileError(f"the number of blocks is {count}; it must be at least 1")
        sessions = self.sessions()
        cuts = _balanced_cuts([sum(map(_work, turns)) for turns in sessions], min(count, len(sessions)))
        slices = (sessions[start:end] for start, end in pairwise(cuts))
        return tuple(Block(self.name, index, _by_arrival(part)) for index, part in enumerate(slices))


def split_profiles(workload: Workload, by: str = "route") -> tuple[Profile, ...]:
    """Divide a workload into profiles, in the order of their first request.

    Args:
        workload: What was recorded.
        by: `route`, `session`, `model`, `tag:KEY`, `none`, or `auto`: kinds that are plainly different in themselves.
            Requests without that label form the profile `other`; where no request has it, the whole workload is the
            profile `all`.

    Raises:
        ProfileError: if `by` is none of these, or no request has the tag.
    """
    if by == AUTO:
        return _kinds(workload.requests)
    label = labeller(by)
    groups: dict[str | None, list[Request]] = {}
    for request in workload.requests:
        groups.setdefault(label(request), []).append(request)
    if set(groups) == {None}:
        check_tag(by, {key for request in workload.requests for key in request.tags})
    return tuple(
        Profile(name, tuple(requests)) for name, requests in zip(profile_names(groups), groups.values(), strict=True)
    )


def _kinds(requests: tuple[Request, ...]) -> tuple[Profile, ...]:
    columns = Columns()
    for request in requests:
        columns.add(request)
    found = find_kinds(columns.numbers())
    return tuple(
        Profile(kind.name, tuple(requests[place] for place in np.flatnonzero(found.of_request == number)), kind.because)
        for number, kind in enumerate(found.kinds)
    )


def check_tag(by: str, known: Collection[str]) -> None:
    """Refuse a tag that no request has.

    Raises:
        ProfileError: if `by` is a tag; it names the known ones.
    """
    if by.startswith("tag:"):
        raise ProfileError(f'no request has the tag "{by[4:]}"; the tags are: {", ".join(sorted(known)) or "none"}')


def labeller(by: str) -> Callable[[Request], str | None]:
    """What names the profile of a request, for every division but `auto`, which needs all requests.

    Raises:
        ProfileError: if `by` is not known.
    """
    if by.startswith("tag:") and len(by) > 4:
        return lambda request: request.tags.get(by[4:])
    labellers: dict[str, Callable[[Request], str | None]] = {
        "route": lambda request: request.route,
        "session": lambda request: request.session,
        "model": lambda request: request.body.get("model"),
        "none": lambda _: None,
        AUTO: lambda _: None,
    }
    if by not in labellers:
        raise ProfileError(f'profiles cannot be made by "{by}"; choose one of {", ".join(labellers)} or tag:KEY')
    return labellers[by]


def profile_names(labels: Collection[str | None]) -> list[str]:
    """Names made of labels: safe in paths and metric names, different where the labels are.

    No label is `other`, or `all` where there is nothing else.
    """
    if set(labels) == {None}:
        return ["all"]
    names: list[str] = []
    taken: set[str] = set()
    for label in labels:
        base = "other" if label is None else re.sub(r"[^A-Za-z0-9._-]+", "-", label).strip("-.") or "profile"
        name, number = base, 2
        while name.lower() in taken:
            name, number = f"{base}-{number}", number + 1
        names.append(name)
        taken.add(name.lower())
    return names


def _session_key(request: Request) -> tuple[str, str]:
    return ("request", request.id) if request.session is None else ("session", request.session)


def _draw(seed: int, key: tuple[str, str]) -> bytes:
    return hashlib.sha256(f"{seed}:{key[0]}:{key[1]}".encode()).digest()


def _nearest_cut(sizes: Sequence[int], share: float) -> int:
    """How many of the first `sizes` come nearest to `share` of the whole; at least one, and not all."""
    wanted = share * sum(sizes)
    best, taken, nearest = 1, 0, float("inf")
    for count, size in enumerate(sizes[:-1], start=1):
        taken += size
        if abs(taken - wanted) < nearest:
            best, nearest = count, abs(taken - wanted)
    return best


def _work(request: Request) -> float:
    recorded = request.recorded.completion_tokens if request.recorded else None
    return recorded or request.max_tokens or DEFAULT_OUTPUT_TOKENS


def _balanced_cuts(work: Sequence[float], count: int) -> list[int]:
    """Positions that cut `work` into `count` non-empty runs, each cut as near to its share as it can be."""
    cuts = [0]
    total, done, position = sum(work), 0.0, 0
    for number in range(1, count):
        wanted = total * number / count
        last = len(work) - (count - number)
        while position < last and (position <= cuts[-1] or abs(done + work[position] - wanted) <= abs(done - wanted)):
            done += work[position]
            position += 1
        cuts.append(position)
    return [*cuts, len(work)]


def _by_arrival(sessions: Sequence[Session]) -> tuple[Request, ...]:
    return tuple(sorted((request for turns in sessions for request in turns), key=_arrival))


def _arrival(request: Request) -> tuple[float, int]:
    return request.offset_s or 0.0, request.line
