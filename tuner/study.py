"""A study over its store: its steps are run on real engines, written to disk and told to whoever listens.

Trials that an earlier run finished are taken as they are; one that it began is finished with the conditions it lacks.
Which trial comes next is flow.py, what a trial does is trial.py, what is concluded is recommend.py.
"""

import asyncio
from collections.abc import Callable

from runners import ContainerRunner, reap_containers, reap_engines, warm_page_cache
from tuner import host
from tuner.breakdown import Breakdown
from tuner.console import Narrator, summary_markdown
from tuner.engine_choice import choose_runner
from tuner.errors import StudyError
from tuner.exporters import EXPORTERS
from tuner.flow import Flow, Task
from tuner.gpus import find_gpus
from tuner.plan import Plan
from tuner.recommend import recommend
from tuner.records import Provenance, Recommendation, TrialPlan, TrialRecord
from tuner.rules import Rules
from tuner.store import Store, write_atomically
from tuner.tracking import MlflowTracker
from tuner.tracking_uri import tracking_uri, without_password
from tuner.trial import Bench, run_trial, study_marker


class Study(Flow):
    """One study in progress."""

    def __init__(self, plan: Plan, store: Store, narrator: Narrator) -> None:
        self._plan = plan
        self._store = store
        self._narrator = narrator
        self._breakdown = Breakdown()
        self._runner = choose_runner(plan.config, with_gpus=bool(plan.gpus))
        self._bench = Bench(
            plan, store, self._runner, self._breakdown, narrator.line, narrator.phase, find_gpus(plan.config)
        )
        self._provenance: Provenance | None = store.provenance()
        records = {record.plan.step: record for record in store.records() if _is_final(record)}
        self._untold: list[TrialRecord] = list(records.values())
        self._tracker = self._make_tracker()
        self._tracking_broken = False
        super().__init__(_task(plan), narrator.line, begun=store.plans(), records=records)

    def begin(self) -> None:
        """Clears away what a killed run left behind and records where the figures will come from."""
        for process in reap_engines(study_marker(self._plan)):
            self._narrator.line(f"ended a process that an earlier run left behind: pid {process.pid} ({process.role})")
        if isinstance(self._runner, ContainerRunner):
            for container in reap_containers(study_marker(self._plan), command=self._runner.command):
                self._narrator.line(f"removed a container that an earlier run left behind: {container[:12]}")
        if self._plan.config.engine_url is None:
            warm_page_cache(model for model in (self._plan.config.model, self._plan.config.draft) if model)
        digest = self._plan.workload.digest
        if self._provenance is None:
            self._provenance = host.provenance(
                self._plan.gpus, engine_version=self._plan.engine_version, workload_digest=digest
            ).model_copy(update={"engine_image": self._plan.config.engine_image, "study": self._plan.config.study})
            self._store.write_provenance(self._provenance)
        elif self._provenance.workload_digest != digest:
            raise StudyError(
                f"{self._plan.workload.path} has changed since the study began ({digest[:15]} against "
                f"{self._provenance.workload_digest[:15]}); restore it or start a new study"
            )
        if self._records:
            self._narrator.line(f"resuming: {len(self._records)} finished trials are kept")

    def why_no_baseline(self, record: TrialRecord) -> str:
        """Its failure, and where the log is."""
        reason = record.failure.message if record.failure else "not every condition could be measured"
        log = self._store.trial_directory(record.plan.number) / "engine.log"
        return f"the baseline cannot be measured: {reason} (engine log: {log})"

    def spent_s(self) -> float:
        """Seconds of this run, or of all trials where that is more: a resumed study has spent what came before."""
        return max(self._breakdown.total_s, super().spent_s())

    async def search(self) -> None:
        """Searches, and leaves the studies for Optuna's own tools."""
        await super().search()
        self.export_studies(self._store.directory / "study.db")

    def recommend(self) -> list[Recommendation]:
        """The answer for each condition."""
        answers = []
        for condition in self._plan.conditions:
            try:
                answers.append(recommend(condition, self.records, self.task.rules))
            except ValueError as error:
                self._narrator.line(f"no answer for {condition.key}: {error}")
        return answers

    async def publish(self, answers: list[Recommendation]) -> None:
        """Writes answers and exports, logs them, and prints them."""
        assert self._provenance is not None  # noqa: S101 - set by begin()
        for answer in answers:
            self._store.write_recommendation(answer)
            directory = self._store.recommended_directory(answer.condition)
            # An engine that runs already was configured by somebody else: there is nothing to serve with.
            for exporter in EXPORTERS.values() if self._plan.config.engine_url is None else ():
                if exporter.with_study:
                    write_atomically(directory / exporter.file_name, exporter.export(answer, self._provenance))
        self._write_report()
        await self._tell_tracker()
        if self._tracker and not self._tracking_broken:
            await self._guarded(self._tracker.close, answers, summary_markdown(answers))
        self._narrator.trials(self.records, self._plan.objective.metric)
        self._narrator.recommendations(answers)
        self._narrator.where(self._store.directory, without_password(self._tracking_uri() or ""))
        self._narrator.breakdown(self._breakdown)

    async def run(self, trial: TrialPlan) -> TrialRecord:
        """Launches and measures one trial; its plan is on disk before."""
        self._store.write_plan(trial)
        self._narrator.trial_began(trial)
        record = await run_trial(self._bench, trial, meanwhile=self._tell_tracker())
        self._narrator.trial_ended(record)
        self._untold.append(record)
        return record

    def _write_report(self) -> None:
        """The answer does not depend on its report: what goes wrong is said, and can be made good afterwards."""
        from tuner.report import write_report

        try:
            write_report(self._store, images=self._tracker is not None)
        except Exception as error:  # noqa: BLE001 - whatever a drawing trips over must not cost a study
            self._narrator.line(
                f"warning     no report ({type(error).__name__}: {error}); "
                f"write it with `tune report {self._plan.config.study} --out {self._plan.config.out}`"
            )

    def _make_tracker(self) -> MlflowTracker | None:
        if not self._plan.config.tracking:
            return None
        return MlflowTracker(self._tracking_uri() or "", self._plan, self._store)

    def _tracking_uri(self) -> str | None:
        config = self._plan.config
        return tracking_uri(config.tracking_uri, config.out) if config.tracking else None

    async def _tell_tracker(self) -> None:
        """Logs what is not logged yet; runs while an engine starts, never while one is measured."""
        if self._tracker is None or self._tracking_broken or self._provenance is None:
            return
        if await self._guarded(self._tracker.open, self._provenance):
            while self._untold and await self._guarded(self._tracker.log_trial, self._untold[0]):
                self._untold.pop(0)

    async def _guarded(self, log: Callable[..., None], *arguments: object) -> bool:
        """Tracking is best effort: a failure is said once, and `tune sync` catches up."""
        try:
            await asyncio.to_thread(log, *arguments)
        except Exception as error:  # noqa: BLE001 - whatever the tracking server does must not cost a study
            self._tracking_broken = True
            said = without_password(f"MLflow at {self._tracking_uri()} failed ({type(error).__name__}: {error}")
            self._narrator.line(
                f"warning     {said[:300]}); the study goes on, catch up with `tune sync {self._plan.config.study}`"
            )
            return False
        return True


def _is_final(record: TrialRecord) -> bool:
    """Whether a resumed study takes the record as it is: not when the host was to blame, nor a baseline that failed."""
    return record.status == "measured" or (record.status == "rejected" and record.plan.phase != "baseline")


def _task(plan: Plan) -> Task:
    """What the plan asks the flow to decide."""
    config = plan.config
    return Task(
        space=plan.space,
        conditions=plan.conditions,
        baseline=plan.baseline,
        objective=plan.objective,
        slos=plan.slos,
        temperature_range=plan.temperature.search_range,
        rules=Rules(
            objective=plan.objective,
            slos=plan.slos,
            confidence=config.confidence,
            temperature_searched=plan.temperature.search_range is not None,
        ),
        trials=config.trials,
        rounds=config.rounds,
        finalists=config.finalists,
        seed=config.seed,
        budget_s=config.budget_s,
        hints=plan.hints,
    )
