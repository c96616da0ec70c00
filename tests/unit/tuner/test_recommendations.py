"""From records to answers: change only for a reliable gain with unchanged outputs within the SLO."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from search_spaces import Scalar
from tests.unit.tuner.made import CODE, dflash, measurement, record, resolved_space, rules
from tuner.objective import parse_slos
from tuner.ranking import shortlist
from tuner.recommend import recommend
from tuner.records import Measurement, TrialRecord

BASELINE: dict[str, Scalar] = {"method": "none"}
SAME = {"r1": "a", "r2": "b"}


def confirmation(candidates: Mapping[int, Sequence[Measurement]], baseline: Sequence[Measurement]) -> list[TrialRecord]:
    """A baseline trial and its confirmation rounds beside those of candidates, by their K."""
    records = [record(0, "baseline", BASELINE, baseline[0])]
    for number, one in enumerate(baseline):
        records.append(record(len(records), f"confirm/{number}/base/0", BASELINE, one))
    for k, rows in candidates.items():
        for number, one in enumerate(rows):
            records.append(record(len(records), f"confirm/{number}/k{k}/{k}", dflash(k), one))
    return records


def rounds(value: float, *, count: int = 3, spread: float = 0.01, **more: object) -> list[Measurement]:
    """Rounds around a value, each with four blocks that differ a little, always the same way."""
    rng = np.random.default_rng(round(value * 1000))
    rows = value * np.exp(rng.normal(0, spread, (count, 4)))
    return [
        measurement("code", float(row.mean()), blocks=[float(v) for v in row], outputs=SAME, **more)  # type: ignore[arg-type] # passed on
        for row in rows
    ]


def test_a_reliable_gain_is_a_change_with_its_interval_and_evidence() -> None:
    records = confirmation({7: rounds(180)}, rounds(100))
    answer = recommend(CODE, records, rules())
    assert answer.effect is not None
    assert (answer.verdict, answer.serve_config.label(), answer.baseline.label()) == (
        "change",
        "dflash K=7",
        "no speculation",
    )
    assert answer.effect.low > 1.7
    assert answer.effect.low < answer.effect.gain < answer.effect.high
    assert answer.effect.gain == pytest.approx(1.8, rel=0.02)
    assert answer.value / answer.baseline_value == pytest.approx(1.8, rel=0.02)
    assert answer.output_check is not None
    assert (answer.output_check.verdict, answer.slo_met) == ("identical", True)
    assert sorted(answer.trials) == [r.plan.number for r in records if r.plan.phase == "confirm"]


def test_a_gain_within_the_noise_is_no_reliable_gain_and_keeps_the_baseline() -> None:
    answer = recommend(CODE, confirmation({7: rounds(102, spread=0.05)}, rounds(100, spread=0.05)), rules())
    assert (answer.verdict, answer.serve_config.label()) == ("no reliable gain", "no speculation")
    assert "not reliable" in answer.reason
    assert answer.best_candidate == "dflash K=7"


def test_a_reliable_loss_is_never_a_change() -> None:
    answer = recommend(CODE, confirmation({7: rounds(80)}, rounds(100)), rules())
    assert (answer.verdict, answer.serve_config.label()) == ("no reliable gain", "no speculation")


def test_without_candidates_the_answer_is_to_keep_the_baseline() -> None:
    answer = recommend(CODE, confirmation({}, rounds(100)), rules())
    assert (answer.verdict, answer.effect, answer.best_candidate) == ("keep", None, "none")


def test_lower_is_better_for_a_latency() -> None:
    base, fast = ([m.model_copy() for m in rounds(v, metric="e2e_p90_s")] for v in (2.0, 1.0))
    answer = recommend(CODE, confirmation({7: fast}, base), rules(objective="latency"))
    assert answer.verdict == "change"
    assert answer.effect is not None
    assert answer.effect.gain == pytest.approx(2.0, rel=0.02)


def test_changed_outputs_are_refused_whatever_the_gain() -> None:
    changed = [m.model_copy(update={"greedy_outputs": {"r1": "a", "r2": "X"}}) for m in rounds(300)]
    answer = recommend(CODE, confirmation({7: changed}, rounds(100)), rules())
    assert (answer.verdict, answer.serve_config.label()) == ("no reliable gain", "no speculation")
    assert "changed the output: only 3 of 6" in answer.reason


def test_the_best_unchanged_candidate_wins_over_a_faster_changed_one() -> None:
    changed = [m.model_copy(update={"greedy_outputs": {"r1": "X"}}) for m in rounds(300)]
    answer = recommend(CODE, confirmation({15: changed, 7: rounds(180)}, rounds(100)), rules())
    assert (answer.verdict, answer.serve_config.label()) == ("change", "dflash K=7")


def test_outputs_that_nobody_could_compare_are_a_caveat() -> None:
    silent = [m.model_copy(update={"greedy_outputs": {}}) for m in rounds(180)]
    answer = recommend(CODE, confirmation({7: silent}, rounds(100)), rules())
    assert answer.verdict == "change"
    assert any("could not be compared" in caveat for caveat in answer.caveats)


def test_a_searched_temperature_is_a_caveat() -> None:
    answer = recommend(CODE, confirmation({7: rounds(180)}, rounds(100)), rules(temperature_searched=True))
    assert any("temperature was part of the search" in caveat for caveat in answer.caveats)


SLOS = parse_slos(("ttft_p99=100ms",))


def test_a_candidate_over_the_slo_is_no_answer() -> None:
    fast = rounds(180, ttft_p99_s=0.2)
    answer = recommend(CODE, confirmation({7: fast}, rounds(100, ttft_p99_s=0.05)), rules(slos=SLOS))
    assert (answer.verdict, answer.slo_met) == ("no reliable gain", True)
    assert "does not meet the SLO" in answer.reason


def test_one_round_over_the_slo_is_enough_to_miss_it() -> None:
    fast = [*rounds(180, count=2, ttft_p99_s=0.05), rounds(180, count=1, ttft_p99_s=0.2)[0]]
    answer = recommend(CODE, confirmation({7: fast}, rounds(100, ttft_p99_s=0.05)), rules(slos=SLOS))
    assert answer.verdict == "no reliable gain"


def test_a_slower_candidate_that_alone_meets_the_slo_is_the_answer() -> None:
    slow = rounds(90, ttft_p99_s=0.05)
    answer = recommend(CODE, confirmation({7: slow}, rounds(100, ttft_p99_s=0.2)), rules(slos=SLOS))
    assert (answer.verdict, answer.serve_config.label(), answer.slo_met) == ("change", "dflash K=7", True)


def test_when_nothing_meets_the_slo_the_answer_says_so() -> None:
    records = confirmation({7: rounds(180, ttft_p99_s=0.2)}, rounds(100, ttft_p99_s=0.2))
    answer = recommend(CODE, records, rules(slos=SLOS))
    assert (answer.verdict, answer.slo_met) == ("no reliable gain", False)


def test_several_finalists_share_the_doubt() -> None:
    one = recommend(CODE, confirmation({7: rounds(180)}, rounds(100)), rules())
    two = recommend(CODE, confirmation({7: rounds(180), 3: rounds(110)}, rounds(100)), rules())
    assert one.effect is not None
    assert two.effect is not None
    assert [one.effect.confidence, two.effect.confidence] == pytest.approx([0.95, 0.975])
    assert two.effect.low < one.effect.low < one.effect.high < two.effect.high


@pytest.mark.slow
def test_the_interval_covers_although_one_launch_serves_all_conditions() -> None:
    """What the other conditions say of a launch is no second launch: nothing may be borrowed from them."""
    rng, space = np.random.default_rng(3), resolved_space()
    truth, conditions, covered, draws = 1.5, ("code", "b", "c", "d", "e", "f"), 0, 400

    def launched(step: str, number: int, values: Mapping[str, Scalar], scale: float) -> TrialRecord:
        launch = rng.normal(0, 0.02)
        found = []
        for name in conditions:
            blocks = [float(scale * np.exp(launch + noise)) for noise in rng.normal(0, 0.005, 4)]
            found.append(measurement(name, float(np.mean(blocks)), blocks=blocks, outputs=SAME))
        return record(number, step, values, *found, space=space)

    for _ in range(draws):
        records = [launched("baseline", 0, BASELINE, 100)]
        for number in range(3):
            records.append(launched(f"confirm/{number}/base/0", len(records), BASELINE, 100))
            records.append(launched(f"confirm/{number}/k7/7", len(records), dflash(7), 100 * truth))
        effect = recommend(CODE, records, rules()).effect
        assert effect is not None
        covered += effect.low <= truth <= effect.high
    assert covered / draws >= 0.93


def test_a_candidate_confirmed_once_is_not_believed() -> None:
    answer = recommend(CODE, confirmation({7: rounds(180, count=1)}, rounds(100)), rules())
    assert answer.verdict == "no reliable gain"
    assert "no candidate of 1 has two valid confirmation rounds" in answer.reason


def test_invalid_rounds_are_left_out() -> None:
    spoilt = [*rounds(180), rounds(1, count=1, problems=("starved",))[0]]
    answer = recommend(CODE, confirmation({7: spoilt}, rounds(100, count=4)), rules())
    assert answer.verdict == "change"
    assert answer.effect is not None
    assert answer.effect.pairs == 12


def test_a_baseline_that_was_never_confirmed_is_no_answer() -> None:
    spoilt = rounds(100, problems=("starved",))
    with pytest.raises(ValueError, match="no valid confirmation of the baseline"):
        recommend(CODE, confirmation({7: rounds(180)}, spoilt), rules())


def test_the_baseline_at_a_searched_temperature_is_a_candidate_of_its_own() -> None:
    records = confirmation({}, rounds(100))
    for number, one in enumerate(rounds(180)):
        records.append(record(len(records), f"confirm/{number}/base/9", BASELINE, one, temperature=0.3))
    answer = recommend(CODE, records, rules(temperature_searched=True))
    assert answer.effect is not None
    assert [answer.baseline_value, answer.effect.gain] == pytest.approx([100, 1.8], rel=0.02)


def searched(*values: tuple[dict[str, Scalar], float], baseline: float = 100.0) -> list[TrialRecord]:
    records = [record(0, "baseline", BASELINE, measurement("code", baseline))]
    records += [
        record(number, f"search/{number}", knobs, measurement("code", value))
        for number, (knobs, value) in enumerate(values, start=1)
    ]
    return records


def labels(found: list[TrialRecord]) -> list[str]:
    return [r.plan.serve_config.label() for r in found]


def test_the_shortlist_is_the_best_few_that_beat_the_baseline() -> None:
    records = searched((dflash(3), 150), (dflash(7), 180), (dflash(15), 120), (dflash(1), 99))
    assert labels(shortlist("code", records, rules(), count=2)) == ["dflash K=7", "dflash K=3"]
    assert labels(shortlist("code", records, rules(), count=9)) == ["dflash K=7", "dflash K=3", "dflash K=15"]


def test_a_close_call_goes_to_the_configuration_that_changes_less() -> None:
    records = searched((dflash(7, prefix_caching=False), 181), (dflash(7), 180))
    assert labels(shortlist("code", records, rules(), count=1)) == ["dflash K=7"]


def test_a_clear_call_goes_to_the_better_one() -> None:
    records = searched((dflash(7, prefix_caching=False), 190), (dflash(7), 180))
    assert labels(shortlist("code", records, rules(), count=1)) == ["dflash K=7, prefix_caching=off"]


def test_lower_latency_leads_the_shortlist() -> None:
    records = [
        record(0, "baseline", BASELINE, measurement("code", 1.0, metric="e2e_p90_s")),
        record(1, "search/0", dflash(3), measurement("code", 0.5, metric="e2e_p90_s")),
        record(2, "search/1", dflash(7), measurement("code", 0.4, metric="e2e_p90_s")),
        record(3, "search/2", dflash(15), measurement("code", 1.1, metric="e2e_p90_s")),
    ]
    assert labels(shortlist("code", records, rules(objective="latency"), count=3)) == ["dflash K=7", "dflash K=3"]


def test_invalid_missing_and_confirmed_measurements_are_not_shortlisted() -> None:
    records = [
        *searched(),
        record(1, "search/0", dflash(3), measurement("code", 500, problems=("starved",))),
        record(2, "search/1", dflash(7), measurement("chat", 500)),
        record(3, "search/2", dflash(1)),
        record(4, "confirm/0/x/0", dflash(15), measurement("code", 500)),
    ]
    assert shortlist("code", records, rules(), count=5) == []


def test_a_miss_of_the_slo_is_not_shortlisted() -> None:
    records = [
        record(0, "baseline", BASELINE, measurement("code", 100, ttft_p99_s=0.05)),
        record(1, "search/0", dflash(3), measurement("code", 500, ttft_p99_s=0.2)),
        record(2, "search/1", dflash(7), measurement("code", 120, ttft_p99_s=0.05)),
    ]
    assert labels(shortlist("code", records, rules(slos=SLOS), count=5)) == ["dflash K=7"]


def test_when_the_baseline_misses_the_slo_slower_configurations_qualify() -> None:
    records = [
        record(0, "baseline", BASELINE, measurement("code", 100, ttft_p99_s=0.2)),
        record(1, "search/0", dflash(3), measurement("code", 80, ttft_p99_s=0.05)),
    ]
    assert labels(shortlist("code", records, rules(slos=SLOS), count=5)) == ["dflash K=3"]


def test_a_reliable_finalist_is_preferred_to_a_faster_one_that_is_not() -> None:
    wild = [measurement("code", value, blocks=[value] * 4, outputs=SAME) for value in (100.0, 450.0, 240.0)]
    answer = recommend(CODE, confirmation({15: wild, 7: rounds(150)}, rounds(100)), rules())
    assert (answer.verdict, answer.serve_config.label()) == ("change", "dflash K=7")


def test_a_searched_temperature_becomes_the_engine_s_default_in_the_export() -> None:
    records = [
        one
        if one.plan.step.startswith("confirm/") is False or "base" in one.plan.step
        else one.model_copy(update={"plan": one.plan.model_copy(update={"temperature": 0.3})})
        for one in confirmation({7: rounds(180)}, rounds(100))
    ]
    answer = recommend(CODE, records, rules())
    assert answer.serve_config.engine_args["override-generation-config"] == {"temperature": 0.3}
