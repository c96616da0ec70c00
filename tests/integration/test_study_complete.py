"""One complete study on simulated engines: what it leaves on disk, in Optuna's, in MLflow and on the terminal."""

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mlflow
import optuna
import pytest
import yaml
from mlflow.entities import Run

from tests.integration.study_desk import CHAT, FinishedStudy, engines_of, run_tune, write_workload
from tuner.records import Recommendation

WRITTEN = {"recommendation.json", "serve.sh", "serve.yaml", "compose.yaml", "kubernetes.yaml"}
CONDITIONS = ["code", CHAT]
# The first test waits for the study: seconds on idle cores, minutes where something else has them.
# The study that all of them look at takes half a minute.
pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]


def answers(study: FinishedStudy) -> dict[str, Recommendation]:
    return {answer.condition: answer for answer in study.store().recommendations()}


def test_it_ends_well_and_leaves_no_engine(finished: FinishedStudy) -> None:
    assert (finished.returncode, finished.stderr) == (0, "")
    assert engines_of(finished.out, finished.study) == []


def test_baseline_and_recipe_come_first_then_the_search_then_interleaved_confirmation(finished: FinishedStudy) -> None:
    records = finished.store().records()
    steps = [r.plan.step for r in records]
    assert steps[:4] == ["baseline", "recipe", "seed/gap/0", "seed/gap/1"]
    assert [r.plan.number for r in records] == list(range(len(records)))
    assert records[0].plan.serve_config.label() == "no speculation"
    assert records[1].plan.serve_config.label() == "dflash K=15"
    confirmed = [r.plan.serve_config.id for r in records[4:]]
    half = len(confirmed) // 2
    assert half >= 2
    assert confirmed[:half] == confirmed[half:][::-1]
    assert confirmed[0] == records[0].plan.serve_config.id


def test_every_trial_measured_its_conditions_and_kept_its_engine_s_log(finished: FinishedStudy) -> None:
    store = finished.store()
    for record in store.records():
        assert (record.status, record.failure) == ("measured", None)
        assert set(record.measurements) == set(record.plan.conditions)
        assert record.measurements == store.measurements(record.plan.number)
        log = store.trial_directory(record.plan.number) / "engine.log"
        assert "Application startup complete" in log.read_text(encoding="utf-8")


def test_confirmation_replays_what_the_search_did_not_see(finished: FinishedStudy) -> None:
    for record in finished.store().records():
        part = "held_out" if record.plan.phase == "confirm" else "search"
        assert {m.part for m in record.measurements.values()} == {part}
    greedy: dict[str, set[str]] = {"search": set(), "held_out": set()}
    for record in finished.store().records():
        for measured in record.measurements.values():
            greedy[measured.part] |= set(measured.greedy_outputs)
    assert greedy["search"]
    assert greedy["held_out"]
    assert not greedy["search"] & greedy["held_out"]


def test_measurements_count_the_tokens_that_were_asked_for(finished: FinishedStudy) -> None:
    baseline = finished.store().records()[0]
    metrics = baseline.measurements["code"].metrics
    assert (metrics["requests"], metrics["failed"]) == (6.0, 0.0)
    assert 0 < metrics["completion_tokens"] <= 6 * 32
    assert "acceptance_rate" not in metrics
    assert finished.store().records()[1].measurements["code"].metrics["acceptance_length"] > 2


def test_no_prompt_and_no_output_is_on_disk(finished: FinishedStudy) -> None:
    texts = [
        path.read_text(encoding="utf-8", errors="replace")
        for path in finished.directory.rglob("*")
        if path.is_file() and path.suffix in {".json", ".yaml", ".sh", ".log"}
    ]
    assert texts
    assert not [text for text in texts if "def task_" in text or "Tell me about" in text]


