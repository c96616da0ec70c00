"""When outputs count as unchanged: identical, or different no more often than the baseline from itself."""

import pytest

from tuner.output_check import check_outputs


def outputs(count: int, *, different: int = 0, tag: str = "x") -> dict[str, str]:
    return {f"r{i}": tag if i < different else "same" for i in range(count)}


@pytest.mark.parametrize(
    ("candidate", "baseline", "verdict"),
    [
        ([outputs(10)] * 2, [outputs(10)] * 2, "identical"),
        ([outputs(10)], [outputs(10)], "identical"),
        ([outputs(10, different=1)], [outputs(10)] * 2, "changed"),
        # Without a repeat of the baseline nothing is known of its own differences.
        ([outputs(10, different=1)], [outputs(10)], "changed"),
        ([outputs(100, different=10)], [outputs(100), outputs(100, different=10)], "within calibration"),
        ([outputs(100, different=40)], [outputs(100), outputs(100, different=10)], "changed"),
        ([{}], [outputs(10)], "not comparable"),
        ([], [], "not comparable"),
        ([{"other": "x"}], [outputs(10)], "not comparable"),
    ],
)
def test_verdicts(candidate: list[dict[str, str]], baseline: list[dict[str, str]], verdict: str) -> None:
    assert verdict == check_outputs(candidate, baseline).verdict


def test_the_tolerance_ends_two_standard_errors_above_the_calibrated_rate() -> None:
    # 20 of 100 calibrated: standard error 4, so a little under 28 of 100 may differ.
    baseline = [outputs(100), outputs(100, different=20)]
    verdicts = [check_outputs([outputs(100, different=n)], baseline).verdict for n in (27, 29)]
    assert verdicts == ["within calibration", "changed"]


def test_the_figures_say_what_was_compared() -> None:
    check = check_outputs([outputs(10, different=2), outputs(8)], [outputs(10), outputs(10, different=1), outputs(10)])
    assert (check.compared, check.identical, check.calibration_identical) == (18, 16, 0.95)
