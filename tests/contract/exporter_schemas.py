"""What our exporters' contract tests share: reading what was written as its consumer does, and the formats' schemas."""

from __future__ import annotations

import functools
import json
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft7Validator
from referencing import Registry, Resource

from tuner.exporters import EXPORTERS
from tuner.exporters.testing import ExporterContract, provenance, samples

SCHEMAS = Path(__file__).parents[1] / "data" / "schemas"
REGISTRY: Registry[Any] = Registry().with_resource(
    "kubernetes.json", Resource.from_contents(json.loads((SCHEMAS / "kubernetes.json").read_text(encoding="utf-8")))
)
Started = tuple[Sequence[str], Mapping[str, str]]


def loaded(text: str) -> Any:
    """The one document of a file."""
    (document,) = all_loaded(text)
    return document


def all_loaded(text: str) -> list[Any]:
    """All documents of a file, by libyaml where PyYAML has it: ten times as fast."""
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def problems(document: Any, schema: str, pointer: str = "") -> list[str]:
    """What a schema of the folder says against a document."""
    return [f"{error.json_path}: {error.message[:200]}" for error in validator(schema, pointer).iter_errors(document)]


@functools.cache
def validator(schema: str, pointer: str) -> Draft7Validator:
    """Made once: resolving references costs more than validating."""
    root = json.loads((SCHEMAS / schema).read_text(encoding="utf-8"))
    return Draft7Validator({"$ref": f"kubernetes.json#/$defs/{pointer}"} if pointer else root, registry=REGISTRY)


def in_kubernetes(text: str, variables: Mapping[str, str] | None = None) -> str:
    """`$(NAME)` expanded, `$$` a `$`: k8s.io/kubernetes/third_party/forked/golang/expansion."""
    known = variables or {}

    def one(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return known.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)


def container_starts(container: Mapping[str, Any], command: Sequence[str] = ("vllm", "serve")) -> Started:
    """What Kubernetes starts in a container."""
    variables = {one["name"]: in_kubernetes(one["value"]) for one in container.get("env", ()) if "value" in one}
    words = [*container["command"], *(in_kubernetes(word, variables) for word in container["args"])]
    assert words[: len(command)] == list(command)
    return words[len(command) :], variables


def in_go_template(text: str) -> str:
    """A Go template whose only actions are raw strings; any other action fails."""
    return re.sub(r"\{\{`(.*?)`\}\}|\{\{.*", lambda m: _action(m[1]), text, flags=re.DOTALL)


def _action(raw: str | None) -> str:
    assert raw is not None, "an action that is no raw string"
    return raw


class OwnContract(ExporterContract):
    """Ours, by name; also: the schema takes every sample, and any text goes through."""

    def __init_subclass__(cls, name: str, **_: object) -> None:
        cls.exporter = EXPORTERS[name]

    @abstractmethod
    def invalid(self, text: str) -> list[str]:
        """What the format's schema says against it."""

    def test_its_schema_takes_every_sample(self) -> None:
        for sample, made in samples().items():
            assert self.invalid(self.exporter.export(made, provenance())) == [], sample
        assert self.invalid(self.exporter.export(samples()["plain"], provenance(gpus=()))) == []

    def test_its_schema_refuses_a_broken_one(self) -> None:
        broken = self.broken(self.exporter.export(samples()["plain"], provenance()))
        assert self.invalid(broken) != []

    def broken(self, text: str) -> str:
        """The same with a field that nobody knows."""
        documents = all_loaded(text)
        documents[-1]["unknown"] = 1
        return yaml.safe_dump_all(documents)
