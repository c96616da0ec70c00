"""A real MLflow server and its own pages: a study can be reviewed there without knowing how it was logged."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import mlflow
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import CHROMIUM, INSTALL, Opener
from tests.integration.study_desk import FinishedStudy

PROFILE = "code"
START_S = 120
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=INSTALL),
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]


@pytest.fixture
def server(finished: FinishedStudy, tmp_path: Path) -> Iterator[str]:
    """`mlflow server` over a copy of the study's database; its address."""
    database = shutil.copy(finished.out / "mlflow.db", tmp_path / "mlflow.db")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{database}"]
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"],
            cwd=tmp_path,
            stdout=log,
            stderr=log,
            process_group=0,
        )
    try:
        _wait(process, port, tmp_path / "server.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        # The whole group: the server keeps workers, and waits for a browser's open connections.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    end = time.monotonic() + START_S
    while True:
        assert process.poll() is None, log.read_text(encoding="utf-8", errors="replace")[-2000:]
        assert time.monotonic() < end, f"no answer within {START_S} s"
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
                connection.request("GET", "/health")
                connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            time.sleep(0.2)
        else:
            return


def test_the_recommended_configuration_is_on_top_of_the_run_table_sorted_by_its_profile(
    finished: FinishedStudy, server: str, open_page: Opener
) -> None:
    (answer,) = [a for a in finished.store().recommendations() if a.condition == PROFILE]
    assert answer.verdict == "change", answer.reason
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{finished.out / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("dflash-tuner/target")
    assert experiment is not None
    marked = client.search_runs([experiment.experiment_id], f"tags.recommended_for.{PROFILE} = 'yes'")
    column = quote(f"metrics.`profile/{PROFILE}/output_tok_s`", safe="")
    address = f"{server}/#/experiments/{experiment.experiment_id}/runs?orderByKey={column}&orderByAsc=false"
    page = open_page(address).page
    first = page.locator("a[href*='/runs/']").filter(has_text="dflash").first
    expect(first).to_be_visible(timeout=90_000)
    everything = page.locator("a[href*='/runs/']").filter(has_text=":")
    assert everything.first.inner_text() == first.inner_text()
    assert any(run.info.run_id in str(first.get_attribute("href")) for run in marked)


def test_the_report_and_the_plots_are_artifacts_of_the_study_s_run(finished: FinishedStudy) -> None:
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{finished.out / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("dflash-tuner/target")
    assert experiment is not None
    (parent,) = client.search_runs([experiment.experiment_id], "tags.study = 'main' and tags.phase IS NULL")
    top = {item.path for item in client.list_artifacts(parent.info.run_id)}
    assert "report.html" in top
    images = {item.path for item in client.list_artifacts(parent.info.run_id, "plots")}
    assert {"plots/gain.png", "plots/timeline-0.png", "plots/trials-0.png"} <= images