def test_code_is_told_to_change_with_an_interval_above_one(finished: FinishedStudy) -> None:
    answer = answers(finished)["code"]
    assert answer.verdict == "change", answer.reason
    assert answer.effect is not None
    assert 1 < answer.effect.low < answer.effect.gain < answer.effect.high
    assert answer.effect.pairs == 6
    assert answer.output_check is not None
    assert (answer.output_check.verdict, answer.simulated) == ("identical", True)
    assert {finished.store().records()[n].plan.phase for n in answer.trials} == {"confirm"}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_exports_say_what_the_recommendation_says(finished: FinishedStudy, condition: str) -> None:
    answer = answers(finished)[condition]
    directory = finished.directory / "recommended" / condition
    assert {p.name for p in directory.iterdir()} == WRITTEN
    text = (directory / "serve.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text) == yaml.safe_load(answer.serve_config.to_yaml())
    assert "SIMULATED" in text
    assert "SIMULATED" in (directory / "serve.sh").read_text(encoding="utf-8")


@pytest.mark.parametrize("condition", CONDITIONS)
def test_optuna_s_own_tools_find_the_studies(finished: FinishedStudy, condition: str) -> None:
    storage = f"sqlite:///{finished.directory / 'study.db'}"
    assert sorted(optuna.get_all_study_names(storage)) == sorted(CONDITIONS)
    study = optuna.load_study(study_name=condition, storage=storage)
    expected = [
        (r.plan.number, r.measurements[condition].metrics["output_tok_s"])
        for r in finished.store().records()
        if r.plan.phase != "confirm" and r.measurements[condition].valid
    ]
    assert study.direction == optuna.study.StudyDirection.MAXIMIZE
    assert [(t.user_attrs["trial"], t.value) for t in study.trials] == expected


@pytest.fixture
def client(finished: FinishedStudy) -> mlflow.MlflowClient:
    return mlflow.MlflowClient(tracking_uri=f"sqlite:///{finished.out / 'mlflow.db'}")


@pytest.fixture
def parent(client: mlflow.MlflowClient) -> Run:
    experiment = client.get_experiment_by_name("dflash-tuner/target")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], "tags.study = 'main' and tags.phase IS NULL")
    return run


@pytest.fixture
def children(client: mlflow.MlflowClient, parent: Run) -> list[Run]:
    wanted = f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'"
    found = client.search_runs([parent.info.experiment_id], wanted)
    return sorted(found, key=lambda run: int(run.data.tags["trial"]))


def test_mlflow_has_one_child_for_each_trial(finished: FinishedStudy, parent: Run, children: list[Run]) -> None:
    records = finished.store().records()
    assert [run.data.tags["phase"] for run in children] == [r.plan.phase for r in records]
    assert {run.info.status for run in (parent, *children)} == {"FINISHED"}


def test_mlflow_s_trials_can_be_sorted_by_each_profile_s_throughput(
    client: mlflow.MlflowClient, finished: FinishedStudy, parent: Run, children: list[Run]
) -> None:
    records = finished.store().records()
    for run, record in zip(children, records, strict=True):
        for condition in CONDITIONS:
            measured = record.measurements.get(condition)
            expected = measured.metrics["output_tok_s"] if measured and measured.valid else None
            assert run.data.metrics.get(f"profile/{condition}/output_tok_s") == expected
    ordered = client.search_runs(
        [parent.info.experiment_id],
        f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'",
        order_by=["metrics.`profile/code/output_tok_s` DESC"],
    )
    values = [run.data.metrics.get("profile/code/output_tok_s", 0.0) for run in ordered]
    assert values == sorted(values, reverse=True)


def test_mlflow_s_params_are_the_knobs_that_reached_the_engine(children: list[Run]) -> None:
    assert children[0].data.params == {"method": "none", "num_speculative_tokens": "0", "prefix_caching": "True"}
    assert children[1].data.params == {
        "method": "dflash",
        "num_speculative_tokens": "15",
        "prefix_caching": "True",
    }


def test_mlflow_names_the_workload_by_its_digest(finished: FinishedStudy, parent: Run) -> None:
    assert parent.inputs is not None
    (given,) = parent.inputs.dataset_inputs
    digest = hashlib.sha256((finished.desk / "api_traffic.jsonl").read_bytes()).hexdigest()
    assert given.dataset.name == "api_traffic"
    assert len(given.dataset.digest) == 36
    assert digest.startswith(given.dataset.digest)
    assert parent.data.tags["workload.digest"] == f"sha256:{digest}"


def test_mlflow_keeps_what_a_trial_ran_with(client: mlflow.MlflowClient, children: list[Run]) -> None:
    for run in children:
        names = {item.path for item in client.list_artifacts(run.info.run_id)}
        assert names == {"serve.yaml", "trial.json", "engine-log-tail.txt"}


