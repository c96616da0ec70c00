"""`llm-d.yaml`: values for llm-d's model service chart, https://github.com/llm-d-incubation/llm-d-modelservice.

`modelCommand: custom` takes our command unchanged; variables are rendered by Helm's `tpl`, so `{{` is written so that a
template yields it.
"""

from tuner.exporters._deployment import HUB_CACHE, PORT, commented_yaml, deployment, directory_name, directory_notes
from tuner.exporters._header import annotations
from tuner.exporters._pods import MODELS_CLAIM, container, volumes
from tuner.exporters.kserve import template_literal
from tuner.records import Provenance, Recommendation

CACHE_SIZE = "200Gi"
_KEPT = ("name", "image", "command", "args", "resources")


def export(recommendation: Recommendation, provenance: Provenance) -> str:
    """Values with decode workers only: no disaggregation was measured."""
    deployed = deployment(recommendation, provenance)
    model = recommendation.serve_config.model
    local = model in deployed.directories
    made = container(deployed, name="vllm")
    engine = {key: made[key] for key in _KEPT}
    mounts = [mount for mount in made["volumeMounts"] if mount["mountPath"] != HUB_CACHE]
    values = {
        "modelArtifacts": {
            "name": template_literal(deployed.name if local else model),
            "uri": f"pvc://{MODELS_CLAIM}/{directory_name(model)}" if local else f"hf://{template_literal(model)}",
            "size": CACHE_SIZE,
            "mountPath": "/model-cache",
        },
        "accelerator": {"type": "nvidia" if deployed.gpus else "cpu"},
        "routing": {"servicePort": PORT, "proxy": {"enabled": False}},
        "decode": {
            "create": True,
            "replicas": 1,
            "annotations": annotations(recommendation, provenance),
            "parallelism": {"tensor": max(deployed.gpus, 1)},
            "containers": [
                {
                    **engine,
                    "modelCommand": "custom",
                    "env": [
                        {"name": one["name"], "value": template_literal(one["value"])}
                        for one in made["env"]
                        if "value" in one
                    ],
                    "ports": [{"containerPort": PORT, "name": "http", "protocol": "TCP"}],
                    "mountModelVolume": True,
                    "volumeMounts": mounts,
                }
            ],
            "volumes": [volume for volume in volumes(deployed) if volume["name"] != "model-cache"],
        },
        "prefill": {"create": False},
    }
    notes = [
        "helm install NAME llm-d-modelservice/llm-d-modelservice -f llm-d.yaml",
        "for a gated model set modelArtifacts.authSecretName",
        *directory_notes(deployed, MODELS_CLAIM),
    ]
    return commented_yaml(recommendation, provenance, values, notes=notes)
