"""Jobs that run the tuner in a cluster: valid manifests, whose command asks for the same study."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from tuner.cli import app
from tuner.commands.study_options import StudyOptions
from tuner.config import TuneConfig
from tuner.errors import UsageError
from tuner.exporters.testing import HOSTILE, provenance
from tuner.exporters.tune_command import tune_command
from tuner.exporters.tuning_job import TUNING_JOBS

SCHEMAS = Path(__file__).parents[2] / "data" / "schemas"
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {"workload": "/data/api_traffic.jsonl", "model": "org/target", "study": "nightly"},
    "full": {
        "workload": f"/data/{Path(HOSTILE).name}",
        "model": "org/target",
        "draft": "org/draft",
        "study": "Nightly_2",
        "engine_args": ("--max-model-len", "2048", "--served-model-name", HOSTILE),
        "engine_env": {"A": HOSTILE},
        "slo": ("ttft_p99=500ms", "tpot_p50=20ms"),
        "load": "concurrency=1,8",
        "budget_s": 5400.0,
        "held_out": 0.25,
        "tracking": False,
    },
}


def config_of(name: str) -> TuneConfig:
    return TuneConfig.model_validate({"engine_argv": ("/bin/true", "serve"), **CONFIGS[name]})


def problems(document: Any, schema: str) -> list[str]:
    root = json.loads((SCHEMAS / schema).read_text(encoding="utf-8"))
    if schema == "kubernetes.json":
        root = {"$ref": "#/$defs/io.k8s.api.batch.v1.Job", "$defs": root["$defs"]}
    return [error.message for error in Draft7Validator(root).iter_errors(document)]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_command_asks_for_the_same_study(name: str) -> None:
    config = config_of(name)
    words = tune_command(config, study=config.study, out="runs", place=str)
    _, bound, _ = app.parse_args(list(words[1:]), exit_on_error=False, print_error=False)
    (options,) = (value for value in bound.arguments.values() if isinstance(value, StudyOptions))
    assert options.config() == config.model_copy(update={"engine_argv": options.config().engine_argv})


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(("job", "schema"), [("job", "kubernetes.json"), ("ray-job", "kuberay_rayjob.json")])
def test_the_manifest_is_valid_and_resumes_what_is_there(name: str, job: str, schema: str) -> None:
    config = config_of(name)
    document = yaml.safe_load(TUNING_JOBS[job](config, provenance(), "registry/tuner:1"))
    assert problems(document, schema) == []
    assert problems({**document, "spec": {**document["spec"], "unknown": 1}}, schema) != []
    if job == "job":
        (container,) = document["spec"]["template"]["spec"]["containers"]
        script = container["command"][2].replace("$$", "$")
    else:
        script = shlex.split(document["spec"]["entrypoint"])[2]
    words = shlex.split(script)
    assert f"/tuning/runs/{config.study}/study.json;" in " ".join(words) + ";"
    assert ["resume", config.study, "--out", "/tuning/runs;"] == words[words.index("resume") :][:4]
    assert f"/tuning/input/{config.workload.name}" in words


def test_a_ray_job_needs_an_image() -> None:
    with pytest.raises(UsageError, match="--image"):
        TUNING_JOBS["ray-job"](config_of("plain"), provenance(), None)
