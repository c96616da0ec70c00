"""`dynamo.yaml`: a graph for NVIDIA Dynamo with a frontend and one vLLM worker, `nvidia.com/v1beta1`.

After examples/backends/vllm/deploy/v1beta1/agg.yaml and the Go types of deploy/operator/api/v1beta1 in
https://github.com/ai-dynamo/dynamo. The worker takes the engine's arguments as they are; the frontend serves HTTP.
"""

from typing import Any

from tuner.exporters._deployment import SHARED_MEMORY, commented_yaml, deployment, directory_notes
from tuner.exporters._header import annotations
from tuner.exporters._pods import CACHE_CLAIM, MODELS_CLAIM, environment, literal, mounts, resources, volumes
from tuner.records import Provenance, Recommendation

RUNTIME_IMAGE = "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.1"
"""Of Dynamo's own example; it brings a vLLM of its own."""


def export(recommendation: Recommendation, provenance: Provenance) -> str:
    """One DynamoGraphDeployment."""
    deployed = deployment(recommendation, provenance)
    worker: dict[str, Any] = {
        "name": "main",
        "image": RUNTIME_IMAGE,
        "command": ["python3", "-m", "dynamo.vllm"],
        "args": ["--model", *(literal(word) for word in deployed.serve)],
        "env": environment(deployed),
        "resources": resources(deployed),
        # The operator mounts shared memory itself.
        "volumeMounts": [mount for mount in mounts(deployed) if mount["name"] != "shared-memory"],
    }
    kept = [volume for volume in volumes(deployed, prefix=f"{deployed.name}-") if volume["name"] != "shared-memory"]
    components: list[dict[str, Any]] = [
        {
            "name": "Frontend",
            "type": "frontend",
            "replicas": 1,
            "podTemplate": {"spec": {"containers": [{"name": "main", "image": RUNTIME_IMAGE}]}},
        },
        {
            "name": "VllmWorker",
            "type": "worker",
            "replicas": 1,
            "sharedMemorySize": SHARED_MEMORY,
            "podTemplate": {"spec": {"containers": [worker], "volumes": kept}},
        },
    ]
    document = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": deployed.name, "annotations": annotations(recommendation, provenance)},
        "spec": {"backendFramework": "vllm", "components": components},
    }
    notes = [
        f"see that the image's vLLM is {provenance.engine_version}, the release that was measured",
        f"needs a claim {deployed.name}-{CACHE_CLAIM} for downloaded models",
        *directory_notes(deployed, f"{deployed.name}-{MODELS_CLAIM}"),
    ]
    return commented_yaml(recommendation, provenance, document, notes=notes)
