"""The steps of a study over its store: which trial comes next, under which name, and who is told.

Trials that an earlier run finished are taken as they are; one that it began is finished with the conditions it lacks.
What a trial does is trial.py; what is proposed is search.py; what is concluded is recommend.py.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from runners import ContainerRunner, reap_containers, reap_engines, warm_page_cache
from search_spaces import Scalar, ServeConfig
from tuner import host
from tuner.breakdown import ENGINE_START, ENGINE_STOP, Breakdown
from tuner.console import Narrator, summary_markdown
from tuner.engine_choice import choose_runner
from tuner.errors import NoEngineError, StudyError
from tuner.exporters import EXPORTERS
from tuner.gpus import find_gpus
from tuner.plan import Plan
from tuner.recommend import SEARCH_PHASES, Rules, recommend, shortlist
from tuner.records import Phase, Provenance, Recommendation, TrialPlan, TrialRecord
from tuner.store import Store, write_atomically
from tuner.tracking import MlflowTracker, default_tracking_uri
from tuner.trial import Bench, run_trial, study_marker

if TYPE_CHECKING:
    from tuner.search import Search

TEMPERATURE = "temperature"


class Study:
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
        self._begun = store.plans()
        self._records = {record.plan.step: record for record in store.records() if _is_final(record)}
        self._provenance: Provenance | None = store.provenance()
        self._untold: list[TrialRecord] = list(self._records.values())
        self._tracker = self._make_tracker()
        self._tracking_broken = False
        self._rules = Rules(
            objective=plan.objective,
            slos=plan.slos,
            confidence=plan.config.confidence,
            temperature_searched=plan.temperature.search_range is not None,
        )

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
            )
            self._store.write_provenance(self._provenance)
        elif self._provenance.workload_digest != digest:
            raise StudyError(
                f"{self._plan.workload.path} has changed since the study began ({digest[:15]} against "
                f"{self._provenance.workload_digest[:15]}); restore it or start a new study"
            )
        if self._records:
            self._narrator.line(f"resuming: {len(self._records)} finished trials are kept")

    async def measure_baseline(self) -> None:
        """The configuration to beat.

        Raises:
            NoEngineError: it does not start or does not survive, so nothing can be compared with it.
        """
        record = await self._run("baseline", "baseline", self._plan.baseline)
        if record.status != "measured":
            reason = record.failure.message if record.failure else "not every condition could be measured"
            log = self._store.trial_directory(record.plan.number) / "engine.log"
            raise NoEngineError(f"the baseline cannot be measured: {reason} (engine log: {log})")
        invalid = [m for m in record.measurements.values() if not m.valid]
        if invalid:
            self._narrator.line(f"warning     the baseline's measurement of {invalid[0].condition} is invalid")

    async def measure_starting_points(self) -> None:
        """The vendor's recipe, the corners speculation x prefix cache, and the space's own seeds."""
        space = self._plan.space
        recipe = space.recipe()
        points: list[tuple[str, Phase, dict[str, Scalar]]] = [("recipe", "recipe", recipe)] if recipe else []
        points += [(f"seed/{i}", "seed", space.starting_point(seed)) for i, seed in enumerate(space.seeds)]
        for step, phase, values in points:
            if self._search_is_over():
                return
            reason = space.refusal(values)
            config = space.serve_config(values)
            if reason:
                self._narrator.line(f"{step}: refused before launch: {reason}")
            elif step in self._begun or config.id not in self._tried():
                await self._run(step, phase, config)

    async def search(self) -> None:
        """Asks the conditions' studies in turn until launches or time are used up."""
        from tuner.search import Search

        search = Search(
            self._plan.space,
            objective=self._plan.objective,
            slos=self._plan.slos,
            temperature_range=self._plan.temperature.search_range,
            seed=self._plan.config.seed,
        )
        number = 0
        while not self._search_is_over():
            condition = self._plan.conditions[number % len(self._plan.conditions)]
            step = f"search/{number}"
            number += 1
            if step in self._records:
                continue
            if step in self._begun:
                await self._run(step, "search", self._begun[step].serve_config)
                continue
            values = search.propose(condition.key, list(self._records.values()))
            if values is None:
                self._narrator.line("search: every combination has been tried")
                break
            temperature = values.pop(TEMPERATURE, None)
            await self._run(
                step,
                "search",
                self._plan.space.serve_config(values),
                asked_by=condition.key,
                temperature=float(temperature) if isinstance(temperature, int | float) else None,
            )
        self._export_studies(search)

    async def confirm(self) -> None:
        """Finalists against the baseline on held-out blocks, in rounds, each round in the opposite order."""
        finalists = self._finalists()
        names = ", ".join(record.plan.serve_config.label() for record, _ in finalists.values())
        self._narrator.line(f"confirming  {names or 'nothing: no configuration did better than the baseline'}")
        baseline = self._records["baseline"]
        everything = tuple(c.key for c in self._plan.conditions)
        entrants = [(baseline, everything), *finalists.values()]
        for number in range(self._plan.config.rounds):
            order = entrants if number % 2 == 0 else entrants[::-1]
            for record, conditions in order:
                await self._run(
                    f"confirm/{number}/{record.plan.serve_config.id}/{record.plan.number}",
                    "confirm",
                    record.plan.serve_config,
                    temperature=record.plan.temperature,
                    conditions=conditions,
                )

    def recommend(self) -> list[Recommendation]:
        """The answer for each condition."""
        records = list(self._records.values())
        answers = []
        for condition in self._plan.conditions:
            try:
                answers.append(recommend(condition, records, self._rules))
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
            for filename, export in EXPORTERS.values() if self._plan.config.engine_url is None else ():
                write_atomically(directory / filename, export(answer, self._provenance))
        await self._tell_tracker()
        if self._tracker and not self._tracking_broken:
            await self._guarded(self._tracker.close, answers, summary_markdown(answers))
        self._narrator.trials(list(self._records.values()), self._plan.objective.metric)
        self._narrator.recommendations(answers)
        self._narrator.where(self._store.directory, self._tracking_uri())
        self._narrator.breakdown(self._breakdown)

    async def _run(
        self,
        step: str,
        phase: Phase,
        config: ServeConfig,
        *,
        asked_by: str | None = None,
        temperature: float | None = None,
        conditions: tuple[str, ...] | None = None,
    ) -> TrialRecord:
        """The record of a step, run now unless an earlier run finished it."""
        if step in self._records:
            return self._records[step]
        trial = self._begun.get(step)
        if trial is None:
            trial = TrialPlan(
                number=len(self._begun),
                step=step,
                phase=phase,
                asked_by=asked_by,
                temperature=temperature,
                serve_config=config,
                conditions=conditions or tuple(c.key for c in self._plan.conditions),
            )
            self._store.write_plan(trial)
            self._begun[step] = trial
        self._narrator.line(f"trial {trial.number:3d}  {phase}: {config.label()}")
        record = await run_trial(self._bench, trial, meanwhile=self._tell_tracker())
        self._records[step] = record
        self._untold.append(record)
        return record

    def _finalists(self) -> dict[str, tuple[TrialRecord, tuple[str, ...]]]:
        """Distinct finalists with the conditions that each is a finalist for, in order of their trial."""
        chosen: dict[int, tuple[TrialRecord, tuple[str, ...]]] = {}
        for condition in self._plan.conditions:
            for record in shortlist(
                condition.key, list(self._records.values()), self._rules, count=self._plan.config.finalists
            ):
                _, conditions = chosen.get(record.plan.number, (record, ()))
                chosen[record.plan.number] = (record, (*conditions, condition.key))
        return {str(number): chosen[number] for number in sorted(chosen)}

    def _tried(self) -> set[str]:
        return {record.plan.serve_config.id for record in self._records.values()}

    def _searched(self) -> int:
        return sum(record.plan.phase in SEARCH_PHASES for record in self._records.values())

    def _search_is_over(self) -> bool:
        """Once the confirmation has begun, a resumed study must not add to the search that chose the finalists."""
        confirming = any(plan.phase == "confirm" for plan in self._begun.values())
        return confirming or self._searched() >= self._plan.config.trials or self._out_of_time()

    def _out_of_time(self) -> bool:
        """Whether another launch would leave too little of the budget for the confirmation."""
        budget_s = self._plan.config.budget_s
        if budget_s is None or not self._records:
            return False
        count = len(self._records)
        launch_s = (
            sum(r.seconds.get(ENGINE_START, 0) + r.seconds.get(ENGINE_STOP, 0) for r in self._records.values()) / count
        )
        trial_s = sum(sum(r.seconds.values()) for r in self._records.values()) / count
        conditions, finalists = len(self._plan.conditions), self._plan.config.finalists
        # A round launches the baseline for every condition and each finalist for the conditions that it is in for.
        round_s = trial_s + min(finalists * conditions, 4) * launch_s + finalists * (trial_s - launch_s)
        needed_s = trial_s + self._plan.config.rounds * round_s
        spent_s = max(self._breakdown.total_s, sum(sum(r.seconds.values()) for r in self._records.values()))
        return spent_s + needed_s > budget_s

    def _export_studies(self, search: "Search") -> None:
        path = self._store.directory / "study.db"
        search.export_studies(path, [c.key for c in self._plan.conditions], list(self._records.values()))

    def _make_tracker(self) -> MlflowTracker | None:
        if not self._plan.config.tracking:
            return None
        return MlflowTracker(self._tracking_uri() or "", self._plan, self._store)

    def _tracking_uri(self) -> str | None:
        config = self._plan.config
        return (config.tracking_uri or default_tracking_uri(config.out)) if config.tracking else None

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
            self._narrator.line(
                f"warning     MLflow at {self._tracking_uri()} failed ({type(error).__name__}: {str(error)[:200]}); "
                f"the study goes on, catch up with `tune sync {self._plan.config.study}`"
            )
            return False
        return True


def _is_final(record: TrialRecord) -> bool:
    """Whether a resumed study takes the record as it is: not when the host was to blame, nor a baseline that failed."""
    return record.status == "measured" or (record.status == "rejected" and record.plan.phase != "baseline")
