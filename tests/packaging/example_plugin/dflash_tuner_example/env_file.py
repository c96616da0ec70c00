"""`vllm.env`: the command as one variable, for a wrapper script that reads JSON."""

import json

from tuner.exporters import Exporter
from tuner.records import Provenance, Recommendation


def export(recommendation: Recommendation, provenance: Provenance) -> str:
    """Lines NAME=JSON."""
    effect = recommendation.effect
    said = {
        "condition": recommendation.condition,
        "gain": f"{effect.gain:.2f}, {effect.low:.2f} to {effect.high:.2f}" if effect else "none",
        "tuner": provenance.tuner_version,
        "engine": provenance.engine_version,
        "workload": provenance.workload_digest,
        "study": provenance.study,
        **({"simulated": True} if recommendation.simulated else {}),
    }
    config = recommendation.serve_config
    lines = {"VLLM_ORIGIN": said, "VLLM_ARGS": list(config.to_argv()), "VLLM_ENV": config.env}
    return "".join(f"{name}={json.dumps(value)}\n" for name, value in lines.items())


ENV_FILE = Exporter(name="env-file", file_name="vllm.env", summary="variables with JSON", export=export)
