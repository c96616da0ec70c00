"""The prediction of draft lengths: exact where its assumptions hold, corrected by what is measured, its error told."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.tuner.made import dflash, measurement, record, resolved_space
from tuner.predict import Predictor, prediction_errors
from tuner.records import Measurement, TrialRecord

SPACE = resolved_space()
TTFT_S, TOKENS = 0.05, 100.0


def run_of(
    k: int, running: float, curve: tuple[float, ...], *, fixed_s: float, token_s: float, draft_s: float
) -> Measurement:
    """A closed loop on an engine whose step time is a straight line in its query tokens."""
    accepted = curve[:k]
    step_s = fixed_s + token_s * running * (k + 1) + (draft_s if k else 0.0)
    tpot_s = step_s / (1 + sum(accepted))
    speed = running * TOKENS / (TTFT_S + (TOKENS - 1) * tpot_s)
    made = measurement(f"code/c{running:g}", speed)
    metrics = {f"accepted_at_{i:02d}": p for i, p in enumerate(accepted, start=1)}
    metrics |= {"running_mean": running, "tpot_mean_s": tpot_s, "ttft_mean_s": TTFT_S}
    metrics |= {"completion_tokens": TOKENS * 8, "requests": 8.0}
    return made.model_copy(update={"metrics": {**made.metrics, **metrics}})


def trials(lengths: list[int], curve: tuple[float, ...], **engine: float) -> list[TrialRecord]:
    return [
        record(
            n,
            f"search/{n}",
            dflash(k) if k else {"method": "none"},
            *(run_of(k, b, curve, **engine) for b in (1, 8, 32)),
            space=SPACE,
        )
        for n, k in enumerate(lengths)
    ]


CURVES = st.lists(st.floats(0.3, 0.99), min_size=15, max_size=15).map(lambda ps: tuple(sorted(ps, reverse=True)))


@settings(max_examples=20, deadline=None)
@given(
    curve=CURVES, fixed_s=st.floats(0.002, 0.05), token_s=st.floats(1e-6, 3e-4), draft_s=st.floats(0, 0.01),
    k=st.integers(1, 15),
)  # fmt: skip
def test_two_launches_predict_every_length_of_an_engine_that_is_as_assumed(
    curve: tuple[float, ...], fixed_s: float, token_s: float, draft_s: float, k: int
) -> None:
    engine = {"fixed_s": fixed_s, "token_s": token_s, "draft_s": draft_s}
    predictor = Predictor(trials([0, 15], curve, **engine), method="dflash")
    (truth,) = trials([k], curve, **engine)
    for condition, measured in truth.measurements.items():
        predicted = predictor.predict(condition, k)
        assert predicted is not None
        assert predicted.throughput_tok_s == pytest.approx(measured.metrics["output_tok_s"], rel=0.02)


def test_what_was_measured_is_reproduced_and_corrects_its_neighbours() -> None:
    engine = {"fixed_s": 0.01, "token_s": 1e-4, "draft_s": 0.002}
    curve = tuple(0.95 - 0.04 * i for i in range(15))
    worse = tuple(0.7 * p for p in curve)  # a draft that was trained at 15 accepts less at 7
    records = trials([0, 15], curve, **engine)
    seven = record(2, "search/2", dflash(7), *(run_of(7, b, worse, **engine) for b in (1, 8, 32)), space=SPACE)
    before, after = (Predictor(known, method="dflash") for known in (records, [*records, seven]))
    measured = seven.measurements["code/c1"].metrics["output_tok_s"]
    known, eight_before, eight_after = (p.predict("code/c1", k) for p, k in ((after, 7), (before, 8), (after, 8)))
    assert known is not None
    assert eight_before is not None
    assert eight_after is not None
    assert known.throughput_tok_s == pytest.approx(measured, rel=1e-6)
    assert eight_after.throughput_tok_s < 0.9 * eight_before.throughput_tok_s
    (error,) = [
        e
        for e in prediction_errors(seven, records, method="dflash", objective="output_tok_s")
        if e.condition == "code/c1"
    ]
    assert error.k == 7
    assert error.relative > 0.1
    assert prediction_errors(seven, [*records, seven], method="dflash", objective="output_tok_s") == []


def test_nothing_is_predicted_before_both_ends_are_measured() -> None:
    records = trials([15], (0.9,) * 15, fixed_s=0.01, token_s=1e-4, draft_s=0.0)
    predictor = Predictor(records, method="dflash")
    assert predictor.predict("code/c1", 7) is None
    assert predictor.best("code/c1", [1, 7], "output_tok_s") is None
    assert predictor.log_gain("code/c1", 7, "output_tok_s") == 0.0


def test_no_speculation_is_among_the_lengths() -> None:
    records = trials([0, 15], (0.05,) * 15, fixed_s=0.01, token_s=1e-3, draft_s=0.01)
    assert Predictor(records, method="dflash").best("code/c32", list(range(1, 16)), "output_tok_s") == 0


def test_a_percentile_is_not_predicted_but_gains_as_its_mean() -> None:
    predictor = Predictor(trials([0, 15], (0.8,) * 15, fixed_s=0.01, token_s=1e-4, draft_s=0.0), method="dflash")
    predicted = predictor.predict("code/c8", 7)
    assert predicted is not None
    assert predicted.metric("e2e_mean_s") == predicted.e2e_s
    assert [predicted.metric(name) for name in ("e2e_p90_s", "tpot_p99_s", "ttft_mean_s", "chunk_gap_p90_s")] == [
        None
    ] * 4
    gain = predictor.log_gain("code/c8", 7, "e2e_mean_s")
    assert gain > 0
    assert predictor.log_gain("code/c8", 7, "e2e_p90_s") == gain
    assert predictor.log_gain("code/c8", 7, "chunk_gap_p90_s") == 0.0