def test_mlflow_says_what_is_recommended_and_why(
    client: mlflow.MlflowClient, finished: FinishedStudy, parent: Run, children: list[Run]
) -> None:
    for answer in answers(finished).values():
        key = answer.condition
        tags = parent.data.tags
        assert tags[f"recommended.{key}"] == f"{answer.verdict}: {answer.serve_config.label()}"
        assert tags[f"reason.{key}"] == answer.reason
        assert parent.data.metrics[f"recommended/{key}/value"] == pytest.approx(answer.value)
        marked = {int(r.data.tags["trial"]) for r in children if r.data.tags.get(f"recommended_for.{key}") == "yes"}
        chosen = {r.plan.number for r in finished.store().records() if r.plan.serve_config.id == answer.serve_config.id}
        assert marked == chosen
        files = {Path(item.path).name for item in client.list_artifacts(parent.info.run_id, f"recommended/{key}")}
        assert files == WRITTEN | {"provenance.json"}
    assert "| code |" in parent.data.tags["mlflow.note.content"]


def test_mlflow_s_runs_begin_and_end_when_the_trials_did(finished: FinishedStudy, children: list[Run]) -> None:
    for run, record in zip(children, finished.store().records(), strict=True):
        lasted_s = (run.info.end_time - run.info.start_time) / 1000
        assert lasted_s == pytest.approx(sum(record.seconds.values()), abs=0.5)


@pytest.fixture
def fetched(finished: FinishedStudy, tmp_path: Path, client: mlflow.MlflowClient) -> Path:
    """What a deployment downloads by the alias of the profile's registered model."""
    version = client.get_model_version_by_alias("dflash-tuner.target.code", "simulated")
    command = [sys.executable, "-m", "mlflow", "artifacts", "download", "--dst-path", str(tmp_path), "--artifact-uri"]
    uri = f"models:/dflash-tuner.target.code/{version.version}"
    environment = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{finished.out / 'mlflow.db'}"}
    subprocess.run([*command, uri], check=True, env=environment, capture_output=True)
    return tmp_path


def test_a_deployment_fetches_the_recommendation_from_mlflow_by_alias(finished: FinishedStudy, fetched: Path) -> None:
    (file,) = fetched.rglob("serve.yaml")
    expected = answers(finished)["code"].serve_config.to_yaml()
    assert yaml.safe_load(file.read_text(encoding="utf-8")) == yaml.safe_load(expected)


@pytest.mark.parametrize("source", ["run", "alias"])
def test_export_takes_a_recommendation_out_of_mlflow_without_the_study(
    finished: FinishedStudy, parent: Run, source: str, tmp_path: Path
) -> None:
    run = parent.info.run_id if source == "run" else "models:/dflash-tuner.target.code@simulated"
    uri = f"sqlite:///{finished.out / 'mlflow.db'}"
    words = ("--from-mlflow", run, "--tracking-uri", uri, "--profile", "code", "--allow-simulated")
    of_mlflow = run_tune("export", *words, cwd=tmp_path)
    of_study = run_tune("export", "main", "--out", str(finished.out), "--profile", "code", "--allow-simulated")
    assert (of_mlflow.returncode, of_mlflow.stderr) == (0, "")
    assert of_mlflow.stdout == of_study.stdout


def test_export_needs_a_study_or_a_run_and_says_what_is_not_in_mlflow(finished: FinishedStudy) -> None:
    neither = run_tune("export")
    assert (neither.returncode, "--from-mlflow RUN" in neither.stderr) == (2, True)
    uri = f"sqlite:///{finished.out / 'mlflow.db'}"
    absent = run_tune("export", "--from-mlflow", "0" * 32, "--tracking-uri", uri)
    assert absent.returncode == 2
    assert absent.stderr.startswith("tune: --from-mlflow 000")


def test_no_prompt_is_in_mlflow(finished: FinishedStudy) -> None:
    database = sqlite3.connect(finished.out / "mlflow.db")
    dump = "\n".join(database.iterdump())
    database.close()
    assert "Tell me about" not in dump
    assert "def task_" not in dump


