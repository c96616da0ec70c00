"""What the command line's values mean, and that a wrong one is refused with the option's name."""

import importlib
import inspect
from typing import Any

import pytest

from tuner.cli import COMMANDS
from tuner.commands.options import parse_duration, parse_env
from tuner.conditions import TemperaturePlan, parse_temperature, plan_conditions
from tuner.config import build_config
from tuner.errors import UsageError
from tuner.objective import parse_objective, parse_slos
from workloads import Profile, Request


@pytest.mark.parametrize(
    ("text", "metric", "direction"),
    [
        ("throughput", "output_tok_s", "maximize"),
        ("latency", "e2e_p90_s", "minimize"),
        ("tpot_p50", "tpot_p50_s", "minimize"),
        ("chunk_gap_mean", "chunk_gap_mean_s", "minimize"),
    ],
)
def test_an_objective_names_a_metric_and_its_better_direction(text: str, metric: str, direction: str) -> None:
    objective = parse_objective(text)
    assert (metric, direction) == (objective.metric, objective.direction)


def test_a_gain_is_above_one_when_better_whatever_the_direction() -> None:
    assert parse_objective("throughput").gain(20, 10) == 2.0
    assert parse_objective("latency").gain(10, 20) == 2.0
    assert parse_objective("throughput").better(2, 1)
    assert parse_objective("latency").better(1, 2)


@pytest.mark.parametrize("text", ["", "speed", "ttft", "ttft_p95", "itl_p50", "p50_ttft", "throughput "])
def test_an_unknown_objective_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--objective"):
        parse_objective(text)


@pytest.mark.parametrize(
    ("text", "metric", "limit_s"),
    [
        ("ttft_p99=500ms", "ttft_p99_s", 0.5),
        (" e2e_p90 = 3s ", "e2e_p90_s", 3.0),
        ("tpot_mean=12.5ms", "tpot_mean_s", 0.0125),
        ("chunk_gap_p50=1s", "chunk_gap_p50_s", 1.0),
    ],
)
def test_an_slo_is_a_limit_in_seconds(text: str, metric: str, limit_s: float) -> None:
    (slo,) = parse_slos((text,))
    assert (metric, limit_s, f"slo/{metric}") == (slo.metric, slo.limit_s, slo.name)


@pytest.mark.parametrize(
    "text", ["", "ttft_p99", "ttft_p99=500", "ttft_p99=ms", "ttft_p99=1.2.3ms", "ttft_p99=-1ms", "ttft_p99=0ms",
             "ttft_p99=...s", "ttft=1s", "output_tok_s=1s", "ttft_p99<1s", "ttft_p99=1h"],
)  # fmt: skip
def test_what_is_no_slo_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--slo"):
        parse_slos((text,))


def test_a_violation_is_measured_over_limit_and_the_unmeasured_counts_as_violated() -> None:
    (slo,) = parse_slos(("ttft_p99=500ms",))
    assert [slo.violation({"ttft_p99_s": value}) for value in (0.25, 0.5, 1.0)] == [-0.5, 0.0, 1.0]
    assert [slo.violation({}), slo.violation({"ttft_p99_s": float("nan")})] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("recorded", TemperaturePlan((None,))),
        ("0", TemperaturePlan((0.0,))),
        ("0,0.6,1.0", TemperaturePlan((0.0, 0.6, 1.0))),
        ("2", TemperaturePlan((2.0,))),
        ("search", TemperaturePlan((None,), (0.0, 1.0))),
        ("search:0.2-0.9", TemperaturePlan((None,), (0.2, 0.9))),
    ],
)
def test_temperatures(text: str, plan: TemperaturePlan) -> None:
    assert plan == parse_temperature(text)


