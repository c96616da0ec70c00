"""Parts of Kubernetes objects that several formats share: the engine's container, its volumes, the pod around them."""

from typing import Any

from tuner.exporters._deployment import HUB_CACHE, PORT, SHARED_MEMORY, Deployment, directory_name

CACHE_CLAIM = "model-cache"
MODELS_CLAIM = "models"


def literal(text: str) -> str:
    """The text where Kubernetes expands `$(NAME)`: in commands, arguments and values of variables, `$$` is a `$`."""
    return text.replace("$", "$$")


def environment(deployed: Deployment) -> list[dict[str, Any]]:
    """The configuration's variables, and the hub's token if the cluster has such a secret."""
    token = {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}
    named = [{"name": name, "value": literal(value)} for name, value in deployed.env.items()]
    return [*named, {"name": "HF_TOKEN", "valueFrom": token}]


def resources(deployed: Deployment) -> dict[str, Any]:
    """GPUs as a limit, which is a request too; CPU and memory are left to whoever knows the nodes."""
    if deployed.gpus:
        return {"limits": {"nvidia.com/gpu": str(deployed.gpus)}}
    return {"requests": {"cpu": "4", "memory": "16Gi"}}


def container(deployed: Deployment, *, name: str) -> dict[str, Any]:
    """The engine, with probes that give a large model 30 minutes to start."""
    health = {"httpGet": {"path": "/health", "port": PORT}}
    return {
        "name": name,
        "image": deployed.image,
        "command": list(deployed.command[:2]),
        "args": [literal(word) for word in deployed.command[2:]],
        "env": environment(deployed),
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "resources": resources(deployed),
        "startupProbe": {**health, "periodSeconds": 10, "failureThreshold": 180},
        "readinessProbe": {**health, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": {**health, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
        "volumeMounts": mounts(deployed),
    }


def mounts(deployed: Deployment) -> list[dict[str, Any]]:
    """Shared memory, the hub's cache, and each local directory at the path that the configuration names."""
    local = [
        {"name": MODELS_CLAIM, "mountPath": path, "subPath": directory_name(path), "readOnly": True}
        for path in deployed.directories
    ]
    return [
        {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108 - where the engine's processes share memory
        {"name": CACHE_CLAIM, "mountPath": HUB_CACHE},
        *local,
    ]


def volumes(deployed: Deployment, *, prefix: str = "") -> list[dict[str, Any]]:
    """What `mounts` mounts; the claims are the deployment's to make unless it comes with them."""
    memory = {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": SHARED_MEMORY}}
    claims = [CACHE_CLAIM, *([MODELS_CLAIM] if deployed.directories else [])]
    return [memory, *({"name": c, "persistentVolumeClaim": {"claimName": f"{prefix}{c}"}} for c in claims)]


def claim(name: str, *, size: str, labels: dict[str, str]) -> dict[str, Any]:
    """A claim of a volume that one node at a time writes."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": labels},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    }
