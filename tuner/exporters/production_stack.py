"""`production-stack.yaml`: values for the Helm chart of vLLM's production stack, https://github.com/vllm-project/production-stack.

The chart makes the command from the values: all but the model goes through `extraArgs`, which comes last and so wins.
It turns prefix caching off unless `enablePrefixCaching` is true, so that is always said.
"""

from typing import Any

from tuner.exporters._deployment import (
    SHARED_MEMORY,
    Deployment,
    commented_yaml,
    deployment,
    directory_name,
    directory_notes,
)
from tuner.exporters._header import annotations
from tuner.exporters._pods import MODELS_CLAIM, literal
from tuner.records import Provenance, Recommendation


def export(recommendation: Recommendation, provenance: Provenance) -> str:
    """Values with one model."""
    deployed = deployment(recommendation, provenance)
    args = recommendation.serve_config.engine_args
    repository, _, tag = deployed.image.rpartition(":")
    model = {
        "name": deployed.name,
        "annotations": annotations(recommendation, provenance),
        "repository": repository,
        "tag": tag,
        "modelURL": literal(recommendation.serve_config.model),
        "replicaCount": 1,
        "requestCPU": 4,
        "requestMemory": "16Gi",
        "requestGPU": deployed.gpus,
        "shmSize": SHARED_MEMORY,
        "pvcStorage": "200Gi",
        "vllmConfig": {
            "enablePrefixCaching": bool(args.get("enable-prefix-caching", True)),
            # Its presence, not its value, makes the chart mount shared memory.
            "tensorParallelSize": int(str(args.get("tensor-parallel-size", 1))),
            "extraArgs": [literal(word) for word in deployed.serve[1:]],
        },
        "env": [{"name": name, "value": literal(value)} for name, value in deployed.env.items()],
        **_directories(deployed),
    }
    notes = [
        "helm install NAME vllm/vllm-stack -f production-stack.yaml",
        "CPU and memory are requests to adapt; for a gated model add hf_token",
        *directory_notes(deployed, MODELS_CLAIM),
    ]
    return commented_yaml(recommendation, provenance, {"servingEngineSpec": {"modelSpec": [model]}}, notes=notes)


def _directories(deployed: Deployment) -> dict[str, Any]:
    if not deployed.directories:
        return {}
    return {
        "extraVolumes": [{"name": MODELS_CLAIM, "persistentVolumeClaim": {"claimName": MODELS_CLAIM}}],
        "extraVolumeMounts": [
            {"name": MODELS_CLAIM, "mountPath": path, "subPath": directory_name(path), "readOnly": True}
            for path in deployed.directories
        ],
    }
