"""A manifest that runs the tuner itself in a cluster: a Kubernetes Job that asks for a study again.

A pod that is lost goes on where it was: the study lives on a claim, and the command resumes what is there. Exit codes
that another try cannot change end the Job at once (docs/cli.md lists them; 4 is an interruption).
"""

import shlex
from typing import Any

from tuner.config import TuneConfig
from tuner.exporters._deployment import dns_label, dump, engine_image
from tuner.exporters._header import one_line
from tuner.exporters._pods import literal
from tuner.exporters.tune_command import input_files, tune_command
from tuner.records import Provenance

PLACE = "/tuning"
CLAIM = "tuning"
_FINAL_CODES = [1, 2, 3, 5]


def export_job(config: TuneConfig, provenance: Provenance, image: str | None) -> str:
    """A Job on the image of the engine: the tuner is installed beside it, in an environment of its own."""
    tuner = f"{PLACE}/venv/bin/tune"
    install = (
        f"test -x {tuner} || (python3 -m venv {PLACE}/venv && "
        f"{PLACE}/venv/bin/pip install dflash-tuner=={provenance.tuner_version})"
    )
    script = f"{install} && {_resume_or_begin(config, tuner)}"
    container = {
        "name": "tune",
        "image": image or provenance.engine_image or engine_image(provenance),
        "command": ["/bin/sh", "-c", literal(script)],
        **_surroundings(len(provenance.gpus)),
    }
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": _name(config), "annotations": _annotations(config, provenance)},
        "spec": {
            "backoffLimit": 6,
            "podFailurePolicy": {
                "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": _FINAL_CODES}}]
            },
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    # `tune` ends its engine and writes what was measured.
                    "terminationGracePeriodSeconds": 120,
                    "containers": [container],
                    "volumes": _volumes(),
                }
            },
        },
    }
    return _text(document, config, provenance)


TUNING_JOBS = {"job": export_job}
"""Formats that ask for a study again instead of exporting its answer."""


def _resume_or_begin(config: TuneConfig, program: str) -> str:
    """A shell command that goes on with the study on the claim, or begins it."""
    out = f"{PLACE}/runs"
    engine = {"engine_argv": ("vllm", "serve"), "engine_image": None, "engine_url": None, "engine_api_key_env": None}
    begin = tune_command(
        config, study=config.study, out=out, place=lambda path: f"{PLACE}/input/{path.name}", changes=engine
    )
    resume = (program, "resume", config.study, "--out", out)
    there = shlex.quote(f"{out}/{config.study}/study.json")
    return f"if test -e {there}; then exec {shlex.join(resume)}; else exec {shlex.join((program, *begin[1:]))}; fi"


def _surroundings(gpus: int) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {"requests": {"cpu": "4", "memory": "16Gi"}}
    token = {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}
    return {
        "env": [{"name": "HF_HOME", "value": f"{PLACE}/huggingface"}, {"name": "HF_TOKEN", "valueFrom": token}],
        "resources": resources,
        "volumeMounts": [
            {"name": CLAIM, "mountPath": PLACE},
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108 - where the engine's processes share memory
        ],
    }


def _volumes() -> list[dict[str, Any]]:
    return [
        {"name": CLAIM, "persistentVolumeClaim": {"claimName": CLAIM}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
    ]


def _name(config: TuneConfig) -> str:
    return dns_label(f"tune-{config.study}")[:40].strip("-")


def _annotations(config: TuneConfig, provenance: Provenance) -> dict[str, str]:
    said = {"study": config.study, "version": provenance.tuner_version, "workload": provenance.workload_digest}
    return {f"dflash-tuner/{name}": one_line(value) for name, value in said.items()}


def _text(document: dict[str, Any], config: TuneConfig, provenance: Provenance) -> str:
    local = [path for path in (config.model, config.draft) if path and path.startswith("/")]
    notes = [
        f"dflash-tuner {provenance.tuner_version}: asks again for study {config.study} on other hardware",
        f"first seen on {', '.join(provenance.gpus) or provenance.cpu}, workload {provenance.workload_digest}",
        f"needs a claim {CLAIM}; put these files into its folder input:",
        *(f"  {path.name} (from {path.parent})" for path in input_files(config)),
        *(f"{path} is a directory of that host: add a volume with it at this path" for path in local),
    ]
    return "".join(f"# {one_line(note)}\n" for note in notes) + dump(document)
