"""Engines that fail, answers that are refused, and the ways to drive a study that the complete one does not take."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import mlflow
import optuna
import pytest
import yaml

from tests.integration.study_desk import Desk, engines_of, line, run_tune, write_workload
from tuner.store import Store

# Seconds on idle cores; minutes where something else has them.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "runs"
    assert engines_of(tmp_path / "runs", "s") == []


def test_a_baseline_that_cannot_start_ends_at_once_with_the_reason(desk: Desk, out: Path) -> None:
    ended = run_tune(*desk.options("s", out), "--no-tracking", env={"SIMULATED_FAULTS": "oom_if=max_num_seqs>=1"})
    assert ended.returncode == 3
    assert ended.stderr.startswith("tune: the baseline cannot be measured: ")
    assert "memory" in ended.stderr
    assert str(out / "s" / "trials" / "000" / "engine.log") in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert [d.name for d in (out / "s" / "trials").iterdir()] == ["000"]
    (record,) = Store.open(out, "s").records()
    assert record.failure is not None
    assert (record.status, record.failure.infrastructure, record.measurements) == ("rejected", False, {})


@pytest.mark.slow
def test_an_engine_that_never_becomes_ready_ends_after_the_time_that_was_set(desk: Desk, out: Path) -> None:
    ended = run_tune(
        *desk.options("s", out, ready_timeout="3s"), "--no-tracking", env={"SIMULATED_FAULTS": "never_ready"}
    )
    assert ended.returncode == 3
    assert "not ready after 3 s" in ended.stderr


@pytest.mark.slow
def test_after_the_cause_is_mended_a_failed_baseline_is_tried_again(desk: Desk, out: Path) -> None:
    words = [*desk.options("s", out, trials="2", profile_by="none"), "--no-tracking"]
    assert run_tune(*words, env={"SIMULATED_FAULTS": "exit_at_start"}).returncode == 3
    resumed = run_tune("resume", "s", "--out", str(out))
    assert resumed.returncode == 0, resumed.stderr
    assert Store.open(out, "s").records()[0].status == "measured"


FAULT_AT_K_15 = """\
import os, sys
if any('"num_speculative_tokens": 15' in word for word in sys.argv):
    os.environ["SIMULATED_FAULTS"] = {fault!r}
os.execv(sys.executable, [sys.executable, "-P", "-m", *sys.argv[1:]])
"""


def engine_with_a_fault_at_k_15(directory: Path, fault: str) -> str:
    """An engine command that fails on purpose when the recipe's K is asked for."""
    wrapper = directory / "engine.py"
    wrapper.write_text(FAULT_AT_K_15.format(fault=fault), encoding="utf-8")
    return f"{sys.executable} {wrapper} runners.simulated serve"


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["die_after=6", "exit_at_start", "drop_rate=1"])
def test_a_candidate_that_fails_costs_its_trial_and_not_the_study(
    desk: Desk, out: Path, tmp_path: Path, fault: str
) -> None:
    command = engine_with_a_fault_at_k_15(tmp_path, fault)
    words = desk.options("s", out, engine_command=command, trials="3", profile_by="none")
    ended = run_tune(*words, "--no-tracking")
    assert ended.returncode == 0, ended.stderr
    store = Store.open(out, "s")
    recipe = store.records()[1]
    assert recipe.plan.serve_config.label() == "dflash K=15"
    assert recipe.failure is not None
    assert (recipe.status, recipe.failure.infrastructure) == ("rejected", False)
    assert [r.plan.step for r in store.records()][2] == "search/0"
    study = optuna.load_study(study_name="all", storage=f"sqlite:///{out / 's' / 'study.db'}")
    (told,) = [t for t in study.trials if t.user_attrs["trial"] == 1]
    assert told.state == optuna.trial.TrialState.COMPLETE
    assert told.constraints["launch"] > 0
    assert not [r for r in store.records()[3:] if r.plan.serve_config.id == recipe.plan.serve_config.id]


