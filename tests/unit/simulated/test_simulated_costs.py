"""The step time: formula, interpolation, stairs, graphs and noise."""

import dataclasses
import statistics

import pytest

from runners.simulated.calibration import Costs, Noise
from runners.simulated.costs import BatchShape, interpolate, noise_factor, step_seconds

COSTS = Costs(
    step_s=0.010,
    per_sequence_s=0.001,
    verify_curve=((1, 0.0), (33, 0.032), (65, 0.096)),
    per_prefill_token_s=0.0001,
    per_context_token_s=0.00001,
    draft_pass_s=0.002,
    per_speculating_sequence_s=0.0005,
    per_draft_token_s=0.0001,
)
NOTHING = BatchShape(decoding=0, verify_tokens=0, prefill_tokens=0, context_tokens=0, method=None, draft_tokens=0)


def shape(**changes: object) -> BatchShape:
    return dataclasses.replace(NOTHING, **changes)  # type: ignore[arg-type] # keys are the fields' names


def test_step_of_one_decoding_sequence_costs_base_and_sequence() -> None:
    seconds = step_seconds(COSTS, shape(decoding=1, verify_tokens=1), graph_tokens=None)
    assert seconds == pytest.approx(0.011)


def test_every_term_of_the_formula_is_added() -> None:
    batch = shape(decoding=2, verify_tokens=16, prefill_tokens=100, context_tokens=500, method="dflash", draft_tokens=7)
    seconds = step_seconds(COSTS, batch, graph_tokens=None)
    target = 0.010 + 2 * 0.001 + 0.015 + 100 * 0.0001 + 500 * 0.00001
    draft = 2 * 0.0005 + 0.002 + 16 * 0.0001
    assert seconds == pytest.approx(target + draft)


def test_autoregressive_drafters_pay_a_pass_for_every_token() -> None:
    block = shape(decoding=1, verify_tokens=8, method="dflash", draft_tokens=7)
    chain = dataclasses.replace(block, method="eagle3")
    difference = step_seconds(COSTS, chain, graph_tokens=None) - step_seconds(COSTS, block, graph_tokens=None)
    assert difference == pytest.approx(6 * 0.002 + (7 - 8) * 0.0001)


def test_ngram_drafts_without_a_model() -> None:
    with_draft = shape(decoding=1, verify_tokens=8, method="dflash", draft_tokens=7)
    ngram = dataclasses.replace(with_draft, method="ngram")
    saved = step_seconds(COSTS, with_draft, graph_tokens=None) - step_seconds(COSTS, ngram, graph_tokens=None)
    assert saved == pytest.approx(0.002 + 8 * 0.0001)


def test_tiles_make_stairs() -> None:
    stairs = dataclasses.replace(COSTS, verify_tile=16)
    times = [
        step_seconds(stairs, shape(decoding=1, verify_tokens=tokens), graph_tokens=None) for tokens in (1, 16, 17, 32)
    ]
    assert times[0] == times[1]
    assert times[1] < times[2] == times[3]


def test_a_batch_that_no_graph_covers_is_slower() -> None:
    cliff = dataclasses.replace(COSTS, eager_factor=1.5)
    covered = step_seconds(cliff, shape(decoding=8, verify_tokens=64), graph_tokens=64)
    beyond = step_seconds(cliff, shape(decoding=8, verify_tokens=64), graph_tokens=63)
    assert beyond == pytest.approx(1.5 * covered)


@pytest.mark.parametrize(
    ("x", "extrapolate", "expected"),
    [(0, True, 1.0), (1, True, 1.0), (2, True, 2.0), (3, True, 3.0), (5, True, 5.0), (5, False, 3.0)],
)
def test_interpolation(x: float, extrapolate: bool, expected: float) -> None:
    assert interpolate(((1, 1.0), (3, 3.0)), x, extrapolate=extrapolate) == pytest.approx(expected)


def test_noise_is_off_by_default_and_a_function_of_seed_and_step() -> None:
    noisy = Noise(step_sigma=0.1, launch_sigma=0.02)
    assert noise_factor(Noise(), 1, 1) == 1.0
    assert noise_factor(noisy, 1, 5) == noise_factor(noisy, 1, 5)
    assert noise_factor(noisy, 1, 5) != noise_factor(noisy, 1, 6)
    assert noise_factor(noisy, 1, 5) != noise_factor(noisy, 2, 5)


def test_noise_has_the_spread_that_it_was_asked_for() -> None:
    factors = [noise_factor(Noise(step_sigma=0.05), 3, step) for step in range(4000)]
    assert statistics.median(factors) == pytest.approx(1.0, abs=0.01)
    assert statistics.stdev(factors) == pytest.approx(0.05, rel=0.06)


def test_the_tail_strikes_its_share_of_steps() -> None:
    factors = [noise_factor(Noise(tail_share=0.1, tail_factor=5.0), 3, step) for step in range(4000)]
    assert sum(factor == 5.0 for factor in factors) == pytest.approx(400, rel=0.15)
