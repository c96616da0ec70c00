"""The connection to MLflow, made quiet before MLflow is imported: its import reads settings and sets up logging."""

import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient

SETTINGS = {
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    # Its own 7 retries take minutes, in which no engine is measured; `tune sync` is our retry.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}


def prepare() -> None:
    """Makes MLflow's import quiet; what the user has set in the environment stays."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.ERROR)


def connect(uri: str) -> "MlflowClient":
    """A client of the tracking server."""
    prepare()
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)
