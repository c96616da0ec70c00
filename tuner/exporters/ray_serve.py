"""`ray-serve.yaml`: a Ray Serve config with one LLM application, for `serve deploy ray-serve.yaml`.

Fields: ray.serve.schema.ServeDeploySchema and ray.serve.llm.LLMConfig of Ray 2.60. `engine_kwargs` are vLLM's engine
arguments with underscores; what the server alone knows (frontend flags) has no place there.
"""

from typing import Any

from tuner.exporters._deployment import Deployment, commented_yaml, deployment, directory_notes
from tuner.exporters._header import one_line
from tuner.records import Provenance, Recommendation


def export(recommendation: Recommendation, provenance: Provenance) -> str:
    """One application that answers OpenAI's API."""
    deployed = deployment(recommendation, provenance)
    config = recommendation.serve_config
    args = {name.replace("-", "_"): value for name, value in config.engine_args.items()}
    llm: dict[str, Any] = {
        "model_loading_config": {"model_id": config.model, "model_source": config.model},
        "engine_kwargs": args,
        "deployment_config": {"autoscaling_config": {"min_replicas": 1, "max_replicas": 1}},
        **_resources(deployed),
    }
    if deployed.env:
        llm["runtime_env"] = {"env_vars": dict(deployed.env)}
    application = {
        "name": deployed.name,
        "route_prefix": "/",
        "import_path": "ray.serve.llm:build_openai_app",
        "args": {"llm_configs": [llm]},
    }
    hardware = ", ".join(provenance.gpus)
    notes = [
        f"every node needs vLLM {provenance.engine_version}, the release that was measured",
        *([one_line(f"set accelerator_type to Ray's name of {hardware}")] if hardware else []),
        *directory_notes(deployed),
    ]
    return commented_yaml(recommendation, provenance, {"applications": [application]}, notes=notes)


def _resources(deployed: Deployment) -> dict[str, Any]:
    """A bundle for each GPU, all on one host as they were measured; Ray's own defaults otherwise ask for GPUs."""
    bundle = {"GPU": 1, "CPU": 1} if deployed.gpus else {"CPU": 4}
    return {"placement_group_config": {"bundles": [bundle] * max(deployed.gpus, 1), "strategy": "STRICT_PACK"}}
