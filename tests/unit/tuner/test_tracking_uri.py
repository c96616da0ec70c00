"""A password in MLflow's address is used from the environment, never shown or written."""

import json
from pathlib import Path

import pytest

from tests.integration.study_desk import Desk
from tests.unit.tuner.made import PROVENANCE
from tuner.cli import app, run
from tuner.commands.study_options import StudyOptions
from tuner.config import TuneConfig, build_config
from tuner.errors import UsageError
from tuner.store import Store
from tuner.tracking_uri import VARIABLE, tracking_uri, without_password

SECRET = "s3cret"
WITH_SECRET = (
    f"http://user:{SECRET}@tracking.example:5000/base",
    f"https://:{SECRET}@[::1]/",
    f"postgresql+psycopg2://mlflow:{SECRET}@db:5432/mlflow",
    f"mysql://mlflow:a/{SECRET}@b?#@db/mlflow",
    f"postgresql://db/mlflow?user=me&password={SECRET}",
)
WITHOUT = (
    "http://tracking.example:5000/a:b@c",
    "sqlite:////data/a:b@c/mlflow.db",
    "postgresql://mlflow@db:5432/mlflow",
    "databricks",
    "file:///data/mlruns",
)


@pytest.mark.parametrize("uri", WITH_SECRET)
def test_a_password_in_the_option_is_refused_without_repeating_it(uri: str) -> None:
    fields = {"workload": "w.jsonl", "model": "m", "engine_argv": ("e",), "study": "s", "tracking_uri": uri}
    with pytest.raises(UsageError, match=VARIABLE) as caught:
        build_config(**fields)
    assert SECRET not in str(caught.value)
    with pytest.raises(UsageError, match=VARIABLE):
        TuneConfig.model_validate(fields)


@pytest.mark.parametrize("uri", WITH_SECRET)
def test_a_password_is_left_out_of_messages(uri: str) -> None:
    shown = without_password(f"cannot reach {uri} (ask user@host, or see http://docs.example/x)")
    assert SECRET not in shown
    assert shown.endswith("(ask user@host, or see http://docs.example/x)")


@pytest.mark.parametrize("uri", WITHOUT)
def test_an_address_without_a_password_is_taken_as_it_is(uri: str) -> None:
    assert tracking_uri(uri, Path("runs")) == uri


def test_the_environment_is_asked_before_the_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert tracking_uri(None, tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv(VARIABLE, WITH_SECRET[0])
    assert tracking_uri(None, tmp_path) == WITH_SECRET[0]
    assert tracking_uri("databricks", tmp_path) == "databricks"


@pytest.mark.parametrize("command", ["sync", "export", "doctor"])
def test_no_command_shows_a_password_of_the_environment(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No such scheme exists, so MLflow names the whole address in its error."""
    scheme = "http" if command == "doctor" else "nowhere"
    monkeypatch.setenv(VARIABLE, f"{scheme}://user:{SECRET}@127.0.0.1:9/x")
    asked = Desk(tmp_path).lay_out().options("s", tmp_path / "runs", profile_by="none")
    (options,) = app.parse_args(asked, exit_on_error=False, print_error=False)[1].args
    assert isinstance(options, StudyOptions)
    Store.create(options.config()).write_provenance(PROVENANCE)
    words = {"sync": ["s"], "export": ["--from-mlflow", "0" * 32], "doctor": []}
    run([command, *words[command], "--out", str(tmp_path / "runs")])
    said = "".join(capsys.readouterr())
    assert "127.0.0.1:9" in said
    written = [path.read_text(encoding="utf-8", errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert SECRET not in json.dumps([said, *written])
