"""All that a report is made from, read from the study's directory once."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from tuner.config import TuneConfig
from tuner.explain import Explanation, explain_study
from tuner.objective import Objective, Slo, parse_objective, parse_slos
from tuner.records import Measurement, Provenance, Recommendation, TrialRecord
from tuner.request_times import RequestTimes
from tuner.store import Store


@dataclass(frozen=True)
class Rival:
    """One configuration under one condition: the trials that stand for it."""

    name: str
    label: str
    records: tuple[TrialRecord, ...]


@dataclass(frozen=True)
class Material:
    """A study's files, and what follows from them."""

    store: Store
    config: TuneConfig
    records: tuple[TrialRecord, ...]
    answers: tuple[Recommendation, ...]
    explanation: Explanation
    provenance: Provenance | None

    @classmethod
    def of(cls, store: Store) -> "Material":
        """Reads a study, finished or not.

        Raises:
            StudyError: a file cannot be read.
        """
        config, records, answers = store.config(), store.records(), store.recommendations()
        order = list(dict.fromkeys(key for record in records for key in record.plan.conditions))
        answers.sort(key=lambda answer: order.index(answer.condition))
        return cls(store, config, tuple(records), tuple(answers), explain_study(store), store.provenance())

    @cached_property
    def objective(self) -> Objective:
        """What the study optimised."""
        return parse_objective(self.config.objective)

    @cached_property
    def slos(self) -> tuple[Slo, ...]:
        """Its limits."""
        return parse_slos(self.config.slo)

    @cached_property
    def conditions(self) -> tuple[str, ...]:
        """Keys in the order in which they were measured."""
        return tuple(dict.fromkeys(key for record in self.records for key in record.plan.conditions))

    @property
    def baseline(self) -> TrialRecord | None:
        """The trial that the others are compared with."""
        return next((record for record in self.records if record.plan.phase == "baseline"), None)

    def answer(self, condition: str) -> Recommendation | None:
        """The recommendation for a condition."""
        return next((answer for answer in self.answers if answer.condition == condition), None)

    def searched(self, condition: str) -> list[tuple[TrialRecord, Measurement]]:
        """Valid measurements of the search, baseline first; the confirmation replays other requests."""
        rows = ((r, r.measurements.get(condition)) for r in self.records if r.plan.phase != "confirm")
        return [(record, m) for record, m in rows if m is not None and m.valid and self.objective.metric in m.metrics]

    def rivals(self, condition: str) -> tuple[Rival, ...]:
        """The baseline and its best rival, from the confirmation if there was one."""
        answer, first = self.answer(condition), self.baseline
        if first is None:
            return ()
        confirmed = [r for r in self.records if answer and r.plan.number in answer.trials]
        groups = self._by_config(confirmed or self._best_of_search(condition), condition)
        own = groups.pop(first.plan.serve_config.id, ())
        rows = [Rival("baseline", first.plan.serve_config.label(), own)] if own else []
        name = "recommended" if answer and answer.verdict == "change" else "best candidate"
        rows += [Rival(name, records[0].plan.serve_config.label(), records) for records in list(groups.values())[:1]]
        return tuple(rows)

    def times(self, rival: Rival, condition: str) -> list[RequestTimes]:
        """Times of single requests of each of its measurements; of an earlier version's study there are none."""
        found = (self.store.request_times(record.plan.number, condition) for record in rival.records)
        return [times for times in found if times is not None]

    def _best_of_search(self, condition: str) -> list[TrialRecord]:
        rows = self.searched(condition)
        sign = 1 if self.objective.direction == "maximize" else -1
        best = max(rows, key=lambda row: sign * row[1].metrics[self.objective.metric], default=None)
        return [record for record in (self.baseline, best[0] if best else None) if record is not None]

    def _by_config(self, records: Iterable[TrialRecord], condition: str) -> dict[str, tuple[TrialRecord, ...]]:
        groups: dict[str, tuple[TrialRecord, ...]] = {}
        for record in records:
            measurement = record.measurements.get(condition)
            if measurement is not None and measurement.valid:
                key = record.plan.serve_config.id
                groups[key] = (*groups.get(key, ()), record)
        return groups
