"""The steps of a study, run on a table: what is launched, when it ends, what is confirmed."""

import asyncio
import math
import re
from collections.abc import Mapping

import pytest

from search_spaces import Scalar
from tests.unit.tuner.made import CODE, dflash, measurement, record, resolved_space, rules
from tuner.conditions import Condition
from tuner.errors import NoEngineError
from tuner.flow import Flow, Task
from tuner.predict import length_of
from tuner.records import Failure, Measurement, TrialPlan, TrialRecord
from tuner.search.warm_start import Hint, read_hints, starting_points
from tuner.trade_offs import SCHEDULE_KNOB, compromise, schedule
from workloads import Load

OOM = Failure(kind="oom_kv", message="no memory", infrastructure=False)
SPACE = resolved_space()
LOW, HIGH = (Condition(f"code/c{n}", "code", None, Load("concurrency", float(n))) for n in (1, 32))


def speed(condition: str, values: Mapping[str, Scalar]) -> float:
    """Long drafts win alone, short ones in a crowd."""
    k = values.get("num_speculative_tokens") if values.get("method") == "dflash" else 0
    assert isinstance(k, int)
    best = 3 if condition.endswith("c32") else 12
    return 300.0 * math.exp(-((k - best) ** 2) / 90)


class Imagined(Flow):
    """A study whose engines are `speed`, dying where asked."""

    def __init__(self, *, conditions: tuple[Condition, ...] = (LOW, HIGH), trials: int = 20, **more: object) -> None:
        self.dead: set[str] = set()
        task = Task(
            space=SPACE,
            conditions=conditions,
            baseline=SPACE.serve_config(SPACE.baseline()),
            objective=rules().objective,
            slos=(),
            temperature_range=None,
            rules=rules(),
            trials=trials,
            rounds=2,
            finalists=1,
            seed=0,
            budget_s=None,
            **more,  # type: ignore[arg-type]  # fields of Task, named by the tests
        )
        self.said: list[str] = []
        super().__init__(task, self.said.append)

    def measured(self, condition: str, values: Mapping[str, Scalar]) -> Measurement:
        return measurement(condition, speed(condition, values))

    async def run(self, trial: TrialPlan) -> TrialRecord:
        values = trial.serve_config.values
        measured = [self.measured(key, values) for key in trial.conditions]
        dead = trial.step in self.dead
        made = record(
            trial.number, trial.step, values, *([] if dead else measured), failure=OOM if dead else None, space=SPACE
        )
        return made.model_copy(update={"plan": trial})

    def why_no_baseline(self, record: TrialRecord) -> str:
        return f"dead: {record.status}"

    def steps(self) -> list[str]:
        return [r.plan.step for r in self.records]


class Observed(Imagined):
    """With what the prediction reads: drafts are accepted at 0.8 of every position."""

    def measured(self, condition: str, values: Mapping[str, Scalar]) -> Measurement:
        k, made = length_of(values, "dflash"), super().measured(condition, values)
        assert k is not None
        seen = {"running_mean": 1.0, "ttft_mean_s": 0.01, "completion_tokens": 800.0, "requests": 8.0}
        seen |= {"tpot_mean_s": 1 / made.metrics["output_tok_s"]}
        seen |= {f"accepted_at_{i:02d}": 0.8 for i in range(1, k + 1)}
        return made.model_copy(update={"metrics": {**made.metrics, **seen}})


async def whole(flow: Flow) -> None:
    await flow.measure_baseline()
    await flow.measure_starting_points()
    await flow.search()
    await flow.confirm()


@pytest.mark.slow
def test_a_search_ends_by_itself_near_the_best_of_every_condition_and_repeats_nothing() -> None:
    flow = Imagined(trials=60)
    asyncio.run(whole(flow))
    searched = [r for r in flow.records if r.plan.phase != "confirm"]
    assert len(searched) < 30
    assert len({r.plan.serve_config.id for r in searched}) == len(searched)
    for key in ("code/c1", "code/c32"):
        assert max(speed(key, r.values()) for r in searched) >= 0.98 * 300


