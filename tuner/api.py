"""The tuner for Python programs: a study in one call, with progress as events. Names here stay; see docs/python-api.md.

The command line prints instead, and turns signals into an orderly end; here both are the caller's.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tuner.config import TuneConfig
from tuner.console import Narrator
from tuner.plan import Plan
from tuner.records import Recommendation, TrialPlan, TrialRecord
from tuner.session import tune as run_study


@dataclass(frozen=True, slots=True)
class Progress:
    """Something that happened in a study.

    Attributes:
        event: `planned` once, then `trial_began` and `trial_ended` for each launch, `message` for anything to be told.
        text: One line for a person.
        trial: Number of the trial, from 0 on; None where it is about none.
        label: The configuration in a few words; None where it is about none.
        phase: Part of the study that the trial belongs to; None where it is about none.
        record: All that was measured, for `trial_ended`.
    """

    event: Literal["planned", "trial_began", "trial_ended", "message"]
    text: str
    trial: int | None = None
    label: str | None = None
    phase: str | None = None
    record: TrialRecord | None = None


ProgressCallback = Callable[[Progress], None]
"""Called in the study's own thread between measurements; what it raises ends the study, its engine first."""


def tune(config: TuneConfig, *, resume: bool = False, progress: ProgressCallback | None = None) -> list[Recommendation]:
    """Runs a study to its recommendations and returns them; nothing is printed.

    Args:
        config: The request.
        resume: Go on with the study of that name; what was measured is kept.
        progress: Told of each event.

    Raises:
        TunerError: the study cannot be run or has no answer; tuner/errors.py lists the classes.
        WorkloadError, SearchSpaceError, RunnerError: the traffic, the space or the engine is at fault.
        RuntimeError: called within a running event loop; use `tune_async` there.
    """
    return asyncio.run(tune_async(config, resume=resume, progress=progress))


async def tune_async(
    config: TuneConfig, *, resume: bool = False, progress: ProgressCallback | None = None
) -> list[Recommendation]:
    """The same within an event loop. Cancelling it ends the engine; `resume=True` goes on later."""
    return await run_study(config, resume=resume, narrator=_Events(progress))


class _Events(Narrator):
    """Tells a callback instead of printing."""

    def __init__(self, progress: ProgressCallback | None) -> None:
        super().__init__(quiet=True)
        self._progress = progress

    def line(self, text: str = "") -> None:
        self._tell(Progress("message", text))

    def plan(self, plan: Plan) -> None:
        launches = f"{plan.config.trials} launches to search, {plan.config.rounds} rounds to confirm"
        self._tell(Progress("planned", f"{launches}, conditions {', '.join(c.key for c in plan.conditions)}"))
        for warning in plan.warnings:
            self.line(f"warning: {warning}")

    def trial_began(self, trial: TrialPlan) -> None:
        label = trial.serve_config.label()
        self._tell(Progress("trial_began", f"{trial.phase}: {label}", trial.number, label, trial.phase))

    def trial_ended(self, record: TrialRecord) -> None:
        trial, why = record.plan, f" ({record.failure.message})" if record.failure else ""
        label = trial.serve_config.label()
        text = f"{label}: {record.status}{why}"
        self._tell(Progress("trial_ended", text, trial.number, label, trial.phase, record))

    def _tell(self, progress: Progress) -> None:
        if self._progress is not None:
            self._progress(progress)
