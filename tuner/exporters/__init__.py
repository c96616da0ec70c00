"""Ways to hand a recommended configuration to a deployment. One format per module, the table below is the list."""

from collections.abc import Callable

from tuner.exporters import serve_sh, serve_yaml
from tuner.records import Provenance, Recommendation

Exporter = Callable[[Recommendation, Provenance], str]

EXPORTERS: dict[str, tuple[str, Exporter]] = {
    "yaml": ("serve.yaml", serve_yaml.export),
    "sh": ("serve.sh", serve_sh.export),
    "json": ("recommendation.json", lambda recommendation, _: recommendation.model_dump_json(indent=2) + "\n"),
}

__all__ = ["EXPORTERS", "Exporter"]
