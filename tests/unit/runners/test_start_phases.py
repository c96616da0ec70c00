"""The phases of a start, told from a log as it grows, and the limit of each."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from runners.phases import PHASES, LogFollower, phase_limits

GROWING = (
    ("non-default args: {'model': 'm'}\n", "import", "reading configuration"),
    ("Initializing a V1 LLM engine (v0.32.0) with config: x\n", "import", "starting engine core"),
    ("Starting to load model m...\n", "weights", "loading weights"),
    ("Loading drafter model...\n", "weights", "loading draft"),
    ("torch.compile took 31.20 s in total\n", "compile", "compiling"),
    ("Available KV cache memory: 51.13 GiB\n", "kv_cache", "sizing KV cache"),
    ("Capturing CUDA graphs (mixed, PIECEWISE):  39%|xx  | 26/67\r", "graphs", "capturing graphs"),
    ("init engine (profile, create kv cache, warmup model) took 40.12 s\n", "first_token", "starting server"),
)


def test_every_phase_is_told_by_the_line_that_begins_it(tmp_path: Path) -> None:
    log, told = tmp_path / "engine.log", list[str]()
    log.touch()
    follower = LogFollower(log, told.append)
    for text, phase, step in GROWING:
        with log.open("a", encoding="utf-8", newline="") as file:
            file.write(text)
        follower.update()
        assert (follower.phase, follower.step) == (phase, step)
    assert told == [
        "starting",
        *(step for _, _, step in GROWING[:-1]),
        "capturing graphs 39%",
        "starting server",
    ]
    assert set(follower.finish()) == set(PHASES)


def test_time_is_counted_by_phase_and_a_second_visit_adds_to_the_first(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    follower = LogFollower(tmp_path / "log", None)
    for phase in ("weights", "import", "weights"):
        time.sleep(0.05)
        follower.enter(phase, phase)
    time.sleep(0.05)
    assert 0.09 < follower.in_phase_s() < 1
    assert follower.overdue({"weights": 0.09, "import": 0.0})
    assert not follower.overdue({"weights": 5.0, "import": 0.0})
    assert sum(follower.finish().values()) == pytest.approx(0.2, abs=0.15)


def test_limits_are_shares_of_the_whole_but_never_too_short_and_a_caller_may_set_its_own() -> None:
    limits = phase_limits(900.0, {"graphs": 7.0})
    assert limits.keys() == set(PHASES)
    assert (limits["import"], limits["weights"], limits["graphs"]) == (300.0, 600.0, 7.0)
    assert set(phase_limits(3.0, {}).values()) == {60.0}
