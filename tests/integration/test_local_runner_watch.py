"""What goes wrong in a start or in use: a phase too long, a hang, a death, a reset that lies."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from runners import EngineDied, EngineHung, LaunchSpec, LocalRunner, ReadinessTimeout, find_engines

SCRIPT = Path(__file__).with_name("scripted_engine.py")


def spec_for(tmp_path: Path, *switches: str) -> LaunchSpec:
    return LaunchSpec(
        argv=(sys.executable, str(SCRIPT), *switches),
        workdir=tmp_path / "launch",
        served_model="tiny",
        study=str(tmp_path),
        stop_timeout_s=5.0,
    )


async def test_a_phase_that_takes_longer_than_its_limit_ends_the_start_and_is_named(tmp_path: Path) -> None:
    spec = replace(spec_for(tmp_path, "--start-s", "60"), phase_limits_s={"weights": 0.3})
    began = time.perf_counter()
    with pytest.raises(ReadinessTimeout, match=r"more than 0\.3 s in the phase weights \(loading weights\)") as caught:
        async with LocalRunner().launch(spec):
            pass
    assert caught.value.phase == "loading weights"
    assert time.perf_counter() - began < 15
    assert find_engines(spec.study) == ()


async def test_an_engine_that_holds_requests_and_computes_nothing_is_hung(tmp_path: Path) -> None:
    async with LocalRunner().launch(spec_for(tmp_path, "--stuck-requests", "1")) as engine:
        with pytest.raises(EngineHung, match="held requests and computed nothing"):
            async with asyncio.timeout(10):
                await engine.watch(silence_s=0.4)


async def test_an_engine_that_does_not_answer_any_more_is_hung(tmp_path: Path) -> None:
    async with LocalRunner().launch(spec_for(tmp_path)) as engine:
        os.kill(engine.pid, signal.SIGSTOP)
        with pytest.raises(EngineHung, match="did not answer"):
            async with asyncio.timeout(10):
                await engine.watch(silence_s=0.4)
        os.kill(engine.pid, signal.SIGCONT)


async def test_a_death_is_noticed_at_once_however_long_silence_is_allowed(tmp_path: Path) -> None:
    async with LocalRunner().launch(spec_for(tmp_path)) as engine:
        os.kill(engine.pid, signal.SIGKILL)
        began = time.perf_counter()
        with pytest.raises(EngineDied) as caught:
            await engine.watch(silence_s=600)
        assert caught.value.kind == "killed"
        assert time.perf_counter() - began < 5


@pytest.mark.parametrize(("switches", "believed"), [([], True), (["--lying-reset"], False)])
async def test_a_reset_is_believed_when_a_known_prompt_misses_after_it(
    tmp_path: Path, switches: list[str], *, believed: bool
) -> None:
    async with LocalRunner().launch(spec_for(tmp_path, *switches)) as engine:
        assert await engine.reset_prefix_cache() is believed
        assert await engine.reset_prefix_cache() is believed
