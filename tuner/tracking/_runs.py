"""What is done to one MLflow run: begin it once, log parameters, metrics and metrics over steps."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow import MlflowClient

BATCH_METRICS = 1000  # MLflow's own limit per call


def begin_run(
    client: "MlflowClient",
    experiment: str,
    name: str,
    tags: dict[str, str],
    identity: tuple[str, ...],
    *,
    started_ms: int | None = None,
) -> str:
    """The run with these identifying tags: one that a killed tuner began is taken up, not logged a second time."""
    wanted = " and ".join(f"tags.`{tag}` = '{tags[tag]}'" for tag in identity)
    begun = client.search_runs([experiment], filter_string=wanted, max_results=1)
    if begun:
        return str(begun[0].info.run_id)
    return str(client.create_run(experiment, run_name=name, tags=tags, start_time=started_ms).info.run_id)


def log_params(client: "MlflowClient", run_id: str, params: Mapping[str, Any]) -> None:
    """Logs parameters, cut to MLflow's length."""
    from mlflow.entities import Param

    client.log_batch(run_id, params=[Param(name, str(value)[:6000]) for name, value in params.items()])


def log_metrics(client: "MlflowClient", run_id: str, metrics: Mapping[str, float]) -> None:
    """Logs metrics without steps."""
    log_steps(client, run_id, [(name, value, 0) for name, value in metrics.items()])


def log_steps(client: "MlflowClient", run_id: str, points: Sequence[tuple[str, float, int]]) -> None:
    """Logs metrics over steps: name, value, step."""
    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    entries = [Metric(name, value, now, step) for name, value, step in points]
    for start in range(0, len(entries), BATCH_METRICS):
        client.log_batch(run_id, metrics=entries[start : start + BATCH_METRICS])
