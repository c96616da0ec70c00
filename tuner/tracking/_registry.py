"""Recommendations as versions in MLflow's model registry, and the way back from there to a recommendation.

A deployment fetches the present one by alias: `models:/dflash-tuner.<model>.<condition>@recommended`.
"""

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from tuner.errors import UsageError
from tuner.records import Provenance, Recommendation
from tuner.tracking._client import prepare
from tuner.tracking_uri import VARIABLE, without_password

if TYPE_CHECKING:
    from mlflow import MlflowClient

RecordT = TypeVar("RecordT", bound=BaseModel)


def publish_version(
    client: "MlflowClient", name: str, *, run_id: str, folder: str, tags: dict[str, str], description: str, alias: str
) -> None:
    """Registers a folder of a run's artifacts as a version, once, and points the alias to it."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name, description="Serve configurations recommended by dflash-tuner.")
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    known = [v for v in client.search_model_versions(f"name = '{name}'") if v.run_id == run_id]
    version = (
        known[0]
        if known
        else client.create_model_version(
            name, f"runs:/{run_id}/{folder}", run_id=run_id, tags=tags, description=description
        )
    )
    client.set_registered_model_alias(name, alias, version.version)


def fetch_recommendations(source: str, tracking_uri: str) -> list[tuple[Recommendation, Provenance]]:
    """The recommendations of a run, or of a registered version.

    Args:
        source: A run's id, or `models:/NAME@ALIAS` or `models:/NAME/VERSION`.
        tracking_uri: Where MLflow is.

    Raises:
        UsageError: MLflow cannot be reached, has no such run, or what is there is no recommendation.
    """
    prepare()
    import mlflow

    uri = source if source.startswith("models:/") else f"runs:/{source}/recommended"
    with tempfile.TemporaryDirectory() as scratch:
        try:
            _set_registry(tracking_uri)
            folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=scratch))
        except Exception as error:
            raise UsageError(
                f"--from-mlflow {source}: {uri} cannot be fetched from "
                f"{without_password(f'{tracking_uri} ({error})')}; check the run and --tracking-uri"
            ) from error
        found = sorted(folder.rglob("recommendation.json"))
        if not found:
            raise UsageError(f"--from-mlflow {source}: {uri} holds no recommendation; name a study's parent run")
        return [(_read(file, Recommendation), _read(file.with_name("provenance.json"), Provenance)) for file in found]


def _set_registry(tracking_uri: str) -> None:
    """A models:/ address is looked up in the registry of the set server."""
    import mlflow

    before = os.environ.get(VARIABLE)
    mlflow.set_tracking_uri(tracking_uri)
    if before is None:
        os.environ.pop(VARIABLE, None)  # which it sets too: the next study of this process is not to go there
    else:
        os.environ[VARIABLE] = before


def _read(file: Path, kind: type[RecordT]) -> RecordT:
    try:
        return kind.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise UsageError(
            f"--from-mlflow: {file.name} is not as this version of dflash-tuner writes it: {error}"
        ) from error
