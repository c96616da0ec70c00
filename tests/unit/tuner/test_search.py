"""The search is a function of the records: same records, same proposal; failures teach; a crash never wins."""

from pathlib import Path

import optuna
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search_spaces import Knob, ResolvedSpace, Scalar, SearchSpace
from tests.unit.tuner.made import dflash, measurement, record, resolve, resolved_space
from tuner.objective import parse_objective, parse_slos
from tuner.records import Failure, TrialRecord
from tuner.search.proposals import Search

OOM = Failure(kind="out_of_memory", message="no memory", infrastructure=False)
PORT = Failure(kind="port", message="port taken", infrastructure=True)


def made_search(
    space: ResolvedSpace | None = None,
    *,
    objective: str = "throughput",
    slo: tuple[str, ...] = (),
    temperature_range: tuple[float, float] | None = None,
    seed: int = 0,
) -> Search:
    return Search(
        space or resolved_space(),
        objective=parse_objective(objective),
        slos=parse_slos(slo),
        temperature_range=temperature_range,
        seed=seed,
    )


def value_of(values: dict[str, Scalar]) -> float:
    """A made-up engine: K=7 is best, the cache helps a little."""
    if values.get("method") != "dflash":
        return 100.0
    k = values["num_speculative_tokens"]
    assert isinstance(k, int)
    return 200.0 - 5 * abs(k - 7) + (5.0 if values.get("prefix_caching") else 0.0)


def run(
    search: Search, space: ResolvedSpace, count: int, records: list[TrialRecord] | None = None
) -> list[TrialRecord]:
    done = list(records or [record(0, "baseline", space.baseline(), measurement("code", 100), space=space)])
    for _ in range(count):
        values = search.propose("code", done)
        assert values is not None
        number = len(done)
        done.append(record(number, f"search/{number}", values, measurement("code", value_of(values)), space=space))
    return done


def ids(records: list[TrialRecord]) -> list[str]:
    return [r.plan.serve_config.id for r in records]


def test_the_same_records_give_the_same_proposal() -> None:
    space = resolved_space()
    records = run(made_search(space), space, 3)
    assert made_search(space).propose("code", records) == made_search(space).propose("code", records)


def test_another_seed_searches_elsewhere() -> None:
    space = resolved_space()
    assert ids(run(made_search(space, seed=0), space, 6)) != ids(run(made_search(space, seed=1), space, 6))


def test_a_resumed_search_goes_on_as_the_undisturbed_one() -> None:
    space = resolved_space()
    undisturbed = run(made_search(space), space, 14)
    begun = [TrialRecord.model_validate_json(r.model_dump_json()) for r in undisturbed[:9]]
    assert ids(undisturbed) == ids(run(made_search(space), space, 6, begun))


def test_no_configuration_is_proposed_twice_and_a_finished_space_ends_the_search() -> None:
    knobs = dict(resolved_space().knobs)
    small = SearchSpace(name="small", knobs=knobs | {"num_speculative_tokens": _k(3, 7)})
    space = resolve(small)
    search = made_search(space)
    # none with and without the cache; K of 3 or 7 with the cache (block drop on or off) and without.
    records = run(search, space, 7)
    assert len(set(ids(records))) == 8
    assert search.propose("code", records) is None


def _k(*choices: int) -> Knob:
    return (
        resolved_space()
        .knobs["num_speculative_tokens"]
        .model_copy(update={"low": None, "high": None, "choices": choices})
    )


def test_refused_configurations_are_never_proposed() -> None:
    space = resolved_space("dflash")
    search = made_search(space)
    records = run(search, space, 12)
    assert [space.refusal(r.values()) for r in records] == [None] * 13
    # The space does hold many that are refused: K=15 with 256 sequences, for one.
    assert space.refusal(space.complete(dflash(15, max_num_seqs=256))) is not None


KNOBS = resolved_space("dflash").tunable()
SOME_VALUES = st.fixed_dictionaries({name: st.sampled_from(knob.values()) for name, knob in KNOBS.items()})


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    past=st.lists(st.tuples(SOME_VALUES, st.one_of(st.none(), st.floats(1, 1000))), max_size=6),
    seed=st.integers(0, 2**31),
)
def test_whatever_was_measured_a_proposal_is_new_and_allowed(
    past: list[tuple[dict[str, Scalar], float | None]], seed: int
) -> None:
    space = resolved_space("dflash")
    records = [record(0, "baseline", space.baseline(), measurement("code", 100), space=space)]
    for values, value in past:
        rows = [] if value is None else [measurement("code", value)]
        records.append(
            record(len(records), f"search/{len(records)}", values, *rows, space=space, failure=None if rows else OOM)
        )
    proposed = made_search(space, seed=seed).propose("code", records)
    assert proposed is not None
    assert space.refusal(space.complete(proposed)) is None
    assert space.serve_config(proposed).id not in ids(records)


def test_the_search_beats_chance_on_a_smooth_space() -> None:
    space = resolved_space()
    for seed in range(3):
        records = run(made_search(space, seed=seed), space, 16)
        assert max(value_of(r.values()) for r in records) >= 195


