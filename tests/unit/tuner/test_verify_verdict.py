"""What `tune verify` says of measured rounds, made by hand: the verdict is that of the interval and of the outputs."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.tuner.made import CODE, dflash, measurement, record
from tuner.errors import InvalidMeasurementsError
from tuner.objective import parse_objective
from tuner.records import TrialRecord
from tuner.verify import Verdict, _verdict


def rounds(scale: float, *, seed: int = 0, output: str = "same", problems: tuple[str, ...] = ()) -> list[TrialRecord]:
    """Three rounds of four blocks around 100 times `scale`, with noise of a hundredth."""
    random, made = np.random.default_rng(seed), []
    for number in range(3):
        blocks = list(scale * random.normal(100, 1, 4))
        measured = measurement("code", 100 * scale, blocks=blocks, outputs={"r": output}, problems=problems)
        made.append(record(number, f"confirm/{number}", dflash(7), measured))
    return made


def judged(
    contender: Sequence[TrialRecord], reference: Sequence[TrialRecord], objective: str = "throughput"
) -> Verdict:
    goal = parse_objective(objective)
    return _verdict(CODE, list(contender), list(reference), goal, confidence=0.95, earlier={})


@pytest.mark.parametrize(("scale", "verdict"), [(0.9, "worse"), (1.0, "same"), (1.1, "better")])
def test_the_verdict_is_the_side_of_one_on_which_the_interval_lies(scale: float, verdict: str) -> None:
    found = judged(rounds(scale, seed=1), rounds(1.0))
    assert found.verdict == verdict
    assert found.effect.gain == pytest.approx(scale, rel=0.03)
    assert found.effect.low < scale < found.effect.high


def test_a_gain_with_changed_outputs_is_worse() -> None:
    assert judged(rounds(1.5, output="other"), rounds(1.0)).verdict == "worse"


def test_one_valid_round_is_no_verdict_and_the_first_problem_is_told() -> None:
    spoilt = [*rounds(1.0)[:1], *rounds(1.0, problems=("the client was late",))[1:]]
    with pytest.raises(InvalidMeasurementsError, match=r"1 of 3 rounds are valid.*the client was late"):
        judged(spoilt, rounds(1.0))
