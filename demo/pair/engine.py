"""Starts the real engine for the pair's own measurement, talks to it, and always takes it down again.

A few lines on purpose: the pair is measured before and apart from the tuner, which has its own runners.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READY_S = 300.0
REQUEST_S = 300.0
_COUNTERS = {
    "vllm:spec_decode_num_drafts_total": "drafts",
    "vllm:spec_decode_num_draft_tokens_total": "drafted",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted",
}
_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


@dataclass(frozen=True, slots=True)
class Answer:
    """One completion."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """An engine that answers on loopback."""

    url: str

    def chat(self, body: dict[str, Any]) -> Answer:
        """Send one chat request and wait for the whole answer."""
        data = json.dumps(body | {"model": "demo-target"}).encode()
        headers = {"Content-Type": "application/json"}
        # the address is this module's own, always http on loopback
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", data, headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=REQUEST_S) as response:  # noqa: S310
            reply = json.load(response)
        return Answer(reply["choices"][0]["message"]["content"], reply["usage"]["completion_tokens"])

    def counters(self) -> dict[str, float]:
        """Read the engine's speculation counters: drafts, drafted, accepted, position_0, position_1, ..."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=REQUEST_S) as response:  # noqa: S310
            lines = response.read().decode().splitlines()
        found: dict[str, float] = {}
        for line in lines:
            name, _, rest = line.partition("{")
            if name in _COUNTERS:
                found[_COUNTERS[name]] = float(rest.rpartition(" ")[2])
            elif name == _PER_POSITION:
                position = rest.partition('position="')[2].partition('"')[0]
                found[f"position_{position}"] = float(rest.rpartition(" ")[2])
        return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _command(models: Path, k: int, port: int) -> list[str]:
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(models / "target"), "--served-model-name", "demo-target"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--enforce-eager", "--dtype", "float32", "--block-size", "32", "--max-model-len", "4096"]
    if k:
        draft = {"method": "dflash", "model": str(models / "draft"), "num_speculative_tokens": k}
        command += ["--speculative-config", json.dumps(draft)]
    return command


def _wait_until_ready(engine: RunningEngine, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the engine ended with code {process.returncode} before it was ready; read {log}")
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{engine.url}/health", timeout=5):  # noqa: S310
            return
        time.sleep(0.5)
    raise RuntimeError(f"the engine was not ready after {READY_S:.0f} s; read {log}")


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the engine's whole process group: a worker that is left behind would spoil every later figure."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise RuntimeError(
        f"processes of the engine's group {process.pid} are still alive; end them before measuring again"
    )


@contextlib.contextmanager
def start_engine(models: Path, k: int, log: Path) -> Iterator[RunningEngine]:
    """Run an engine for the pair with K speculative tokens (0: none) while the block runs."""
    log.parent.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    settings = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    engine = RunningEngine(f"http://127.0.0.1:{port}")
    with log.open("wb") as output:
        process = subprocess.Popen(
            _command(models, k, port),
            env=os.environ | settings,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait_until_ready(engine, process, log)
            yield engine
        finally:
            _end_group(process)
