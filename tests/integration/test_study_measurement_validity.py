"""Numbers that show the client or the way to the engine instead of the engine are marked invalid, not bad."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from runners import Engine, LaunchSpec, LocalRunner, Scrape
from tests.integration.study_desk import Desk, environment
from tuner.breakdown import Breakdown
from tuner.conditions import Condition
from tuner.measure import measure
from tuner.records import Measurement
from workloads import Load, read_workload, split_profiles

pytestmark = pytest.mark.slow


@asynccontextmanager
async def running(desk: Desk, workdir: Path) -> AsyncIterator[Engine]:
    """A simulated engine."""
    spec = LaunchSpec(
        argv=(sys.executable, "-P", "-m", "runners.simulated", "serve", str(desk.target), "--served-model-name", "m"),
        workdir=workdir,
        served_model="m",
        study="validity",
        env={"SIMULATED_TIME_SCALE": environment()["SIMULATED_TIME_SCALE"]},
    )
    async with LocalRunner().launch(spec) as engine:
        yield engine


async def measured(engine: Engine, desk: Desk, *, concurrency: float = 4.0) -> Measurement:
    profile = next(p for p in split_profiles(read_workload(desk.workload), "route") if p.name == "code")
    return await measure(
        engine,
        Condition("code", "code", None, Load("concurrency", concurrency)),
        profile.blocks(2),
        part="search",
        temperature=None,
        slos=(),
        timeout_s=120,
        breakdown=Breakdown(),
    )


async def test_a_starved_client_makes_a_measurement_invalid_and_is_tried_once_more(desk: Desk, tmp_path: Path) -> None:
    async def hog() -> None:
        while True:
            time.sleep(0.15)  # noqa: ASYNC251 - starving the loop is the point
            await asyncio.sleep(0.01)

    async with running(desk, tmp_path / "engine") as engine:
        starving = asyncio.create_task(hog())
        try:
            result = await measured(engine, desk)
        finally:
            starving.cancel()
            with suppress(asyncio.CancelledError):
                await starving
    assert not result.valid
    assert result.attempts == 2
    assert any("client was starved" in problem for problem in result.problems)


@dataclass(frozen=True, slots=True)
class Behind:
    """An engine seen through something that stands before it."""

    engine: Engine
    base_url: str

    def __getattr__(self, name: str) -> object:
        return getattr(self.engine, name)

    async def scrape(self) -> Scrape:
        return await self.engine.scrape()


@asynccontextmanager
async def one_at_a_time(engine: Engine) -> AsyncIterator[str]:
    """A proxy that lets a single request through at a time, as a starved API server does."""
    turn = asyncio.Lock()

    async def forward(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {"Authorization": request.headers["Authorization"], "Content-Type": "application/json"}
        async with turn, session.post(engine.base_url + request.path, data=body, headers=headers) as answer:
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_post("/{path:.*}", forward)
    app.router.add_get("/{path:.*}", healthy)
    runner = web.AppRunner(app)
    async with aiohttp.ClientSession() as session:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


async def test_an_engine_that_sees_one_request_at_a_time_makes_a_measurement_invalid(
    desk: Desk, tmp_path: Path
) -> None:
    async with running(desk, tmp_path / "engine") as engine, one_at_a_time(engine) as url:
        result = await measured(Behind(engine, url), desk)  # type: ignore[arg-type] # an Engine by delegation
    assert not result.valid
    assert any("the engine held" in problem for problem in result.problems)
    assert result.metrics["in_flight_mean"] > 3
    assert result.metrics["running_mean"] < 1.5
