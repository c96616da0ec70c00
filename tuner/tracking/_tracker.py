"""One study in MLflow. Made from the study's files, so it can be made again (`tune sync`).

An experiment per model, a parent run per study, a child run per trial. Best effort while the study runs: what could
not be logged is said once and caught up later; the files are the truth. Prompts and outputs are never logged.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from runners import read_log, tail_of
from tuner.plan import Plan
from tuner.records import Measurement, Provenance, Recommendation, TrialRecord
from tuner.store import Store, write_atomically
from tuner.tracking._client import connect
from tuner.tracking._names import key_of, registered_name
from tuner.tracking._registry import publish_version
from tuner.tracking._runs import begin_run, log_metrics, log_params, log_steps
from tuner.tracking_uri import without_password
from tuner.trial import study_marker

if TYPE_CHECKING:
    from mlflow import MlflowClient

LOG_TAIL_LINES = 200
DRAFT_LENGTH = "num_speculative_tokens"  # 0 without speculation, so that runs can be compared along it
LOAD_METRICS = ("output_tok_s", "ttft_p50_s", "tpot_p50_s", "e2e_p90_s")
# Without it MLflow's UI guesses, and may open a view for chat traces instead of the table of runs.
EXPERIMENT_KIND = "custom_model_development"
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
        shown = without_password(self._uri)
        if self._runs.get("uri") != shown:
            self._runs = {"uri": shown}
        if "parent" in self._runs:
            return
        name = f"dflash-tuner/{Path(self._plan.config.model).name}"
        found = client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else client.create_experiment(name)
        client.set_experiment_tag(experiment, "mlflow.experimentKind", EXPERIMENT_KIND)
        tags = {
            "study": self._plan.config.study,
            "workload.digest": self._plan.workload.digest,
            "engine.version": provenance.engine_version,
            "hardware": ", ".join(provenance.gpus) or provenance.cpu,
        }
        tags["study.id"] = f"{study_marker(self._plan)} {provenance.created_at}"
        began = _ms(provenance.created_at)
        parent = begin_run(client, experiment, self._plan.config.study, tags, ("study.id",), started_ms=began)
        config = self._plan.config.model_dump(mode="json", exclude={"engine_env"})
        log_params(client, parent, {name: value for name, value in config.items() if value is not None})
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
        identity = ("mlflow.parentRunId", "trial")
        began = _ms(record.started_at)
        run_id = begin_run(client, self._runs["experiment"], name, tags, identity, started_ms=began)
        log_params(client, run_id, {DRAFT_LENGTH: 0} | self._plan.space.alive(config.values))
        metrics = {
            f"profile/{key_of(condition)}/{name}": value
            for condition, measurement in record.measurements.items()
            if measurement.valid
            for name, value in measurement.metrics.items()
        }
        metrics |= {f"seconds/{name.replace(' ', '_')}": value for name, value in record.seconds.items()}
        log_metrics(client, run_id, metrics)
        log_steps(client, run_id, [*self._blocks(record.measurements), *self._load_levels(record.measurements)])
        client.log_text(run_id, config.to_yaml(), "serve.yaml")
        client.log_dict(run_id, json.loads(record.model_dump_json()), "trial.json")
        log = self._store.trial_directory(record.plan.number) / "engine.log"
        if log.exists():
            client.log_text(run_id, tail_of(read_log(log), LOG_TAIL_LINES) + "\n", "engine-log-tail.txt")
        status = "FINISHED" if record.status == "measured" else "FAILED"
        client.set_terminated(run_id, status, end_time=_ms(record.ended_at))
        self._remember(key, run_id)

    def close(self, recommendations: list[Recommendation], summary: str) -> None:
        """Logs the answer on the parent and marks the recommended trials."""
        client, parent = self._connect(), self._runs["parent"]
        for answer in recommendations:
            metrics = {"value": answer.value, "baseline_value": answer.baseline_value}
            if answer.effect:
                metrics |= {"gain": answer.effect.gain, "gain_low": answer.effect.low, "gain_high": answer.effect.high}
            key = key_of(answer.condition)
            log_metrics(client, parent, {f"recommended/{key}/{n}": v for n, v in metrics.items()})
            client.set_tag(parent, f"recommended.{key}", f"{answer.verdict}: {answer.serve_config.label()}")
            client.set_tag(parent, f"reason.{key}", answer.reason)
            self._mark_trials(client, answer)
            directory = self._store.recommended_directory(answer.condition)
            client.log_artifacts(parent, str(directory), f"recommended/{key}")
            self._publish(client, answer)
        client.set_tag(parent, "simulated", str(any(answer.simulated for answer in recommendations)).lower())
        client.log_text(parent, summary, "summary.md")
        if self._store.report.is_file():
            client.log_artifact(parent, str(self._store.report))
        if self._store.images.is_dir():
            client.log_artifacts(parent, str(self._store.images), self._store.images.name)
        client.set_tag(parent, "mlflow.note.content", summary)
        client.set_experiment_tag(self._runs["experiment"], "mlflow.note.content", summary)
        client.set_terminated(parent, "FINISHED")

    def _publish(self, client: "MlflowClient", answer: Recommendation) -> None:
        """The answer as a version that a deployment fetches by alias; its folder tells by itself where it is from."""
        parent, folder = self._runs["parent"], f"recommended/{key_of(answer.condition)}"
        provenance = self._store.provenance()
        if provenance is not None:
            of_run = provenance.model_copy(update={"run": parent})
            client.log_text(parent, of_run.model_dump_json(indent=2), f"{folder}/provenance.json")
        tags = {"study": self._plan.config.study, "verdict": answer.verdict, "config": answer.serve_config.id}
        if answer.effect:
            tags["gain"] = f"{answer.effect.gain:.3f}"
        publish_version(
            client,
            registered_name(self._plan.config.model, answer.condition),
            run_id=parent,
            folder=folder,
            tags=tags,
            description=answer.reason,
            alias="simulated" if answer.simulated else "recommended",
        )

    def _blocks(self, measurements: Mapping[str, Measurement]) -> list[tuple[str, float, int]]:
        """The objective over the paired blocks of each condition."""
        metric = self._plan.objective.metric
        return [
            (f"block/{key_of(condition)}/{metric}", block.metrics[metric], block.block)
            for condition, measurement in measurements.items()
            for block in measurement.blocks
            if metric in block.metrics
        ]

    def _load_levels(self, measurements: Mapping[str, Measurement]) -> list[tuple[str, float, int]]:
        """Throughput and latency over the concurrency, where a profile was measured at several."""
        conditions = [c for c in self._plan.conditions if c.load.kind == "concurrency"]
        several = {c.profile for c in conditions if any(c.load != d.load for d in conditions if d.profile == c.profile)}
        return [
            (f"load/{key_of(c.key.rpartition('/')[0])}/{name}", measurements[c.key].metrics[name], int(c.load.value))
            for c in conditions
            if c.profile in several and c.key in measurements and measurements[c.key].valid
            for name in LOAD_METRICS
            if name in measurements[c.key].metrics
        ]

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
            self._client = connect(self._uri)
        return self._client

    def _remember(self, key: str, run_id: str) -> None:
        self._runs[key] = run_id
        write_atomically(self._file, json.dumps(self._runs, indent=1))


def _ms(time: str | None) -> int | None:
    """Milliseconds since the epoch of an ISO 8601 time; None lets MLflow take the present."""
    return int(datetime.fromisoformat(time).timestamp() * 1000) if time else None
