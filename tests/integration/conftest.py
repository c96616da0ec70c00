"""Fixtures of whole studies: the inputs, and one finished study that many tests read."""

import fcntl
import json
from pathlib import Path

import pytest

from tests.integration.study_desk import Desk, FinishedStudy, run_tune


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Inputs of a study; not to be changed by a test."""
    return Desk(tmp_path_factory.mktemp("desk")).lay_out()


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> FinishedStudy:
    """A complete study with MLflow, run once whatever the number of test processes; not to be changed by a test."""
    root = tmp_path_factory.getbasetemp()
    shared = (root if worker_id == "master" else root.parent) / "finished-study"
    shared.mkdir(exist_ok=True)
    result = shared / "result.json"
    with (shared / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            _run(shared, result)
    return FinishedStudy.model_validate_json(result.read_bytes())


def _run(directory: Path, result: Path) -> None:
    (directory / "desk").mkdir(exist_ok=True)
    desk, out = Desk(directory / "desk").lay_out(), directory / "runs"
    ran = run_tune(*desk.options("main", out, trials="4", blocks="3"), timeout_s=600)
    document = {"out": str(out), "study": "main", "desk": str(desk.directory), "returncode": ran.returncode}
    result.write_text(json.dumps({**document, "stdout": ran.stdout, "stderr": ran.stderr}), encoding="utf-8")
