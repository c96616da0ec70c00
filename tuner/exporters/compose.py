"""`compose.yaml`, for `docker compose up`.

Compose interpolates `$NAME` in values; `$$` is a `$`
(https://github.com/compose-spec/compose-spec/blob/main/12-interpolation.md).
"""

from typing import Any

from tuner.exporters._deployment import (
    HUB_CACHE,
    PORT,
    SHARED_MEMORY,
    Deployment,
    commented_yaml,
    deployment,
    directory_notes,
)
from tuner.exporters._header import annotations
from tuner.records import Provenance, Recommendation

HEALTH = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{PORT}/health', timeout=5)"


def export(recommendation: Recommendation, provenance: Provenance) -> str:
    """One service, its cache as a named volume; the port is published on loopback only."""
    deployed = deployment(recommendation, provenance)
    said = annotations(recommendation, provenance)
    document = {"services": {"vllm": _service(deployed, said)}, "volumes": {"model-cache": {}}}
    notes = ["HF_TOKEN is taken from the environment of docker compose", *directory_notes(deployed)]
    return commented_yaml(recommendation, provenance, document, notes=notes)


def _service(deployed: Deployment, said: dict[str, str]) -> dict[str, Any]:
    binds = [
        {"type": "bind", "source": _literal(path), "target": _literal(path), "read_only": True}
        for path in deployed.directories
    ]
    service: dict[str, Any] = {
        "image": deployed.image,
        "entrypoint": list(deployed.command[:2]),
        "command": [_literal(word) for word in deployed.command[2:]],
        "environment": {**{name: _literal(value) for name, value in deployed.env.items()}, "HF_TOKEN": "${HF_TOKEN:-}"},
        "ports": [f"127.0.0.1:{PORT}:{PORT}"],
        "shm_size": SHARED_MEMORY.removesuffix("i").lower() + "b",
        "restart": "unless-stopped",
        "volumes": [{"type": "volume", "source": "model-cache", "target": HUB_CACHE}, *binds],
        "healthcheck": {
            "test": ["CMD", "python3", "-c", HEALTH],
            "interval": "10s",
            "timeout": "10s",
            "retries": 6,
            "start_period": "30m",
        },
        "labels": {name: _literal(value) for name, value in said.items()},
    }
    if deployed.gpus:
        device = {"driver": "nvidia", "count": deployed.gpus, "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    return service


def _literal(text: str) -> str:
    return text.replace("$", "$$")
