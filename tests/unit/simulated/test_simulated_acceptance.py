"""Acceptance: curves, the expected length, and that positions decide rather than call order."""

import dataclasses

import pytest

from runners.simulated.acceptance import Speculation, accepted_tokens, conditional_curve, expected_length
from runners.simulated.calibration import Draft, Kind

KIND = Kind(conditional=(0.9, 0.8, 0.7), temperature_slope=0.2)
DFLASH = Speculation(method="dflash", draft_tokens=5, block_size=16)


def curve(
    kind: Kind = KIND, draft: Draft | None = None, speculation: Speculation = DFLASH, **more: float
) -> tuple[float, ...]:
    given = {"temperature": 0.0, "seed": 1, **more}
    return conditional_curve(kind, draft or Draft(), speculation, **given)  # type: ignore[arg-type] # names as given


def accepted_mean(values: tuple[float, ...], requests: int = 40, tokens: int = 400) -> float:
    """Mean tokens per verify step over whole answers, as the scheduler walks them."""
    steps = yielded = 0
    for seed in range(requests):
        position = 1
        while position < tokens:
            accepted = accepted_tokens(values, seed=seed, position=position, drafts=len(values))
            position, steps, yielded = position + accepted + 1, steps + 1, yielded + accepted + 1
    return yielded / steps


def test_last_value_of_the_curve_is_repeated() -> None:
    assert curve() == (0.9, 0.8, 0.7, 0.7, 0.7)


def test_expected_length_sums_running_products() -> None:
    assert expected_length((0.9, 0.8)) == pytest.approx(1 + 0.9 + 0.72)


@pytest.mark.parametrize("values", [(0.9, 0.85, 0.8, 0.8, 0.8, 0.75, 0.7), (0.5, 0.5, 0.5), (0.97,) * 15])
def test_simulated_acceptance_length_is_the_expected_one(values: tuple[float, ...]) -> None:
    assert accepted_mean(values) == pytest.approx(expected_length(values), rel=0.03)


def test_acceptance_depends_on_request_and_position_alone() -> None:
    first = [accepted_tokens((0.7,) * 7, seed=9, position=position, drafts=7) for position in range(50)]
    again = [accepted_tokens((0.7,) * 7, seed=9, position=position, drafts=7) for position in reversed(range(50))]
    other = [accepted_tokens((0.7,) * 7, seed=10, position=position, drafts=7) for position in range(50)]
    assert first == again[::-1]
    assert first != other


def test_fewer_drafts_accept_a_prefix_of_what_more_drafts_accept() -> None:
    for position in range(100):
        many = accepted_tokens((0.8,) * 15, seed=4, position=position, drafts=15)
        few = accepted_tokens((0.8,) * 15, seed=4, position=position, drafts=3)
        assert few == min(3, many)


def test_temperature_lowers_acceptance_and_probabilistic_drafting_less_so() -> None:
    hot = curve(temperature=1.0)
    relieved = curve(speculation=dataclasses.replace(DFLASH, probabilistic=True), temperature=1.0)
    assert hot[0] == pytest.approx(0.9 * 0.8)
    assert hot[0] < relieved[0] < curve()[0]


def test_more_drafts_than_the_trained_block_ruin_acceptance() -> None:
    short = Speculation(method="dflash", draft_tokens=7, block_size=8)
    beyond = Speculation(method="dflash", draft_tokens=8, block_size=8)
    assert expected_length(curve(speculation=short)) > 3
    assert expected_length(curve(speculation=beyond)) < 1.2


def test_fit_makes_the_curve_depend_on_the_number_of_drafts() -> None:
    draft = Draft(fit=((3.0, 0.8), (15.0, 1.0)))
    at = {k: curve(draft=draft, speculation=dataclasses.replace(DFLASH, draft_tokens=k))[0] for k in (1, 3, 9, 15)}
    assert at == pytest.approx({1: 0.72, 3: 0.72, 9: 0.81, 15: 0.9})


def test_caching_and_spread_change_the_curve_when_the_calibration_says_so() -> None:
    hurt = dataclasses.replace(KIND, cached_factor=0.5)
    assert curve(kind=hurt, cached_share=1.0)[0] == pytest.approx(0.45)
    assert curve(kind=hurt, cached_share=0.0)[0] == pytest.approx(0.9)
    spread = dataclasses.replace(KIND, request_spread=0.1)
    assert curve(kind=spread, seed=1) != curve(kind=spread, seed=2)


def test_context_factor_lowers_acceptance() -> None:
    near = sum(accepted_tokens((0.9,) * 7, seed=2, position=p, drafts=7) for p in range(200))
    far = sum(accepted_tokens((0.9,) * 7, seed=2, position=p, drafts=7, context_factor=0.5) for p in range(200))
    assert far < near / 3
