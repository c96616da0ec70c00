"""What `tune verify` says of measured rounds, made by hand: the verdict is that of the interval and of the outputs.

And what it refuses before it launches anything.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.unit.tuner.made import CODE, dflash, measurement, record, resolved_space
from tuner.baseline import read_baseline
from tuner.errors import InvalidMeasurementsError, UsageError
from tuner.objective import parse_objective
from tuner.records import TrialRecord
from tuner.verify import BASELINE, Verdict, _configs, _earlier, _verdict


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


def test_rounds_without_the_objective_in_any_block_are_no_verdict() -> None:
    with pytest.raises(InvalidMeasurementsError, match=r"0 of 3 rounds are valid.*e2e_p90_s"):
        judged(rounds(1.0), rounds(1.0), "latency")


def test_a_default_that_is_spelt_out_is_the_same_engine(tmp_path: Path) -> None:
    space, serve, other = resolved_space("dflash"), tmp_path / "serve.yaml", tmp_path / "other.yaml"
    serve.write_text("generation-config: vllm\n", encoding="utf-8")
    other.write_text("generation-config: vllm\nenable-prefix-caching: true\n", encoding="utf-8")
    assert read_baseline(serve, space).engine_args != read_baseline(other, space).engine_args
    plain = space.serve_config(space.baseline())
    with pytest.raises(UsageError, match="the same engine"):
        _configs(space, plain, other, str(serve), None)
    assert _configs(space, plain, other, BASELINE, None)[1] is plain


def test_a_recommendation_of_another_version_is_refused_with_its_path_and_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "recommendation.json").write_text('{"condition": "code"}', encoding="utf-8")
    with pytest.raises(UsageError, match=r"recommendation\.json: cannot be read .* move it away"):
        _earlier(tmp_path / "serve.yaml")
