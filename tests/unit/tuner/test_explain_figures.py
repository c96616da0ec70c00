"""Figures of an explanation against what the simulated engine was made to do, and against formulas."""

import dataclasses
import math

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.tuner.explain_desk import CORNERS, Try, calibration, explained, study
from tuner.explain.importance import shares
from tuner.explain.intervals import acceptance_length
from tuner.explain.speed import constant_acceptance


@given(st.floats(0.01, 0.99), st.integers(1, 15))
def test_constant_acceptance_inverts_the_sum_of_its_powers(constant: float, k: int) -> None:
    length = sum(constant**i for i in range(k + 1))
    assert constant_acceptance(length, k) == pytest.approx(constant, abs=1e-6)


def test_acceptance_of_41_5_percent_at_k_7_means_779_per_token_not_415() -> None:
    """The published case: AL 3.91 (docs/explain.md)."""
    assert constant_acceptance(3.91, 7) == pytest.approx(0.779, abs=0.001)


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_the_interval_of_an_acceptance_length_covers_the_truth(seed: int) -> None:
    """100 repetitions of 400 drafts; 95% intervals may miss the truth in few of them."""
    generator = np.random.default_rng(seed)
    alphas = generator.uniform(0.4, 0.95, 7)
    truth = 1 + np.cumprod(alphas).sum()
    hits = 0
    for _ in range(100):
        accepted = np.cumprod(generator.random((400, 7)) < alphas, axis=1)
        found = acceptance_length([float(p) for p in accepted.mean(axis=0)], 400, 0.95)
        hits += (found.low or 0) <= truth <= (found.high or 0)
    assert hits >= 85


@pytest.mark.slow
def test_independent_savings_of_time_add_up_where_nothing_disturbs_them() -> None:
    (row,) = explained(study(CORNERS)).interactions
    assert row.first == "speculation (dflash K=7)"
    assert row.second == "prefix caching"
    assert row.additive_gain == pytest.approx(row.both.gain.value, rel=0.05)
    assert row.causes == ()


def test_a_dropped_block_is_counted_in_blocks_of_the_engine() -> None:
    engine = dataclasses.replace(calibration(), release="0.32.0")
    explanation = explained(study((*CORNERS, Try(k=7, speculative={"disable_eagle_block_drop": True})), engine))
    lost = {row.label: row.ideal_tokens - row.cached_tokens for row in explanation.cache_use}
    assert sorted(lost.values()) == [0, 23 * 16]  # of 24 requests the first finds nothing
    assert [row.lost_blocks_per_request for row in explanation.cache_use] == pytest.approx([23 / 24, 0])


@pytest.mark.slow
def test_the_speed_model_finds_the_engine_s_own_costs() -> None:
    """Planted: a draft pass of 3 ms and 40 us for each query token."""
    engine = calibration(
        costs={"draft_pass_s": 0.003, "verify_curve": ((0, 0.0), (1000, 0.040)), "per_prefill_token_s": 0.0}
    )
    (model,) = explained(study((Try(), Try(k=3), Try(k=7), Try(k=15)), engine, loads=(1, 4))).speed
    assert model.draft_s == pytest.approx(0.003, rel=0.15)
    assert model.verify_s_per_token == pytest.approx(40e-6, rel=0.15)
    for point in model.points:
        assert point.predicted == pytest.approx(point.measured.value, rel=0.1)
        assert point.one_pass >= point.predicted * 0.98  # free verification is never slower


@pytest.mark.slow
def test_the_load_curve_crosses_where_the_envelopes_cross() -> None:
    engine = calibration(costs={"verify_curve": ((1, 0.0), (8, 0.002), (64, 0.08), (512, 0.9))})
    (curve,) = explained(study((Try(), Try(k=7)), engine, loads=(1, 4, 16))).load_curves
    assert [(series.role, series.speculates) for series in curve.series] == [("baseline", False), ("alternative", True)]
    plain, fast = ([point.output_tok_s.value for point in series.points] for series in curve.series)
    assert curve.crossover is not None
    assert fast[0] > plain[0]
    assert fast[2] < plain[2]
    assert 1 < curve.crossover < 16


@pytest.mark.slow
def test_importance_agrees_with_optuna_and_a_knob_without_effect_does_not_matter() -> None:
    generator = np.random.default_rng(1)
    choices = {"k": 4, "caching": 2, "none": 3}
    rows = [{name: int(generator.integers(count)) for name, count in choices.items()} for _ in range(120)]
    values = np.array([10 * row["k"] + 4 * row["caching"] + generator.normal() for row in rows])
    ours = shares({name: np.array([row[name] for row in rows]) for name in choices}, values)
    theirs = _of_optuna(rows, values, choices)
    assert sorted(ours, key=lambda name: -ours[name]) == sorted(theirs, key=lambda name: -theirs[name])
    for name in choices:
        assert ours[name] == pytest.approx(theirs[name], abs=0.1)


def _of_optuna(rows: list[dict[str, int]], values: np.ndarray, choices: dict[str, int]) -> dict[str, float]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    found = {name: optuna.distributions.CategoricalDistribution(tuple(range(n))) for name, n in choices.items()}
    made = optuna.create_study(direction="maximize")
    made.add_trials(
        [
            optuna.trial.create_trial(value=float(v), params=dict(r), distributions=dict(found))
            for r, v in zip(rows, values, strict=True)
        ]
    )
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=0.25)
    return optuna.importance.get_param_importances(made, evaluator=evaluator)


@pytest.mark.slow
def test_knobs_of_a_search_are_ranked_and_the_dead_one_is_said_not_to_matter() -> None:
    tries = [Try(k=k, caching=caching) for k in (0, 1, 3, 5, 7, 11, 15) for caching in (True, False)]
    found = {row.knob: row for row in explained(study(tries)).importances}
    assert found["num_speculative_tokens"].share.value == max(row.share.value for row in found.values())
    assert all(0 <= (row.share.low or 0) <= row.share.value <= (row.share.high or 1) <= 1 for row in found.values())
    assert math.isclose(sum(row.share.value for row in found.values()), 1, rel_tol=1e-6)
