"""Starts simulated engines as processes of their own and stops them, whatever the test did."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

import runners.simulated

MAIN = Path(runners.simulated.__file__).parent / "__main__.py"
KEY = "key-of-the-test"
DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Client:
    """What tests ask of an engine."""

    http: aiohttp.ClientSession

    async def events(self, path: str, body: Mapping[str, Any]) -> list[str]:
        """Data of all server-sent events, in order; raises what aiohttp raises when the stream breaks."""
        async with self.http.post(path, json=body) as response:
            text = (await response.read()).decode()
            assert response.status == 200, text
        return [event.removeprefix("data: ") for event in text.split("\n\n") if event]

    async def complete(self, **body: Any) -> dict[str, Any]:
        """One completion that is not streamed, at temperature 0 unless said otherwise."""
        status, answer = await self.post("/v1/completions", {"temperature": 0, **body})
        assert status == 200, answer
        return answer

    async def post(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Status and JSON of a POST."""
        async with self.http.post(path, json=body) as response:
            answer: dict[str, Any] = orjson.loads(await response.read())
            return response.status, answer

    async def get(self, path: str) -> dict[str, Any]:
        """JSON of a GET."""
        async with self.http.get(path) as response:
            assert response.status == 200
            answer: dict[str, Any] = orjson.loads(await response.read())
            return answer

    async def until(self, gauge: str, *, positive: bool) -> None:
        """Wait until a gauge is positive, or zero."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                if ((await self.counters())[gauge] > 0) == positive:
                    return
                await asyncio.sleep(0.005)

    async def counters(self) -> dict[str, float]:
        """All samples of /metrics by name; finish reasons and positions are appended in brackets."""
        async with self.http.get("/metrics") as response:
            families = list(text_string_to_metric_families(await response.text()))
        sums: dict[str, float] = {}
        for sample in (sample for family in families for sample in family.samples):
            label = sample.labels.get("finished_reason") or sample.labels.get("position")
            key = sample.name.removeprefix("vllm:") + (f"[{label}]" if label else "")
            sums[key] = sums.get(key, 0.0) + sample.value
        return sums


@dataclass(frozen=True, slots=True)
class Running:
    """One engine process."""

    process: subprocess.Popen[bytes]
    base_url: str
    port: int
    log_path: Path

    def log(self) -> str:
        """What the engine wrote so far."""
        return self.log_path.read_text()

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator["Client"]:
        """A client with the right key."""
        async with aiohttp.ClientSession(self.base_url, headers={"Authorization": f"Bearer {KEY}"}) as session:
            yield Client(session)

    def wait_ready(self) -> None:
        """Wait until it listens, which an engine does when it has started."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log()
            with contextlib.suppress(ConnectionError):
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                return
            time.sleep(0.02)
        pytest.fail(f"not ready within {DEADLINE_S} s: {self.log()}")


class Start(Protocol):
    """Starts an engine; ready unless told not to wait."""

    def __call__(
        self, *flags: str, faults: str = "", wait: bool = True, port: int = 0, env: Mapping[str, str] | None = None
    ) -> Running:
        """Start it."""
        ...


def start_engine(folder: Path, flags: tuple[str, ...], faults: str, port: int, env: Mapping[str, str]) -> Running:
    port = port or free_port()
    log_path = folder / f"engine-{port}.log"
    environment = {
        **os.environ,
        "VLLM_API_KEY": KEY,
        "VLLM_SERVER_DEV_MODE": "1",
        "SIMULATED_FAULTS": faults,
        "SIMULATED_TIME_SCALE": "4",
        **env,
    }
    command = [
        sys.executable,
        "-P",
        str(MAIN),
        "serve",
        "some/model",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        *flags,
    ]
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder, start_new_session=True)
    return Running(process, f"http://127.0.0.1:{port}", port, log_path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def starting(folder: Path) -> Iterator[Start]:
    engines: list[Running] = []

    def start(
        *flags: str, faults: str = "", wait: bool = True, port: int = 0, env: Mapping[str, str] | None = None
    ) -> Running:
        running = start_engine(folder, flags, faults, port, env or {})
        engines.append(running)
        if wait:
            running.wait_ready()
        return running

    try:
        yield start
    finally:
        for running in engines:
            if running.process.poll() is None:
                running.process.send_signal(signal.SIGKILL)
            running.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as function:
        yield function


@pytest.fixture(scope="module")
def start_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    with starting(tmp_path_factory.mktemp("engines")) as function:
        yield function
