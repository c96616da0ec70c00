"""KServe: an InferenceService with the engine as its predictor, and an LLMInferenceService, which llm-d builds on too.

The LLMInferenceService's own template starts `vllm serve` through a shell (`eval`) and is expanded as a Go template
together with what is given here (KServe's config/llmisvcconfig/config-llm-template.yaml and llmisvc/config_merge.go),
so arguments are quoted for the shell, and `{{` is written so that a template yields it.
"""

import shlex
from typing import Any

from tuner.exporters._deployment import Deployment, commented_yaml, deployment, directory_name, directory_notes
from tuner.exporters._header import annotations
from tuner.exporters._pods import CACHE_CLAIM, MODELS_CLAIM, container, environment, literal, resources, volumes
from tuner.records import Provenance, Recommendation


def export_inference_service(recommendation: Recommendation, provenance: Provenance) -> str:
    """`serving.kserve.io/v1beta1`, with the command as it was measured."""
    deployed = deployment(recommendation, provenance)
    predictor = {
        "minReplicas": 1,
        "containers": [container(deployed, name="kserve-container")],
        "volumes": volumes(deployed, prefix=f"{deployed.name}-"),
    }
    document = _object("serving.kserve.io/v1beta1", "InferenceService", deployed, recommendation, provenance)
    notes = [
        f"needs a claim {deployed.name}-{CACHE_CLAIM} for downloaded models",
        *directory_notes(deployed, f"{deployed.name}-{MODELS_CLAIM}"),
    ]
    return commented_yaml(recommendation, provenance, {**document, "spec": {"predictor": predictor}}, notes=notes)


def export_llm_inference_service(recommendation: Recommendation, provenance: Provenance) -> str:
    """`serving.kserve.io/v1alpha2`; KServe fetches the model and brings the image."""
    deployed = deployment(recommendation, provenance)
    model = recommendation.serve_config.model
    local = model in deployed.directories
    arguments = " ".join(shlex.quote(word) for word in deployed.serve[1:])
    main: dict[str, Any] = {
        "name": "main",
        "env": [_templated(one) for one in environment(deployed)]
        + [{"name": "VLLM_ADDITIONAL_ARGS", "value": template_literal(literal(arguments))}],
        "resources": resources(deployed),
    }
    template: dict[str, Any] = {"containers": [main]}
    drafts = [path for path in deployed.directories if path != model]
    if drafts:
        main["volumeMounts"] = [
            {"name": MODELS_CLAIM, "mountPath": template_literal(p), "subPath": directory_name(p), "readOnly": True}
            for p in drafts
        ]
        template["volumes"] = [{"name": MODELS_CLAIM, "persistentVolumeClaim": {"claimName": MODELS_CLAIM}}]
    spec = {
        "model": {
            "uri": f"pvc://{MODELS_CLAIM}/{directory_name(model)}" if local else f"hf://{template_literal(model)}",
            "name": deployed.name if local else template_literal(model),
        },
        "replicas": 1,
        "router": {"route": {}, "gateway": {}, "scheduler": {}},
        "template": template,
    }
    document = _object("serving.kserve.io/v1alpha2", "LLMInferenceService", deployed, recommendation, provenance)
    notes = [
        f"KServe brings the image: see that its vLLM is {provenance.engine_version}, the release that was measured",
        *directory_notes(deployed, MODELS_CLAIM),
    ]
    return commented_yaml(recommendation, provenance, {**document, "spec": spec}, notes=notes)


def template_literal(text: str) -> str:
    """The text as a Go template that yields it."""
    return text.replace("{{", "{{`{{`}}")


def _templated(variable: dict[str, Any]) -> dict[str, Any]:
    if "value" not in variable:
        return variable
    return {**variable, "value": template_literal(variable["value"])}


def _object(
    version: str, kind: str, deployed: Deployment, recommendation: Recommendation, provenance: Provenance
) -> dict[str, Any]:
    said = annotations(recommendation, provenance)
    return {"apiVersion": version, "kind": kind, "metadata": {"name": deployed.name, "annotations": said}}
