"""The short form of the fault drill; `make drill` runs all of it."""

from pathlib import Path

import pytest

from bench.drill import main, run_faults, run_kills
from bench.drill_faults import FAULTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_hung_engine_with_health_200_costs_its_trial_and_nothing_else(tmp_path: Path) -> None:
    (row,) = run_faults([fault for fault in FAULTS if fault.name == "hung_with_health_200"], tmp_path)
    assert row.good, row


def test_signals_at_random_moments_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    row = run_kills(tmp_path, 3, seed=1)
    assert row.good, row


def test_a_fault_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--only", "hnug"])
    assert ended.value.code == 2
    assert "'hnug'" in capsys.readouterr().err