@pytest.mark.parametrize(
    "text", ["", "hot", "0,", "0,0", "-0.1", "2.1", "nan", "inf", "search:", "search:0.5", "search:1-0",
             "search:0.5-0.5", "search:0-3", "search:0.1.2-1", "0;1"],
)  # fmt: skip
def test_what_is_no_temperature_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--temperature"):
        parse_temperature(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("45m", 2700), ("2h", 7200), ("1.5h", 5400), (" 5 m ", 300), ("0.5s", 0.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds == parse_duration("--budget", text)


@pytest.mark.parametrize("text", ["", "5", "h", "0s", "-1h", "1d", "1h30m", ".5h", "1.h", "1e3s", "nanh"])
def test_what_is_no_duration_is_refused_under_the_option_s_name(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--budget '"):
        parse_duration("--budget", text)


def test_environment_pairs() -> None:
    assert parse_env(["A=1", "B_2=", "C=x=y", "D=a b\nc"]) == {"A": "1", "B_2": "", "C": "x=y", "D": "a b\nc"}


@pytest.mark.parametrize("pair", ["A", "=1", "1A=1", "A-B=1", "A B=1", "A\nB=1", ""])
def test_what_is_no_environment_pair_is_refused(pair: str) -> None:
    with pytest.raises(UsageError, match="--engine-env"):
        parse_env([pair])


GOOD: dict[str, Any] = {"workload": "w.jsonl", "model": "m", "engine_argv": ("vllm", "serve"), "study": "s"}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("trials", 1), ("rounds", 1), ("finalists", 0), ("blocks", 1), ("requests", 1), ("held_out", 0),
        ("held_out", 1), ("confidence", 0.5), ("confidence", 1), ("seed", -1), ("budget_s", 0), ("max_bad_share", 1.1),
        ("study", ""), ("study", "../x"), ("study", "a/b"), ("study", ".hidden"), ("study", "-x"), ("study", "x" * 101),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_under_the_option_s_name(option: str, value: object) -> None:
    with pytest.raises(UsageError) as refused:
        build_config(**{**GOOD, option: value})
    assert str(refused.value).startswith(f"--{option.replace('_', '-')}: ")
    assert repr(value)[:100] in str(refused.value)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(UsageError, match="--trails"):
        build_config(**GOOD, trails=3)


def profile(name: str, *, timed: bool = True) -> Profile:
    request = Request(
        id="r",
        offset_s=0.0 if timed else None,
        endpoint="/v1/completions",
        body={},
        route=None,
        session=None,
        tags={},
        recorded=None,
        line=1,
    )
    return Profile(name=name, requests=(request,))


def test_conditions_have_short_names_where_there_is_one_temperature_and_one_load() -> None:
    conditions = plan_conditions((profile("code"), profile("chat")), TemperaturePlan((None,)), "concurrency=2")
    assert [c.key for c in conditions] == ["code", "chat"]


def test_conditions_cross_profiles_temperatures_and_loads() -> None:
    conditions = plan_conditions((profile("code"),), TemperaturePlan((0.0, 0.6)), "concurrency=1,8")
    assert [c.key for c in conditions] == ["code/t0/c1", "code/t0/c8", "code/t0.6/c1", "code/t0.6/c8"]
    assert [(c.temperature, str(c.load)) for c in conditions[1:3]] == [(0.0, "concurrency=8"), (0.6, "concurrency=1")]


def test_recorded_load_without_timestamps_is_refused_with_the_way_out() -> None:
    with pytest.raises(UsageError, match="'chat' has no timestamps; use --load concurrency=N or rate=R"):
        plan_conditions((profile("code"), profile("chat", timed=False)), TemperaturePlan((None,)), "recorded")


def test_a_malformed_load_is_refused_under_the_option_s_name() -> None:
    with pytest.raises(UsageError, match="--load"):
        plan_conditions((profile("code"),), TemperaturePlan((None,)), "concurrency=0")


def test_a_secret_in_the_engine_s_environment_is_refused_because_exports_would_show_it() -> None:
    with pytest.raises(UsageError, match="HF_TOKEN") as raised:
        parse_env(["HF_TOKEN=hf_secret"])
    assert "hf_secret" not in str(raised.value)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads_and_says_of_itself_what_the_list_says(name: str) -> None:
    function = "list_studies" if name == "list" else name
    command = getattr(importlib.import_module(f"tuner.commands.{function}"), function)
    assert (inspect.getdoc(command) or "").partition("\n")[0] == COMMANDS[name]
