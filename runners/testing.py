"""What every runner must do, as a test class to inherit: ours pass it, and so must a third party's.

Provide ``runner``, ``spec`` and ``broken`` in a subclass whose name starts with `Test` and let pytest, with asyncio
support, collect it. Imports no test library.
"""
# These are tests, shipped so that runners outside this project can be held to them: they assert (S101), their names
# describe them (D102), and they do without pytest, which users do not have (PT017).
# ruff: noqa: D102, PT017, S101

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import aiohttp

from runners.errors import LaunchFailure, RunnerError
from runners.processes import find_engines
from runners.spec import Engine, LaunchSpec, Runner

_NEVER_SILENT_S = 60.0


class RunnerContract(ABC):
    """Properties of a runner.

    Attributes:
        owns_engine: It starts and stops the engine, so that nothing of it may be left afterwards; else the engine
            must be as alive as before.
    """

    owns_engine: ClassVar[bool] = True

    @abstractmethod
    def runner(self) -> Runner:
        """The runner under test."""

    @abstractmethod
    def spec(self, directory: Path) -> LaunchSpec:
        """A launch that works."""

    @abstractmethod
    def broken(self, directory: Path) -> tuple[Runner, LaunchSpec]:
        """A runner and a launch that never serves, for a reason that is the configuration's."""

    async def test_a_launch_gives_a_working_engine_of_which_nothing_is_left(self, tmp_path: Path) -> None:
        runner, spec, steps = self.runner(), self.spec(tmp_path), list[str]()
        assert isinstance(runner, Runner)
        assert runner.name == runner.name.lower()
        async with runner.launch(spec, on_progress=steps.append) as engine:
            assert isinstance(engine, Engine)
            await self._works(engine)
            await self._is_watched(engine)
            url = engine.base_url
        assert "first completion" in steps
        await self._is_as_it_should_be(spec, url)

    async def test_what_does_not_serve_is_a_launch_failure_in_one_sentence(self, tmp_path: Path) -> None:
        runner, spec = self.broken(tmp_path)
        try:
            async with runner.launch(spec):
                raise AssertionError("it was launched")
        except LaunchFailure as failure:
            assert failure.message == str(failure)
            assert "\n" not in failure.message
            assert failure.kind not in {"crash", "killed"}
        assert find_engines(spec.study) == ()

    async def test_an_exception_and_a_cancellation_in_use_leave_nothing_either(self, tmp_path: Path) -> None:
        spec, ready, urls = self.spec(tmp_path), asyncio.Event(), list[str]()

        async def use() -> None:
            async with self.runner().launch(spec) as engine:
                urls.append(engine.base_url)
                ready.set()
                await asyncio.sleep(_NEVER_SILENT_S)

        task = asyncio.create_task(use())
        await asyncio.wait({task, waiting := asyncio.create_task(ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        waiting.cancel()
        assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
        await self._is_as_it_should_be(spec, urls[0])

    async def _works(self, engine: Engine) -> None:
        before = await engine.drain()
        headers = {"Authorization": f"Bearer {engine.api_key}"}
        body = {"model": engine.model, "prompt": "one two three", "max_tokens": 4}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{engine.base_url}/v1/completions", json=body, headers=headers) as answer,
        ):
            assert answer.status == 200
            assert (await answer.json(content_type=None))["usage"]["completion_tokens"] > 0
        assert (await engine.drain()).since(before).generation_tokens > 0
        assert isinstance(await engine.reset_prefix_cache(), bool)
        assert engine.version
        assert engine.start_s > 0
        assert set(engine.phases_s) <= {"import", "weights", "compile", "kv_cache", "graphs", "first_token"}
        assert engine.died() is None
        assert isinstance(engine.log_tail(), str)

    async def _is_watched(self, engine: Engine) -> None:
        """An engine without requests may be silent for as long as it likes."""
        try:
            async with asyncio.timeout(0.5):
                await engine.watch(silence_s=0.2)
        except TimeoutError:
            return
        except RunnerError as error:
            raise AssertionError("a healthy engine was taken for a broken one") from error

    async def _is_as_it_should_be(self, spec: LaunchSpec, url: str) -> None:
        assert find_engines(spec.study) == ()
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{url}/health") as response:
                assert not self.owns_engine
                assert response.status == 200
        except aiohttp.ClientConnectionError:
            assert self.owns_engine
