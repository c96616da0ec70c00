"""`serve.yaml`, for `vllm serve --config serve.yaml`."""

from tuner.exporters._header import header, one_line
from tuner.records import Provenance, Recommendation


def export(recommendation: Recommendation, provenance: Provenance) -> str:
    """The configuration as vLLM's own YAML, host and port left to the deployment."""
    config = recommendation.serve_config
    env = [one_line(f"needs the environment: {name}={value}") for name, value in config.env.items()]
    comments = "\n".join(f"# {line}" for line in header(recommendation, provenance) + env)
    return f"{comments}\n{config.to_yaml()}"