def test_the_terminal_shows_the_answer_where_things_are_and_where_the_time_went(finished: FinishedStudy) -> None:
    for piece in (
        "Recommendations",
        "code",
        "serve.yaml",
        "mlflow ui --backend-store-uri sqlite:///",
        "tune show main",
    ):
        assert piece in finished.stdout
    (last,) = [line for line in finished.stdout.splitlines() if line.startswith("time ")]
    for activity in ("engine start", "warm-up", "replay", "engine stop", "tuner"):
        assert activity in last


def test_show_and_list_tell_the_same_as_machine_readable(finished: FinishedStudy) -> None:
    shown = json.loads(run_tune("show", "main", "--out", str(finished.out), "--json").stdout)
    assert [t["plan"]["step"] for t in shown["trials"]] == [r.plan.step for r in finished.store().records()]
    assert {r["condition"] for r in shown["recommendations"]} == set(CONDITIONS)
    (row,) = json.loads(run_tune("list", "--out", str(finished.out), "--json").stdout)
    assert (row["study"], row["state"], row["trials"]) == ("main", "finished", len(finished.store().records()))


def test_a_simulated_answer_is_exported_only_when_asked_for(finished: FinishedStudy) -> None:
    words = ("export", "main", "--out", str(finished.out), "--profile", "code")
    refused = run_tune(*words)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--allow-simulated" in refused.stderr
    allowed = run_tune(*words, "--allow-simulated")
    assert (allowed.returncode, allowed.stderr) == (0, "")
    assert yaml.safe_load(allowed.stdout) == yaml.safe_load(answers(finished)["code"].serve_config.to_yaml())
    assert "SIMULATED" in allowed.stdout


def test_export_of_a_profile_that_is_not_there_lists_those_that_are(finished: FinishedStudy) -> None:
    refused = run_tune("export", "main", "--out", str(finished.out), "--profile", "rag", "--allow-simulated")
    assert refused.returncode == 2
    assert "code" in refused.stderr


@pytest.fixture
def copied(finished: FinishedStudy, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A copy of the study's files with a workload of its own: the directory of studies and the workload."""
    study = tmp_path / "main"
    for source in finished.directory.rglob("*.json"):
        target = study / source.relative_to(finished.directory)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    workload = tmp_path / "api_traffic.jsonl"
    workload.write_bytes((finished.desk / "api_traffic.jsonl").read_bytes())
    request = json.loads((study / "study.json").read_text(encoding="utf-8"))
    request |= {"workload": str(workload), "tracking": False}
    (study / "study.json").write_text(json.dumps(request), encoding="utf-8")
    yield tmp_path, workload
    assert engines_of(tmp_path, "main") == []


def test_resuming_a_finished_study_launches_nothing_and_gives_the_same_answer(
    finished: FinishedStudy, copied: tuple[Path, Path]
) -> None:
    out, _ = copied
    before = {p: p.read_bytes() for p in (out / "main" / "trials").rglob("*") if p.is_file()}
    resumed = run_tune("resume", "main", "--out", str(out), "--json", cwd=out)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    after = {p: p.read_bytes() for p in (out / "main" / "trials").rglob("*") if p.is_file()}
    assert before == after
    again = {a["condition"]: Recommendation.model_validate(a) for a in json.loads(resumed.stdout)}
    assert again == answers(finished)


def test_a_workload_that_changed_since_is_refused(copied: tuple[Path, Path]) -> None:
    out, workload = copied
    lines = [json.loads(line) for line in workload.read_text(encoding="utf-8").splitlines()]
    lines[0]["body"]["max_tokens"] = 31
    write_workload(workload, lines)
    refused = run_tune("resume", "main", "--out", str(out))
    assert refused.returncode == 2
    assert refused.stderr.startswith("tune: ")
    assert "has changed since the study began" in refused.stderr


def test_a_damaged_record_is_named_and_nothing_is_launched(copied: tuple[Path, Path]) -> None:
    out, _ = copied
    (out / "main" / "trials" / "002" / "trial.json").write_text("{", encoding="utf-8")
    refused = run_tune("resume", "main", "--out", str(out))
    assert refused.returncode == 2
    assert "002/trial.json: cannot be read" in refused.stderr
