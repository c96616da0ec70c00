"""Studies from Python: the documented example as it stands, and what a callback can rely on."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.study_desk import ENGINE_COMMAND, TIME_SCALE, Desk, engines_of, environment
from tuner import Progress, TuneConfig, tune_async

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_the_example_of_the_documentation_runs(desk: Desk, tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (DOCS / "python-api.md").read_text(encoding="utf-8"), re.DOTALL)
    for made in (desk.workload, desk.target, desk.draft):
        (tmp_path / made.name).symlink_to(made)
    engine = tmp_path / "bin" / "vllm"
    engine.parent.mkdir()
    engine.write_text(f'#!/bin/sh\nshift\nexec {ENGINE_COMMAND} "$@"\n', encoding="utf-8")
    engine.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-P", "-c", example],
        cwd=tmp_path,
        env=environment(PATH=f"{engine.parent}:{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "no answer" not in done.stdout
    assert re.search(r"^trial 0: .*tokens/s$", done.stdout, re.MULTILINE)
    assert re.search(r"^code: (change|keep|no reliable gain), vllm serve ", done.stdout, re.MULTILINE)


def config_of(desk: Desk, out: Path) -> TuneConfig:
    return TuneConfig(
        workload=desk.workload,
        model=str(desk.target),
        draft=str(desk.draft),
        engine_argv=tuple(ENGINE_COMMAND.split()),
        engine_version="0.32.0",
        engine_args=("--max-model-len", "2048"),
        space=str(desk.space),
        load="concurrency=2",
        trials=2,
        rounds=2,
        blocks=2,
        study="api",
        out=out,
        tracking=False,
    )


async def test_what_a_callback_raises_ends_the_study_and_it_can_be_resumed(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMULATED_TIME_SCALE", TIME_SCALE)
    seen: list[Progress] = []

    def stop_after_the_first(progress: Progress) -> None:
        seen.append(progress)
        if progress.event == "trial_ended":
            raise KeyError("enough")

    config = config_of(desk, tmp_path)
    with pytest.raises(KeyError, match="enough"):
        await tune_async(config, progress=stop_after_the_first)
    await asyncio.sleep(0.1)
    assert engines_of(tmp_path, "api") == []
    assert [p.event for p in seen if p.event != "message"] == ["planned", "trial_began", "trial_ended"]
    later: list[Progress] = []
    answers = await tune_async(config, resume=True, progress=later.append)
    began = [p.trial for p in later if p.event == "trial_began"]
    assert began == [p.trial for p in later if p.event == "trial_ended"]
    assert 0 not in began
    assert {answer.condition for answer in answers} == {"code", "chat-v2"}