def exported(tmp_path: Path, search: Search, records: list[TrialRecord]) -> optuna.Study:
    path = tmp_path / "study.db"
    search.export_studies(path, ["code"], records)
    return optuna.load_study(study_name="code", storage=f"sqlite:///{path}")


@pytest.mark.parametrize("objective", ["throughput", "latency"])
def test_a_crash_teaches_and_never_becomes_the_best(tmp_path: Path, objective: str) -> None:
    search = made_search(objective=objective)
    metric = parse_objective(objective).metric
    records = [
        record(0, "baseline", {"method": "none"}, measurement("code", 1.0, metric=metric)),
        record(1, "recipe", dflash(15), failure=OOM),
        record(2, "search/0", dflash(7), measurement("code", 2.0, metric=metric)),
    ]
    study = exported(tmp_path, search, records)
    states = [t.state for t in study.trials]
    assert states == [optuna.trial.TrialState.COMPLETE] * 3
    assert [t.constraints["launch"] for t in study.trials] == [-1.0, 1.0, -1.0]
    best = {"throughput": 2, "latency": 0}[objective]
    assert study.best_trial.user_attrs["trial"] == best


def test_a_crash_alone_beside_the_baseline_does_not_win(tmp_path: Path) -> None:
    records = [
        record(0, "recipe", dflash(15), failure=OOM),
        record(1, "baseline", {"method": "none"}, measurement("code", 1.0)),
    ]
    assert exported(tmp_path, made_search(), records).best_trial.user_attrs["trial"] == 1


def test_what_did_not_speculate_is_told_whatever_the_search_does_with_k(tmp_path: Path) -> None:
    space = resolve(
        SearchSpace(name="small", knobs=dict(resolved_space().knobs) | {"num_speculative_tokens": _k(3, 7)})
    )
    records = [record(0, "baseline", space.baseline(), measurement("code", 1.0), space=space)]
    (told,) = exported(tmp_path, made_search(space), records).trials
    assert told.params["method"] == "none"


def test_an_engine_s_default_outside_the_space_is_not_passed_off_as_a_value_of_it(tmp_path: Path) -> None:
    knobs = dict(resolved_space("dflash").knobs)
    knobs["max_num_seqs"] = Knob(low=1, high=8, flag="max-num-seqs")
    space = resolve(SearchSpace(name="small", knobs=knobs))
    records = [record(0, "baseline", space.baseline(), measurement("code", 1.0), space=space)]
    assert exported(tmp_path, made_search(space), records).trials == []


def test_a_violated_slo_is_a_constraint_on_every_trial(tmp_path: Path) -> None:
    search = made_search(slo=("ttft_p99=100ms",))
    records = [
        record(0, "baseline", {"method": "none"}, measurement("code", 1.0, ttft_p99_s=0.05)),
        record(1, "search/0", dflash(7), measurement("code", 9.0, ttft_p99_s=0.2)),
        record(2, "search/1", dflash(3), failure=OOM),
    ]
    study = exported(tmp_path, search, records)
    assert [set(t.constraints) for t in study.trials] == [{"launch", "slo/ttft_p99_s"}] * 3
    assert [t.constraints["slo/ttft_p99_s"] for t in study.trials] == pytest.approx([-0.5, 1.0, 1.0])
    assert study.best_trial.user_attrs["trial"] == 0


def test_what_the_infrastructure_spoilt_what_is_invalid_and_the_confirmation_are_not_told(tmp_path: Path) -> None:
    records = [
        record(0, "baseline", {"method": "none"}, measurement("code", 1.0)),
        record(1, "search/0", dflash(7), failure=PORT),
        record(2, "search/1", dflash(3), measurement("code", 99.0, problems=("starved",))),
        record(3, "confirm/0/x/0", dflash(5), measurement("code", 99.0)),
    ]
    assert [t.user_attrs["trial"] for t in exported(tmp_path, made_search(), records).trials] == [0]


def test_exporting_again_adds_only_what_is_new(tmp_path: Path) -> None:
    search = made_search()
    records = [record(0, "baseline", {"method": "none"}, measurement("code", 1.0))]
    exported(tmp_path, search, records)
    records.append(record(1, "search/0", dflash(7), measurement("code", 2.0)))
    for _ in range(2):
        study = exported(tmp_path, search, records)
        assert [t.user_attrs["trial"] for t in study.trials] == [0, 1]


def test_a_temperature_is_searched_in_its_range_and_not_repeated() -> None:
    space = resolved_space()
    search = made_search(space, temperature_range=(0.2, 0.6))
    records = [record(0, "baseline", space.baseline(), measurement("code", 100), space=space)]
    for number in range(1, 12):
        values = search.propose("code", records)
        assert values is not None
        temperature = values.pop("temperature")
        assert isinstance(temperature, float)
        assert 0.2 <= temperature <= 0.6
        made = measurement("code", value_of(values))
        records.append(record(number, f"search/{number}", values, made, space=space, temperature=temperature))
    seen = [(r.plan.serve_config.id, r.plan.temperature) for r in records]
    assert len(set(seen)) == len(seen)
