"""The security drill: nothing in traffic, logs, names or answers is executed, followed, believed or leaked.

Whole commands as processes, against servers and inputs that mean harm (docs/security.md).
"""

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.integration.hostile_engine import TRICKS
from tests.integration.hostile_probe import SERVED
from tests.integration.hostile_server import METRICS_MODES, MODES, HostileServer
from tests.integration.recorder.recording import Recording, chat, connect
from tests.integration.study_desk import (
    DRAFT_CONFIG,
    TUNE,
    Desk,
    environment,
    line,
    run_tune,
    write_checkpoint,
    write_workload,
)
from tuner.exporters import EXPORTERS
from tuner.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PLANTED = "planted-0123456789-"
SECRETS = {
    name: f"{PLANTED}{name.lower()}"
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "DB_PASSWORD", "MY_CREDENTIALS")
}
PATHS = ("/health", "/version", "/v1/models", "/v1/completions", "/server_info", "/metrics")
MOST_MB = 600


def test_a_hostile_attached_server_costs_seconds_and_some_memory_and_never_sees_more_than_its_own_key() -> None:
    with ExitStack() as servers:
        elsewhere = servers.enter_context(HostileServer("quote"))
        cases = {}
        for mode in (*MODES, "redirect"):
            for path in ("/metrics",) if mode in METRICS_MODES else PATHS:
                server = servers.enter_context(HostileServer(mode, path, elsewhere.url + path))
                cases[f"{mode} {path}"] = server.url
        asked = json.dumps({"key": PLANTED, "cases": cases})
        probe = subprocess.run(
            [sys.executable, "-m", "tests.integration.hostile_probe"],
            input=asked,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
    assert PLANTED not in probe.stdout + probe.stderr
    found: dict[str, Any] = json.loads(probe.stdout)
    ends = {name: end for name, (_, end) in found["cases"].items()}
    harmless = {name for name, end in ends.items() if end == SERVED}
    assert {name.split()[1] for name in harmless} <= {"/health", "/server_info"}, harmless
    assert [name for name, end in ends.items() if end.startswith("NOT A RUNNER ERROR")] == []
    assert max(seconds for seconds, _ in found["cases"].values()) < 40
    assert found["most_mb"] < MOST_MB
    assert elsewhere.requests == []


def test_a_replay_against_a_hostile_server_ends_in_time_within_bounds_and_without_the_key(tmp_path: Path) -> None:
    workload = write_workload(tmp_path / "w.jsonl", [line(n, "code") for n in range(2)])
    modes = [mode for mode in MODES if mode not in METRICS_MODES]
    with ExitStack() as servers:
        elsewhere = servers.enter_context(HostileServer("quote"))
        running = {}
        for mode in (*modes, "redirect"):
            url = servers.enter_context(HostileServer(mode, "/v1/completions", elsewhere.url)).url
            words = [
                "replay",
                str(workload),
                "--url",
                url,
                "--api-key-env",
                "OPENAI_API_KEY",
                "--load",
                "concurrency=2",
            ]
            words += ["--request-timeout", "4s", "--deadline", "8s", "--per-request", str(tmp_path / f"{mode}.jsonl")]
            with (tmp_path / f"{mode}.out").open("wb") as output:
                running[mode] = psutil.Popen(
                    [str(TUNE), *words], stdout=output, stderr=output, env=environment(**SECRETS)
                )
        most = watch_memory(running, timeout_s=90)
    assert {mode: process.returncode for mode, process in running.items()} == dict.fromkeys(running, 1)
    assert {mode: mb for mode, mb in most.items() if mb > MOST_MB} == {}
    assert leaks(tmp_path) == []
    assert elsewhere.requests == []


def test_a_recorder_before_a_hostile_upstream_stays_small_and_stores_no_credentials(tmp_path: Path) -> None:
    for mode in ("gzip_bomb", "flood", "endless_header"):
        out = tmp_path / f"{mode}.jsonl"
        with HostileServer(mode, "/v1") as upstream, Recording(upstream.url, out) as recording:
            processes = {"proxy": psutil.Process(recording.process.pid), "writer": recording.writer()}
            client = connect(recording.url)
            headers = {"Authorization": f"Bearer {PLANTED}", "Cookie": PLANTED, "Content-Type": "application/json"}
            client.request("POST", "/v1/chat/completions", json.dumps(chat()), headers)
            read_some(client, 64 * 2**20)
            client.close()
            time.sleep(0.3)
            most_mb = {name: high_water_mb(process) for name, process in processes.items()}
            assert recording.stop() == 0, recording.said
            assert PLANTED not in recording.said + recording.printed
        assert max(most_mb.values()) < MOST_MB, (mode, most_mb)
    assert leaks(tmp_path) == []


@pytest.fixture
def drilled(tmp_path: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A study in which every name is a trick and the environment is full of secrets; its directory and its end."""
    place = tmp_path / "drill"
    place.mkdir()
    desk = Desk(place).lay_out()
    target, draft = place / "t$(touch canary)`touch canary`'; touch canary #<b>", place / 'd"!!x: {{7*7}}'
    write_checkpoint(target, architectures=["Qwen3ForCausalLM"], num_hidden_layers=32)
    write_checkpoint(draft, **DRAFT_CONFIG)
    route = " ".join(TRICKS[:5]) + TRICKS[7]
    requests = [line(n, "code", model=TRICKS[n % len(TRICKS)], user=TRICKS[3]) for n in range(12)]
    for number, request in enumerate(requests):
        trick = TRICKS[number % len(TRICKS)]
        request |= {"id": f"{trick}{number}\n", "session": f"{trick}{number}", "route": route, "tags": {"note": trick}}
    write_workload(desk.workload, requests)
    engine = Path(__file__).with_name("hostile_engine.py")
    words = desk.options(
        "s",
        place / "runs",
        model=str(target),
        draft=str(draft),
        engine_command=shlex.join([sys.executable, "-P", str(engine), "serve"]),
        trials="3",
        requests="4",
    )
    return place, run_tune(*words, env=SECRETS, cwd=place)


def test_a_study_full_of_tricks_executes_none_and_leaks_no_secret_nor_do_its_exports(
    drilled: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    place, ended = drilled
    assert ended.returncode == 0, ended.stderr[-2000:]
    said = ended.stdout + ended.stderr
    assert PLANTED not in said
    assert "\x1b" not in said
    assert any(record.failure for record in Store.open(place / "runs", "s").records()), "no log was ever quoted"
    inspected = run_tune("inspect", str(place / "api_traffic.jsonl"), "--html", str(place / "page.html"), cwd=place)
    assert inspected.returncode == 0, inspected.stderr
    assert "\x1b" not in inspected.stdout
    pages = [place / "page.html", place / "runs/s/report.html"]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "<script>HOSTILE" not in text
        assert "<img src=x" not in text
    check_exports(Store.open(place / "runs", "s"), tmp_path)
    assert canaries(tmp_path) == []
    assert leaks(tmp_path) == []


def check_exports(store: Store, tmp_path: Path) -> None:
    """Every format is readable, and the script gives vLLM exactly the words that were measured."""
    (answer,), provenance = store.recommendations(), store.provenance()
    assert provenance is not None
    for exporter in EXPORTERS.values():
        text = exporter.export(answer, provenance)
        (tmp_path / exporter.file_name).write_text(text, encoding="utf-8")
        if exporter.file_name.endswith(".yaml"):
            assert all(isinstance(document, dict) for document in yaml.safe_load_all(text)), exporter.name
    vllm = tmp_path / "bin/vllm"
    vllm.parent.mkdir()
    vllm.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    vllm.chmod(0o755)
    path = f"{vllm.parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["sh", str(tmp_path / "serve.sh")], capture_output=True, text=True, check=True, cwd=tmp_path, env={"PATH": path}
    )
    assert ran.stdout.splitlines() == ["serve", *answer.serve_config.to_argv()]


def leaks(directory: Path) -> list[str]:
    """Files in which a planted secret is, byte by byte."""
    return [str(path) for path in directory.rglob("*") if path.is_file() and PLANTED.encode() in path.read_bytes()]


def canaries(directory: Path) -> list[Path]:
    """What a trick would have made."""
    return [path for path in (*directory.rglob("canary*"), *directory.parent.glob("canary*")) if path.is_file()]


def high_water_mb(process: psutil.Process) -> float:
    """The most memory that a living process ever had."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return float(next(row.split()[1] for row in status.splitlines() if row.startswith("VmHWM"))) / 1024


def watch_memory(running: dict[str, psutil.Popen], *, timeout_s: float) -> dict[str, float]:
    """The most memory of each until all have ended."""
    most = dict.fromkeys(running, 0.0)
    give_up_s = time.monotonic() + timeout_s
    while any(process.poll() is None for process in running.values()):
        for mode, process in running.items():
            with suppress(FileNotFoundError, StopIteration, ProcessLookupError):  # ended meanwhile
                most[mode] = max(most[mode], high_water_mb(process))
        if time.monotonic() > give_up_s:
            left = [mode for mode, process in running.items() if process.poll() is None]
            for mode in left:
                running[mode].kill()
            raise AssertionError(f"still running: {left}")
        time.sleep(0.05)
    return most


def read_some(client: Any, limit_bytes: int) -> None:
    """Reads an answer up to a limit, or until it breaks off; not for more than five seconds."""
    got, timer = 0, threading.Timer(5.0, lambda: client.sock and client.sock.close())
    timer.start()
    with suppress(Exception):
        response = client.getresponse()
        while got < limit_bytes and (piece := response.read1(65536)):
            got += len(piece)
    timer.cancel()
