"""Time: whether another launch would leave too little of the budget for the confirmation. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.breakdown import ENGINE_START, ENGINE_STOP
from tuner.records import TrialRecord

MOST_SHARED = 4
"""Distinct finalists that are expected at most: conditions often agree on theirs."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Seconds for a whole study, and the confirmation that they have to leave room for."""

    budget_s: float | None
    rounds: int
    finalists: int
    conditions: int

    def is_short(self, records: Sequence[TrialRecord], spent_s: float) -> bool:
        """Whether one more launch and then the confirmation would take longer than what is left."""
        if self.budget_s is None or not records:
            return False
        trial_s = sum(sum(record.seconds.values()) for record in records) / len(records)
        return spent_s + trial_s + self.confirmation_s(records) > self.budget_s

    def confirmation_s(self, records: Sequence[TrialRecord]) -> float:
        """Expected seconds of the confirmation, from the launches and measurements so far.

        A round launches the baseline for every condition and each finalist for the conditions that it is in for.
        """
        count = len(records)
        launch_s = sum(r.seconds.get(ENGINE_START, 0) + r.seconds.get(ENGINE_STOP, 0) for r in records) / count
        trial_s = sum(sum(record.seconds.values()) for record in records) / count
        launches = min(self.finalists * self.conditions, MOST_SHARED)
        return self.rounds * (trial_s + launches * launch_s + self.finalists * (trial_s - launch_s))
