"""What every deployment of an answer needs, whatever its format: a name, an image, a command, GPUs, directories.

Nothing here is measured or tuned: ports, probes and sizes are the defaults that a person then adapts.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from search_spaces import ServeConfig
from tuner.exporters._header import header, one_line
from tuner.records import Provenance, Recommendation

PORT = 8000
GPU_IMAGE = "vllm/vllm-openai"
CPU_IMAGE = "public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo"
"""Images that vLLM's own documentation names, https://docs.vllm.ai/en/stable/deployment/docker/."""
HUB_CACHE = "/root/.cache/huggingface"
SHARED_MEMORY = "8Gi"
"""For NCCL and the engine's processes; vLLM's documentation asks for --ipc=host or a larger /dev/shm."""
_LINE_ENDS = "\x85\u2028\u2029"
_PARALLEL = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")


@dataclass(frozen=True, slots=True)
class Deployment:
    """One engine to be run in a container."""

    name: str
    image: str
    serve: tuple[str, ...]
    env: dict[str, str]
    gpus: int
    directories: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """The whole command, reachable from outside of its container."""
        return ("vllm", "serve", *self.serve, "--host", "0.0.0.0", "--port", str(PORT))  # noqa: S104 - a container's own network


def deployment(recommendation: Recommendation, provenance: Provenance) -> Deployment:
    """The deployment of an answer."""
    config = recommendation.serve_config
    return Deployment(
        name=dns_label(f"vllm-{recommendation.condition}"),
        image=provenance.engine_image or engine_image(provenance),
        serve=config.to_argv(),
        env=dict(config.env),
        gpus=gpus_of(config) if provenance.gpus else 0,
        directories=local_directories(config),
    )


def engine_image(provenance: Provenance) -> str:
    """The public image of the release that was measured; a build of one's own has the release's number."""
    release = re.match(r"\d+(\.\d+)*(rc\d+)?", provenance.engine_version)
    tag = f"v{release[0]}" if release else "latest"
    return f"{GPU_IMAGE if provenance.gpus else CPU_IMAGE}:{tag}"


def gpus_of(config: ServeConfig) -> int:
    """GPUs of one replica on one host."""
    count = 1
    for flag in _PARALLEL:
        count *= int(str(config.engine_args.get(flag, 1)))
    return count


def local_directories(config: ServeConfig) -> tuple[str, ...]:
    """Checkpoints that are directories of the measuring host: a deployment must bring them."""
    speculative = config.engine_args.get("speculative-config")
    draft = speculative.get("model") if isinstance(speculative, dict) else None
    named = [name for name in (config.model, draft) if isinstance(name, str) and name.startswith("/")]
    return tuple(dict.fromkeys(named))


def directory_name(path: str) -> str:
    """Name of such a directory on a volume."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", Path(path).name).strip("-.") or "model"


def dns_label(text: str) -> str:
    """A name that Kubernetes and compose take: at most 52 of a-z, 0-9 and dashes, from a letter on."""
    label = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:52].strip("-")
    return label if label[:1].isalpha() else f"x-{label}".strip("-")


def commented_yaml(recommendation: Recommendation, provenance: Provenance, *documents: Any, notes: list[str]) -> str:
    """YAML documents after the provenance and the notes as comments."""
    comments = [f"# {line}" for line in [*header(recommendation, provenance), *map(one_line, notes)]]
    return "\n".join(comments) + "\n" + dump(*documents)


def dump(*documents: Any) -> str:
    """YAML in the order given, without references between parts."""
    text = yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=10_000)
    if set(text).isdisjoint(_LINE_ENDS):
        return text
    # PyYAML writes these as they are into plain and quoted strings, where a reader folds them into spaces.
    return yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, allow_unicode=False, width=10_000)


class _Plain(yaml.SafeDumper):
    """Repeats what occurs twice: anchors are legal, but people copy parts of such files."""

    def ignore_aliases(self, data: object) -> bool:
        return data is not None


def directory_notes(deployed: Deployment, claim: str | None = None) -> list[str]:
    """What to know about local checkpoints, and the claim that they are mounted from."""
    place = f"put it on the claim {claim} as" if claim else "have it there under the same path"
    return [
        f"{path} is a directory of the measuring host: {place} {directory_name(path) if claim else ''}".rstrip()
        for path in deployed.directories
    ]
