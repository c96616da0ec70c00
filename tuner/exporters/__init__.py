"""Ways to hand a recommended configuration to a deployment. One format per module, the table below is the list.

A third party's exporter is an entry point of the group `dflash_tuner.exporters` that names an `Exporter`; it is in the
same table and passes the same contract (`tuner.exporters.testing`).
"""

from tuner.exporters import (
    compose,
    dynamo,
    kserve,
    kubernetes,
    llm_d,
    production_stack,
    ray_serve,
    serve_sh,
    serve_yaml,
    systemd,
)
from tuner.exporters.exporter import Exporter
from tuner.exporters.plugins import Exporters

BUILT_IN = (
    Exporter("yaml", "serve.yaml", "vllm serve --config", serve_yaml.export, with_study=True),
    Exporter("sh", "serve.sh", "shell script", serve_sh.export, with_study=True),
    Exporter(
        "json",
        "recommendation.json",
        "the recommendation itself",
        lambda recommendation, _: recommendation.model_dump_json(indent=2) + "\n",
        with_study=True,
    ),
    Exporter("compose", "compose.yaml", "docker compose", compose.export, with_study=True),
    Exporter("kubernetes", "kubernetes.yaml", "Deployment and Service", kubernetes.export, with_study=True),
    Exporter("systemd", "vllm.service", "systemd unit", systemd.export),
    Exporter("production-stack", "production-stack.yaml", "Helm values", production_stack.export),
    Exporter("kserve", "inference-service.yaml", "InferenceService", kserve.export_inference_service),
    Exporter("kserve-llm", "llm-inference-service.yaml", "LLMInferenceService", kserve.export_llm_inference_service),
    Exporter("llm-d", "llm-d.yaml", "Helm values", llm_d.export),
    Exporter("ray-serve", "ray-serve.yaml", "Ray Serve LLM", ray_serve.export),
    Exporter("dynamo", "dynamo.yaml", "DynamoGraphDeployment", dynamo.export),
)

EXPORTERS = Exporters(BUILT_IN)
"""By name: ours, then those of installed packages."""

__all__ = ["BUILT_IN", "EXPORTERS", "Exporter"]
