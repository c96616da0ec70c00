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
@pytest.mark.parametrize("job", TUNING_JOBS)
def test_the_manifest_is_valid_and_begins_or_resumes_the_study(name: str, job: str) -> None:
    config = config_of(name)
    document = yaml.safe_load(TUNING_JOBS[job](config, provenance(), "registry/tuner:1"))
    assert problems(document, "kubernetes.json") == []
    assert problems({**document, "spec": {**document["spec"], "unknown": 1}}, "kubernetes.json") != []
    (container,) = document["spec"]["template"]["spec"]["containers"]
    # What Kubernetes makes of the argument, then what the shell makes of the words.
    words = shell_words(container["command"][2].replace("$$", "$"))
    assert words[words.index("-e") + 1] == f"/tuning/runs/{config.study}/study.json"
    resume, begin = (arguments(words[at + 2 :]) for at, word in enumerate(words) if word == "exec")
    assert resume == {"study": config.study, "out": Path("/tuning/runs")}
    options = begin["options"]
    assert isinstance(options, StudyOptions)
    assert options.workload == Path("/tuning/input") / config.workload.name
    assert (options.model, options.study, options.out) == (config.model, config.study, Path("/tuning/runs"))


def shell_words(script: str) -> list[str]:
    """Words, with the signs that end a command as words of their own."""
    reader = shlex.shlex(script, posix=True, punctuation_chars=";&|()")
    reader.whitespace_split = True
    reader.commenters = ""
    return list(reader)


def arguments(words: list[str]) -> dict[str, object]:
    """What `tune` makes of the words of a command, up to its end."""
    command = words[: words.index(";")]
    return dict(app.parse_args(command, exit_on_error=False, print_error=False)[1].arguments)