@pytest.mark.slow
def test_confirmation_is_interleaved_with_the_baseline_and_has_one_config_for_all_conditions() -> None:
    flow = Imagined()
    asyncio.run(whole(flow))
    confirmed = [r.plan for r in flow.records if r.plan.phase == "confirm"]
    first, second = ([p.serve_config.id for p in confirmed if p.step.startswith(f"confirm/{n}/")] for n in (0, 1))
    assert first == second[::-1]
    assert first[0] == flow.task.baseline.id
    shared = [p for p in confirmed if set(p.conditions) == {"code/c1", "code/c32"} and p.serve_config.id != first[0]]
    assert shared


def test_the_study_says_how_far_off_a_predicted_length_was_once_and_only_when_it_was_new() -> None:
    flow = Observed()
    asyncio.run(measured_starting_points(flow))
    told = [line for line in flow.said if line.startswith("predicted")]
    lengths = [line.split()[1] for line in told]
    assert told
    assert len(set(lengths)) == len(lengths)
    assert "K=15:" not in lengths  # the recipe, which nothing could predict
    for line in told:
        assert re.fullmatch(r"predicted   K=\d+: output_tok_s off by [+-]\d+% \(code/c1\), [+-]\d+% \(code/c32\)", line)


async def measured_starting_points(flow: Flow) -> None:
    await flow.measure_baseline()
    await flow.measure_starting_points()


def test_a_study_without_its_baseline_ends() -> None:
    flow = Imagined()
    flow.dead.add("baseline")
    with pytest.raises(NoEngineError, match="dead"):
        asyncio.run(flow.measure_baseline())


@pytest.mark.slow
def test_a_dead_starting_point_does_not_end_the_search() -> None:
    flow = Imagined(trials=16)
    flow.dead |= {"recipe", "seed/0"}
    asyncio.run(whole(flow))
    assert max(speed("code/c1", r.values()) for r in flow.records) > 0.9 * 300


def searched() -> list[TrialRecord]:
    records = []
    tried: list[dict[str, Scalar]] = [{"method": "none"}, dflash(12), dflash(7), dflash(3)]
    for number, values in enumerate(tried):
        step = "baseline" if not number else f"search/{number}"
        rows = [measurement(c.key, speed(c.key, values)) for c in (LOW, HIGH)]
        records.append(record(number, step, values, *rows, space=SPACE))
    return records


def test_the_compromise_loses_least_where_it_loses_most() -> None:
    found = compromise(("code/c1", "code/c32"), searched(), rules(), {})
    assert found is not None
    assert found.values()["num_speculative_tokens"] == 7


def test_a_schedule_has_the_winner_of_each_concurrency_up_to_the_middle_between_them() -> None:
    values = schedule((LOW, HIGH), searched(), rules(), SPACE, {})
    assert values is not None
    assert (values["num_speculative_tokens"], values[SCHEDULE_KNOB]) == (12, "1-5:12,6-1024:3")
    assert schedule((CODE,), searched(), rules(), SPACE, {}) is None


@pytest.mark.slow
def test_an_earlier_study_is_tried_first_and_never_believed() -> None:
    old = [
        record(0, "baseline", {"method": "none"}, measurement("code/c1", 10.0)),
        record(1, "search/0", dflash(1), measurement("code/c1", 90.0)),  # false here: K=1 is poor
        record(2, "search/1", dflash(2), measurement("code/c1", 5.0)),
    ]
    hints = read_hints(old, rules().objective)
    assert [hint.values["num_speculative_tokens"] for hint in hints] == [1, 2]
    assert [point["num_speculative_tokens"] for point in starting_points(hints, SPACE)] == [1]
    flow = Imagined(conditions=(LOW,), trials=16, hints=hints)
    asyncio.run(whole(flow))
    assert "seed/warm/0" in flow.steps()
    assert max(speed("code/c1", r.values()) for r in flow.records) >= 0.98 * 300
    assert starting_points([Hint({"method": "dflash", "num_speculative_tokens": 99}, None, {"x": 1.0})], SPACE) == []