@pytest.mark.slow
def test_changed_outputs_are_refused(desk: Desk, out: Path, tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text(
        "name: two\nextends: quick\nknobs:\n  num_speculative_tokens: {choices: [15]}\n"
        "  disable_eagle_block_drop: {remove: true}\n  prefix_caching: {remove: true}\nseeds: []\n",
        encoding="utf-8",
    )
    workload = write_workload(tmp_path / "greedy.jsonl", [line(n, "code") for n in range(12)])
    words = desk.options("s", out, workload=str(workload), space=str(space), trials="2")
    ended = run_tune(*words, "--no-tracking", env={"SIMULATED_FAULTS": "wrong_output"})
    assert ended.returncode == 0, ended.stderr
    store = Store.open(out, "s")
    baseline, recipe = (r.measurements["code"].greedy_outputs for r in store.records()[:2])
    assert baseline.keys() == recipe.keys()
    assert baseline != recipe
    (answer,) = store.recommendations()
    assert (answer.verdict, answer.serve_config.label()) == ("no reliable gain", "no speculation")
    # On a host too busy for a valid confirmation there is nothing to compare, and nothing to recommend either.
    if answer.output_check is not None:
        assert answer.output_check.verdict == "changed"
        assert "changed the output" in answer.reason


@pytest.mark.slow
def test_an_slo_that_nothing_meets_ends_with_its_own_code_and_a_finished_study(desk: Desk, out: Path) -> None:
    words = desk.options("s", out, slo="ttft_p99=1ms", trials="2", profile_by="none")
    ended = run_tune(*words, "--no-tracking")
    assert ended.returncode == 5
    assert ended.stderr == (
        "tune: no measured configuration meets the SLO for all; relax --slo or widen the search space\n"
    )
    (answer,) = Store.open(out, "s").recommendations()
    assert (answer.slo_met, answer.serve_config.label()) == (False, "no speculation")


@pytest.mark.slow
def test_temperatures_are_conditions_with_an_answer_each_under_recorded_load_and_own_baseline(
    desk: Desk, out: Path, tmp_path: Path
) -> None:
    baseline = tmp_path / "mine.yaml"
    own = {"max-num-seqs": 64, "enable-prefix-caching": False, "model": "ignored", "port": 1}
    baseline.write_text(yaml.safe_dump(own), encoding="utf-8")
    words = desk.options(
        "s", out, temperature="0,0.9", load="recorded*2", baseline=str(baseline), trials="2", profile_by="none"
    )
    ended = run_tune(*words, "--no-tracking")
    assert ended.returncode == 0, ended.stderr
    store = Store.open(out, "s")
    first, recipe = store.records()[:2]
    argv = first.plan.serve_config.to_argv()
    assert argv[argv.index("--max-num-seqs") + 1] == "64"
    assert "--no-enable-prefix-caching" in argv
    assert "--port" not in argv
    assert set(first.measurements) == {"all/t0", "all/t0.9"}
    assert [m.temperature for m in first.measurements.values()].count(0.0) == 1
    assert {m.load for m in first.measurements.values()} == {"recorded*2"}
    assert first.measurements["all/t0"].greedy_outputs
    assert not first.measurements["all/t0.9"].greedy_outputs
    accepted = {c: m.metrics["acceptance_length"] for c, m in recipe.measurements.items()}
    assert accepted["all/t0"] > accepted["all/t0.9"]
    assert {a.condition for a in store.recommendations()} == {"all/t0", "all/t0.9"}


@pytest.mark.slow
def test_a_searched_temperature_is_a_parameter_of_the_study_and_a_caveat(desk: Desk, out: Path) -> None:
    words = desk.options("s", out, temperature="search:0.2-0.8", load="rate=8", trials="9", profile_by="none")
    ended = run_tune(*words, "--no-tracking")
    assert ended.returncode == 0, ended.stderr
    store = Store.open(out, "s")
    searched = [r for r in store.records() if r.plan.phase == "search"]
    assert searched
    assert all(r.plan.temperature is not None and 0.2 <= r.plan.temperature <= 0.8 for r in searched)
    assert [m.temperature for r in searched for m in r.measurements.values()] == [r.plan.temperature for r in searched]
    study = optuna.load_study(study_name="all", storage=f"sqlite:///{out / 's' / 'study.db'}")
    told = {t.user_attrs["trial"]: t.params["temperature"] for t in study.trials}
    assert {r.plan.number: r.plan.temperature for r in searched}.items() <= told.items()
    (answer,) = store.recommendations()
    changes = answer.verdict == "change"
    assert changes == any("temperature was part of the search" in caveat for caveat in answer.caveats)


@pytest.mark.slow
def test_a_study_goes_on_without_mlflow_and_catches_up_afterwards(desk: Desk, out: Path, tmp_path: Path) -> None:
    database = tmp_path / "later" / "mlflow.db"
    uri = f"sqlite:///{database}"
    blocked = tmp_path / "later"
    blocked.touch()  # a file where MLflow needs a directory
    words = desk.options("s", out, tracking_uri=uri, trials="2", profile_by="none")
    ended = run_tune(*words)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count(f"MLflow at {uri} failed") == 1
    assert "catch up with `tune sync s`" in ended.stdout
    records = Store.open(out, "s").records()

    refused = run_tune("sync", "s", "--out", str(out))
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"tune: MLflow at {uri}: ")
    blocked.unlink()
    blocked.mkdir()
    for _ in range(2):
        synced = run_tune("sync", "s", "--out", str(out))
        assert (synced.returncode, synced.stderr) == (0, "")
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("dflash-tuner/target")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(r.data.tags.get("trial", "-1") for r in runs) == ["-1", *(str(r.plan.number) for r in records)]
    assert {r.info.status for r in runs} == {"FINISHED"}


@pytest.mark.slow
def test_a_run_that_a_killed_tuner_began_in_mlflow_is_not_logged_twice(desk: Desk, out: Path) -> None:
    ended = run_tune(*desk.options("s", out, trials="2", profile_by="none"))
    assert ended.returncode == 0, ended.stderr
    remembered = out / "s" / "mlflow.json"
    runs = json.loads(remembered.read_text(encoding="utf-8"))
    forgotten = {name: runs[name] for name in ("parent", "trial/1")}
    # What is on disk when the tuner is killed after MLflow has made a run and before its id is written down.
    remembered.write_text(json.dumps({k: v for k, v in runs.items() if k not in forgotten}), encoding="utf-8")
    assert run_tune("sync", "s", "--out", str(out)).returncode == 0
    again = json.loads(remembered.read_text(encoding="utf-8"))
    assert again == runs
