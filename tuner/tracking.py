"""MLflow: the only module that knows it. Made from the study's files, so it can be made again (`tune sync`).

An experiment per model, a parent run per study, a child run per trial. Best effort while the study runs: what could
not be logged is said once and caught up later; the files are the truth. Prompts and outputs are never logged.
"""

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.plan import Plan
from tuner.records import BlockValue, Provenance, Recommendation, TrialRecord
from tuner.store import Store, file_name, write_atomically
from tuner.trial import study_marker

if TYPE_CHECKING:
    from mlflow import MlflowClient

LOG_TAIL_LINES = 200
BATCH_METRICS = 1000  # MLflow's own limit per call
DIGEST_CHARS = 36  # MLflow's column


class MlflowTracker:
    """Logs one study; every method may be called again and changes nothing the second time."""

    def __init__(self, uri: str, plan: Plan, store: Store) -> None:
        self._uri = uri
        self._plan = plan
        self._store = store
        self._file = store.directory / "mlflow.json"
        self._runs: dict[str, str] = json.loads(self._file.read_text(encoding="utf-8")) if self._file.exists() else {}
        self._client: MlflowClient | None = None

    def open(self, provenance: Provenance) -> None:
        """Connects and begins the parent run, with the workload as its dataset."""
        client = self._connect()
        if self._runs.get("uri") != self._uri:
            self._runs = {"uri": self._uri}
        if "parent" in self._runs:
            return
        name = f"dflash-tuner/{Path(self._plan.config.model).name}"
        found = client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else client.create_experiment(name)
        tags = {
            "study": self._plan.config.study,
            "workload.digest": self._plan.workload.digest,
            "engine.version": provenance.engine_version,
            "hardware": ", ".join(provenance.gpus) or provenance.cpu,
        }
        tags["study.id"] = f"{study_marker(self._plan)} {provenance.created_at}"
        parent = _run(client, experiment, self._plan.config.study, tags, ("study.id",))
        config = self._plan.config.model_dump(mode="json", exclude={"engine_env"})
        _log_params(client, parent, {name: value for name, value in config.items() if value is not None})
        self._log_workload(client, parent)
        self._remember("experiment", experiment)
        self._remember("parent", parent)

    def log_trial(self, record: TrialRecord) -> None:
        """Logs one finished trial as a child run."""
        client, key = self._connect(), f"trial/{record.plan.number}"
        if key in self._runs or "parent" not in self._runs:
            return
        config = record.plan.serve_config
        tags = {
            "mlflow.parentRunId": self._runs["parent"],
            "trial": str(record.plan.number),
            "phase": record.plan.phase,
            "status": record.status,
            "config": config.id,
            "simulated": str(record.simulated).lower(),
            "study": self._plan.config.study,
        }
        if record.failure:
            tags |= {"failure.kind": record.failure.kind, "failure.message": record.failure.message}
        name = f"{record.plan.number:03d} {record.plan.phase}: {config.label()}"
        run_id = _run(client, self._runs["experiment"], name, tags, ("mlflow.parentRunId", "trial"))
        _log_params(client, run_id, self._plan.space.alive(config.values))
        metrics = {
            f"profile/{key_of(condition)}/{name}": value
            for condition, measurement in record.measurements.items()
            if measurement.valid
            for name, value in measurement.metrics.items()
        }
        metrics |= {f"seconds/{name.replace(' ', '_')}": value for name, value in record.seconds.items()}
        _log_metrics(client, run_id, metrics)
        for condition, measurement in record.measurements.items():
            _log_blocks(client, run_id, key_of(condition), measurement.blocks, self._plan.objective.metric)
        client.log_text(run_id, config.to_yaml(), "serve.yaml")
        client.log_dict(run_id, json.loads(record.model_dump_json()), "trial.json")
        log = self._store.trial_directory(record.plan.number) / "engine.log"
        if log.exists():
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            client.log_text(run_id, "\n".join(lines[-LOG_TAIL_LINES:]) + "\n", "engine-log-tail.txt")
        client.set_terminated(run_id, "FINISHED" if record.status == "measured" else "FAILED")
        self._remember(key, run_id)

    def close(self, recommendations: list[Recommendation], summary: str) -> None:
        """Logs the answer on the parent and marks the recommended trials."""
        client, parent = self._connect(), self._runs["parent"]
        for answer in recommendations:
            metrics = {"value": answer.value, "baseline_value": answer.baseline_value}
            if answer.effect:
                metrics |= {"gain": answer.effect.gain, "gain_low": answer.effect.low, "gain_high": answer.effect.high}
            key = key_of(answer.condition)
            _log_metrics(client, parent, {f"recommended/{key}/{n}": v for n, v in metrics.items()})
            client.set_tag(parent, f"recommended.{key}", f"{answer.verdict}: {answer.serve_config.label()}")
            client.set_tag(parent, f"reason.{key}", answer.reason)
            self._mark_trials(client, answer)
            directory = self._store.recommended_directory(answer.condition)
            client.log_artifacts(parent, str(directory), f"recommended/{key}")
        client.set_tag(parent, "simulated", str(any(answer.simulated for answer in recommendations)).lower())
        client.log_text(parent, summary, "summary.md")
        client.set_tag(parent, "mlflow.note.content", summary)
        client.set_experiment_tag(self._runs["experiment"], "mlflow.note.content", summary)
        client.set_terminated(parent, "FINISHED")

    def _mark_trials(self, client: "MlflowClient", answer: Recommendation) -> None:
        """Marks every run of the recommended configuration, so that the best run of the search shows it too."""
        for record in self._store.records():
            run_id = self._runs.get(f"trial/{record.plan.number}")
            if run_id is not None and record.plan.serve_config.id == answer.serve_config.id:
                client.set_tag(run_id, f"recommended_for.{key_of(answer.condition)}", "yes")

    def _log_workload(self, client: "MlflowClient", run_id: str) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        workload = self._plan.workload
        dataset = Dataset(
            name=workload.name,
            digest=workload.digest.removeprefix("sha256:")[:DIGEST_CHARS],
            source_type="local",
            source=json.dumps({"uri": str(workload.path)}),
            profile=json.dumps({p.name: len(p.requests) for p in self._plan.profiles}),
        )
        client.log_inputs(run_id, datasets=[DatasetInput(dataset, [InputTag("mlflow.data.context", "tuning")])])

    def _connect(self) -> "MlflowClient":
        if self._client is None:
            os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
            os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
            os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")  # importing it would undo what follows
            # Its own 7 retries take minutes, in which no engine is measured; `tune sync` is our retry.
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
            logging.getLogger("mlflow").setLevel(logging.ERROR)
            logging.getLogger("alembic").setLevel(logging.ERROR)
            from mlflow import MlflowClient

            self._client = MlflowClient(tracking_uri=self._uri)
        return self._client

    def _remember(self, key: str, run_id: str) -> None:
        self._runs[key] = run_id
        write_atomically(self._file, json.dumps(self._runs, indent=1))


