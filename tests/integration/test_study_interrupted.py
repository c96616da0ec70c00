"""Stopped at any moment, by a signal or by `kill -9`: nothing completed is lost, repeated or counted twice."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.study_desk import Desk, engines_of, run_tune, start_tune, wait_until
from tuner.records import Measurement, TrialRecord
from tuner.store import Store

# Seconds on idle cores; minutes where something else has them.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "runs"
    assert engines_of(tmp_path / "runs", "s") == []


def words(desk: Desk, out: Path) -> list[str]:
    return [*desk.options("s", out), "--no-tracking"]


def measured(out: Path) -> dict[tuple[int, str], Measurement]:
    """Every completed measurement on disk."""
    store = Store(out / "s")
    return {
        (plan.number, condition): measurement
        for plan in store.plans().values()
        for condition, measurement in store.measurements(plan.number).items()
    }


def launching(out: Path) -> Callable[[], bool]:
    """A trial's engine is being started."""
    return lambda: any((out / "s" / "trials").glob("*/engine.log"))


def measuring(out: Path, *, done: int) -> Callable[[], bool]:
    """So many measurements are complete and the next one is under way."""

    def happened() -> bool:
        counts = [len(list(d.glob("measurements/*.json"))) for d in (out / "s" / "trials").glob("*")]
        return sum(counts) >= done

    return happened


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM")])
def test_a_signal_stops_the_study_in_order_and_tells_how_to_go_on(
    desk: Desk, out: Path, tmp_path: Path, number: signal.Signals, name: str
) -> None:
    log = tmp_path / "log"
    tuner = start_tune(*words(desk, out), log=log)
    try:
        wait_until(measuring(out, done=1), tuner)
        second = run_tune("resume", "s", "--out", str(out))
        assert (second.returncode, second.stdout) == (2, "")
        assert "is being run by another tuner" in second.stderr
        tuner.send_signal(number)
        assert tuner.wait(timeout=60) == 4
    finally:
        tuner.kill()
    assert engines_of(out, "s") == []
    last = log.read_text(encoding="utf-8").splitlines()[-1]
    assert last == f"tune: stopped by {name}; go on with `tune resume s --out {out}`"
    assert not list((out / "s").glob("recommended/*"))


def test_killed_in_a_launch_a_measurement_between_trials_and_in_the_confirmation(
    desk: Desk, out: Path, tmp_path: Path
) -> None:
    """Kills one study four times; the fifth run finishes it, with the same steps as an undisturbed study."""
    log = tmp_path / "log"

    def killed_when(happened: Callable[[], bool], *command: str) -> None:
        kept = measured(out)
        tuner = start_tune(*command, log=log)
        try:
            wait_until(happened, tuner, timeout_s=120)
        finally:
            os.kill(tuner.pid, signal.SIGKILL)
            tuner.wait()
        assert kept.items() <= measured(out).items()

    def finished_trials(count: int) -> Callable[[], bool]:
        return lambda: len(list((out / "s").glob("trials/*/trial.json"))) >= count

    def in_confirmation() -> bool:
        plans = (out / "s").glob("trials/*/plan.json")
        return any('"confirm"' in p.read_text(encoding="utf-8") for p in plans) and measuring(out, done=7)()

    resume = ("resume", "s", "--out", str(out))
    killed_when(launching(out), *words(desk, out))
    killed_when(measuring(out, done=1), *resume)
    killed_when(finished_trials(2), *resume)
    killed_when(in_confirmation, *resume)
    before = measured(out)
    last = run_tune(*resume, timeout_s=300)
    assert last.returncode == 0, last.stderr

    after = measured(out)
    assert before.items() <= after.items()
    records = Store.open(out, "s").records()
    assert [r.plan.number for r in records] == list(range(len(records)))
    assert len({r.plan.step for r in records}) == len(records)
    assert {(r.plan.number, c): m for r in records for c, m in r.measurements.items()} == after
    assert [r.plan.step for r in records][:3] == ["baseline", "recipe", "seed/gap/0"]
    assert {r.plan.phase for r in records[3:]} == {"confirm"}
    assert {a.condition for a in Store.open(out, "s").recommendations()} == {"code", "chat-v2"}
    _assert_same_plans(records[:3], run_undisturbed(desk, tmp_path))


def run_undisturbed(desk: Desk, tmp_path: Path) -> Path:
    out = tmp_path / "undisturbed"
    ended = run_tune(*desk.options("s", out), "--no-tracking", timeout_s=300)
    assert ended.returncode == 0, ended.stderr
    return out


def _assert_same_plans(records: list[TrialRecord], out: Path) -> None:
    others = Store.open(out, "s").records()[: len(records)]
    assert [r.plan for r in records] == [r.plan for r in others]
