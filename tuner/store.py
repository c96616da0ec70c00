"""The study's directory: written so that `kill -9` at any moment loses at most the measurement in progress.

    runs/<study>/study.json            the request and where it ran
    runs/<study>/trials/NNN/plan.json  before the launch
    runs/<study>/trials/NNN/measurements/<condition>.json   as each one completes
    runs/<study>/trials/NNN/requests/<condition>.json       times of its requests
    runs/<study>/trials/NNN/trial.json when the trial is finished
    runs/<study>/recommended/...       the answer
    runs/<study>/report.html, plots/   made from the above

Every file appears whole or not at all (written aside, synced, renamed). A lock held by the running tuner keeps a
second one out. Nothing here knows Optuna or MLflow.
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from tuner.config import TuneConfig
from tuner.errors import StudyError
from tuner.records import Measurement, Provenance, Recommendation, TrialPlan, TrialRecord
from tuner.request_times import RequestTimes

RecordT = TypeVar("RecordT", bound=BaseModel)


def write_atomically(path: Path, text: str) -> None:
    """Writes a file that is either the old or the new one after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.tmp")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def file_name(condition: str) -> str:
    """A condition's key as a file name: as it is where that is safe, else made safe and told apart by a hash."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", condition):
        return condition
    slug = re.sub(r"[^A-Za-z0-9-]+", "_", condition)[:60]
    return f"{slug}-{hashlib.sha256(condition.encode()).hexdigest()[:8]}"


class Store:
    """Reads and writes one study's directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def create(cls, config: TuneConfig) -> "Store":
        """Starts a new study.

        Raises:
            StudyError: a study of that name exists or the directory cannot be written.
        """
        store = cls(config.directory)
        if store._study_file.exists():
            raise StudyError(
                f"study {config.study!r} exists in {config.out}; go on with `tune resume {config.study}`, "
                "or choose another --study"
            )
        try:
            write_atomically(store._study_file, config.model_dump_json(indent=2))
        except OSError as error:
            raise StudyError(f"cannot write {store.directory}: {error.strerror}; choose another --out") from error
        return store

    @classmethod
    def open(cls, out: Path, study: str) -> "Store":
        """Opens an existing study.

        Raises:
            StudyError: there is none of that name.
        """
        store = cls(out / study)
        if not store._study_file.is_file():
            others = sorted(path.parent.name for path in out.glob("*/study.json"))
            known = f"; there are: {', '.join(others)}" if others else ""
            raise StudyError(f"no study {study!r} in {out}{known}; see `tune list` or give --out")
        return store

    @property
    def _study_file(self) -> Path:
        return self.directory / "study.json"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the study for this process.

        Raises:
            StudyError: another tuner holds it.
        """
        with (self.directory / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StudyError(
                    f"study {self.directory.name!r} is being run by another tuner; wait for it or stop it"
                ) from error
            yield

    def config(self) -> TuneConfig:
        """The request that the study was created with."""
        return self._read(self._study_file, TuneConfig)

    @property
    def report(self) -> Path:
        """The report, once it is written."""
        return self.directory / "report.html"

    @property
    def images(self) -> Path:
        """Folder of the report's plots as images, once they are written."""
        return self.directory / "plots"

    def trial_directory(self, number: int) -> Path:
        """Where a trial's files and its engine's log are."""
        return self.directory / "trials" / f"{number:03d}"

    def write_plan(self, plan: TrialPlan) -> None:
        """Records what is about to be launched."""
        write_atomically(self.trial_directory(plan.number) / "plan.json", plan.model_dump_json(indent=2))

    def write_measurement(self, number: int, measurement: Measurement) -> None:
        """Records a completed measurement; it will not be measured again."""
        path = self.trial_directory(number) / "measurements" / f"{file_name(measurement.condition)}.json"
        write_atomically(path, measurement.model_dump_json(indent=1))

    def write_request_times(self, number: int, times: RequestTimes) -> None:
        """Records the times of a measurement's requests, before the measurement itself."""
        write_atomically(self._request_times_file(number, times.condition), times.model_dump_json())

    def request_times(self, number: int, condition: str) -> RequestTimes | None:
        """Times of single requests; None for a study of an earlier version, which did not keep them."""
        path = self._request_times_file(number, condition)
        return self._read(path, RequestTimes) if path.is_file() else None

    def _request_times_file(self, number: int, condition: str) -> Path:
        return self.trial_directory(number) / "requests" / f"{file_name(condition)}.json"

    def write_record(self, record: TrialRecord) -> None:
        """Records a finished trial, before anyone is told about it."""
        write_atomically(self.trial_directory(record.plan.number) / "trial.json", record.model_dump_json(indent=1))

    def plans(self) -> dict[str, TrialPlan]:
        """Every trial ever begun, by its step."""
        found = (self._read(path, TrialPlan) for path in sorted(self.directory.glob("trials/*/plan.json")))
        return {plan.step: plan for plan in found}

    def measurements(self, number: int) -> dict[str, Measurement]:
        """Completed measurements of a trial, by condition."""
        paths = sorted(self.trial_directory(number).glob("measurements/*.json"))
        return {m.condition: m for m in (self._read(path, Measurement) for path in paths)}

    def records(self) -> list[TrialRecord]:
        """Finished trials in order."""
        return [self._read(path, TrialRecord) for path in sorted(self.directory.glob("trials/*/trial.json"))]

    def write_provenance(self, provenance: Provenance) -> None:
        """Records where the figures come from."""
        write_atomically(self.directory / "provenance.json", provenance.model_dump_json(indent=2))

    def provenance(self) -> Provenance | None:
        """Where the figures come from, once known."""
        path = self.directory / "provenance.json"
        return self._read(path, Provenance) if path.is_file() else None

    def recommended_directory(self, condition: str) -> Path:
        """Where the exports of one condition's answer are."""
        return self.directory / "recommended" / file_name(condition)

    def write_recommendation(self, recommendation: Recommendation) -> None:
        """Records the answer for one condition."""
        path = self.recommended_directory(recommendation.condition) / "recommendation.json"
        write_atomically(path, recommendation.model_dump_json(indent=2))

    def recommendations(self) -> list[Recommendation]:
        """The answers, if the study is finished."""
        paths = sorted(self.directory.glob("recommended/*/recommendation.json"))
        return [self._read(path, Recommendation) for path in paths]

    def _read(self, path: Path, kind: type[RecordT]) -> RecordT:
        try:
            return kind.model_validate_json(path.read_bytes())
        except (OSError, ValidationError, json.JSONDecodeError) as error:
            detail = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise StudyError(
                f"{path}: cannot be read ({detail}); restore it or remove its trial's directory"
            ) from error