def default_tracking_uri(out: Path) -> str:
    """One SQLite file for all studies of a directory."""
    return f"sqlite:///{(out / 'mlflow.db').absolute()}"


def key_of(condition: str) -> str:
    """A condition's key as part of MLflow's names, which allow few signs and no odd paths."""
    plain = re.fullmatch(r"[\w\-. :/]+", condition) and all(part.strip(". ") for part in condition.split("/"))
    return condition if plain else file_name(condition)


def _run(client: "MlflowClient", experiment: str, name: str, tags: dict[str, str], identity: tuple[str, ...]) -> str:
    """The run with these identifying tags: one that a killed tuner began is taken up, not logged a second time."""
    wanted = " and ".join(f"tags.`{tag}` = '{tags[tag]}'" for tag in identity)
    begun = client.search_runs([experiment], filter_string=wanted, max_results=1)
    if begun:
        return str(begun[0].info.run_id)
    return str(client.create_run(experiment, run_name=name, tags=tags).info.run_id)


def _log_params(client: "MlflowClient", run_id: str, params: Mapping[str, Any]) -> None:
    from mlflow.entities import Param

    client.log_batch(run_id, params=[Param(name, str(value)[:6000]) for name, value in params.items()])


def _log_metrics(client: "MlflowClient", run_id: str, metrics: Mapping[str, float]) -> None:
    import time

    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    entries = [Metric(name, value, now, 0) for name, value in metrics.items()]
    for start in range(0, len(entries), BATCH_METRICS):
        client.log_batch(run_id, metrics=entries[start : start + BATCH_METRICS])


def _log_blocks(client: "MlflowClient", run_id: str, condition: str, blocks: Sequence[BlockValue], metric: str) -> None:
    import time

    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    name = f"block/{condition}/{metric}"
    entries = [Metric(name, b.metrics[metric], now, b.block) for b in blocks if metric in b.metrics]
    client.log_batch(run_id, metrics=entries)
