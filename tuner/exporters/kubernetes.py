"""`kubernetes.yaml`: a claim for the model cache, a Deployment and a Service, for `kubectl apply -f`."""

from typing import Any

from tuner.exporters._deployment import Deployment, commented_yaml, deployment, directory_notes
from tuner.exporters._header import annotations
from tuner.exporters._pods import CACHE_CLAIM, MODELS_CLAIM, claim, container, volumes
from tuner.records import Provenance, Recommendation

CACHE_SIZE = "200Gi"


def export(recommendation: Recommendation, provenance: Provenance) -> str:
    """Three objects; the provenance is in comments and in annotations of the Deployment and its pods."""
    deployed = deployment(recommendation, provenance)
    said = annotations(recommendation, provenance)
    labels = {"app.kubernetes.io/name": deployed.name, "app.kubernetes.io/component": "engine"}
    objects = (
        claim(f"{deployed.name}-{CACHE_CLAIM}", size=CACHE_SIZE, labels=labels),
        _deployment(deployed, labels, said),
        _service(deployed, labels),
    )
    notes = [
        "a secret hf-token with the key token is used if there is one",
        *directory_notes(deployed, f"{deployed.name}-{MODELS_CLAIM}"),
    ]
    return commented_yaml(recommendation, provenance, *objects, notes=notes)


def _deployment(deployed: Deployment, labels: dict[str, str], said: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": deployed.name, "labels": labels, "annotations": said},
        "spec": {
            "replicas": 1,
            # A second engine does not fit beside the first one on its GPUs.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": said},
                "spec": {
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 60,
                    "containers": [container(deployed, name="vllm")],
                    "volumes": volumes(deployed, prefix=f"{deployed.name}-"),
                },
            },
        },
    }


def _service(deployed: Deployment, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": deployed.name, "labels": labels},
        "spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}]},
    }
