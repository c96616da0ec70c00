"""One condition as the rules see it, and what a signature says about it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.explain.observed import Arm, without_speculation
from tuner.explain.records import CacheUse, Figure, LoadCurve, SpeedPoint


@dataclass(frozen=True)
class Case:
    """One condition with everything that was concluded about it.

    Attributes:
        arms: its arms.
        profile_arms: those of all conditions of its profile.
        cache: its cache use.
        speed: its points of the speed models.
        curve: the profile's load curve, if there is one.
        confidence: level of intervals.
    """

    arms: Sequence[Arm]
    profile_arms: Sequence[Arm]
    cache: Sequence[CacheUse]
    speed: Sequence[SpeedPoint]
    curve: LoadCurve | None
    confidence: float

    @property
    def speculating(self) -> list[Arm]:
        """Arms that speculate."""
        return [arm for arm in self.arms if arm.method is not None]

    def plain(self, arm: Arm) -> Arm | None:
        """The arm's twin without speculation."""
        return without_speculation(arm, self.arms)

    @property
    def is_lightest(self) -> bool:
        """Whether it is the smallest load of its profile at this temperature."""
        loads = [a.concurrency for a in self.profile_arms if a.temperature == self.arms[0].temperature]
        return self.arms[0].concurrency <= min(loads)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a signature saw."""

    sentence: str
    trials: tuple[int, ...]
    recovery: Figure | None = None


Signature = Callable[[Case], Evidence | None]
