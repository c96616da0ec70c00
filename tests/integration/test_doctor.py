"""`tune doctor` as a process, and its checks on hosts that are not this one."""

import json
import os
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.study_desk import Desk, run_tune
from tests.stand_in_driver import build_stand_in
from tuner.doctor import Question, check_clock, check_disk, check_mlflow, check_models, examine


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path).lay_out()
    for directory in (desk.target, desk.draft):
        (directory / "model.safetensors").write_bytes(b"x" * 2048)
    return desk


@pytest.fixture
def vllm_python(tmp_path: Path) -> str:
    """An environment whose package metadata says vLLM 0.32.0, and that dies when vLLM is imported."""
    site = tmp_path / "site"
    (site / "vllm-0.32.0.dist-info").mkdir(parents=True)
    (site / "vllm-0.32.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n")
    (site / "vllm.py").write_text("raise SystemExit('vllm was imported')\n")
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(site))} exec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    return str(python)


def statuses(question: Question) -> dict[str, tuple[str, str]]:
    return {check.name: (check.status, check.found) for check in examine(question)}


@pytest.mark.slow
def test_a_ready_host_passes_with_exit_code_0(desk: Desk, vllm_python: str, tmp_path: Path) -> None:
    words = ["--model", str(desk.target), "--draft", str(desk.draft), "--engine-python", vllm_python]
    done = run_tune("doctor", *words, "--out", str(tmp_path / "runs"), "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    assert checks["engine"]["found"].startswith("vLLM 0.32.0 ")
    assert "K up to 15" in checks["pair"]["found"]
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_problem_is_named_with_its_remedy_and_exit_code_2(desk: Desk, vllm_python: str, tmp_path: Path) -> None:
    (desk.draft / "model.safetensors").unlink()
    words = ["--model", str(desk.target), "--draft", str(desk.draft), "--engine-python", vllm_python]
    done = run_tune("doctor", *words, "--out", str(tmp_path / "runs"))
    assert done.returncode == 2
    assert "problem  draft: " in done.stdout
    assert "-> download it again" in done.stdout


@pytest.mark.slow
def test_gpus_are_examined_one_by_one(tmp_path: Path) -> None:
    env = {**build_stand_in(tmp_path), "STAND_IN_USED_MIB": "30720"}
    done = run_tune("doctor", "--json", env=env)
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert checks["driver"]["found"] == "NVIDIA 580.95.05, 2 usable GPUs"
    assert checks["GPU 0"]["status"] == "warning"
    assert "Stand-In GPU, 80.0 GiB, compute capability 9.0, NVLink to 1; GPU 0 is busy" in checks["GPU 0"]["found"]
    assert checks["GPU MIG-stand-in"]["found"].startswith("Stand-In MIG 1g.10gb, 10.0 GiB")


def test_models_that_cannot_be_served_are_problems(desk: Desk, tmp_path: Path) -> None:
    def found(**changes: str | None) -> list[tuple[str, str]]:
        asked = {"model": str(desk.target), "draft": str(desk.draft), **changes}
        question = Question(out=tmp_path, **asked)
        return [(check.name, check.status) for check in check_models(question, None, ())]

    assert found() == [("model", "ok"), ("draft", "ok"), ("pair", "ok")]
    assert found(draft=str(tmp_path / "gone")) == [("model", "ok"), ("draft", "problem")]
    assert found(model=None) == [("draft", "problem")]
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (desk.target / "model.safetensors.index.json").write_text(json.dumps(index))
    assert found()[0] == ("model", "problem")


def test_no_room_and_no_right_to_write_are_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def status(free_bytes: int) -> str:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**12, 0, free_bytes))
        return next(check_disk(tmp_path / "a" / "b")).status

    assert [status(size) for size in (10**12, 10**10, 10**6)] == ["ok", "warning", "problem"]
    (tmp_path / "file").touch()
    assert next(check_disk(tmp_path / "file" / "runs")).status == "problem"
    if os.geteuid():
        tmp_path.chmod(0o500)
        assert next(check_disk(tmp_path / "runs")).status == "problem"


def test_a_clock_that_is_set_meanwhile_is_told() -> None:
    jumps = iter([0.0, 3600.0])
    assert next(check_clock(0.001, now=lambda: time.time() + next(jumps))).status == "warning"
    assert next(check_clock(0.001)).status == "ok"


@pytest.fixture
def healthy() -> Iterator[str]:
    """A server that answers /health alone."""

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Health) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_mlflow_is_asked_and_its_credentials_are_not_shown(
    healthy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(uri: str | None) -> tuple[str, str]:
        found = check_mlflow(Question(out=tmp_path, tracking_uri=uri))
        return found.status, found.found

    assert check(healthy) == ("ok", f"{healthy} answers")
    secret = "http://user:secret@127.0.0.1:9"
    refused = check(secret)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", secret)
    unreachable = check(None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", healthy.replace("://", "://user:secret@"))
    assert [status for status, _ in (refused, unreachable, check(None))] == ["problem", "warning", "ok"]
    assert "secret" not in f"{refused} {unreachable} {check(None)}"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert check(f"sqlite:///{tmp_path}/mlflow.db") == ("ok", f"a file in {tmp_path}")
    assert check(None)[0] == "ok"


def test_every_check_is_made_without_any_option(tmp_path: Path) -> None:
    found = statuses(Question(out=tmp_path))
    assert {"cores", "memory", "shared memory", "engine", "disk", "ports", "clock", "MLflow"} <= set(found)
