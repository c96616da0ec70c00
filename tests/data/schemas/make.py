"""Makes the schemas of this folder from public ones: what the exports use, strict, without descriptions.

    python tests/data/schemas/make.py crd FOLDER/KSERVE_CRD.yaml v1beta1 kserve_inference_service.json
    python tests/data/schemas/make.py kubernetes KUBERNETES_JSON_SCHEMA/v1.37.0-local-strict kubernetes.json
    python tests/data/schemas/make.py plain compose-spec.json compose.json

Where each came from is in README.md beside this file. Equal parts are kept once, under `$defs`.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import yaml

KUBERNETES_KINDS = (
    "io.k8s.api.apps.v1.Deployment",
    "io.k8s.api.batch.v1.Job",
    "io.k8s.api.core.v1.PersistentVolumeClaim",
    "io.k8s.api.core.v1.PodTemplateSpec",
    "io.k8s.api.core.v1.Service",
)
DROPPED = ("description", "default", "example", "examples", "title", "format", "status")
SHARED_BYTES = 200


def main(kind: str, source: str, *rest: str) -> None:
    """Writes one file."""
    if kind == "crd":
        version, target = rest
        schema = crd(Path(source), version)
    elif kind == "kubernetes":
        (target,) = rest
        schema = kubernetes(Path(source))
    else:
        (target,) = rest
        schema = slim(json.loads(Path(source).read_text(encoding="utf-8")))
    text = json.dumps(schema, separators=(",", ":"), sort_keys=True)
    Path(__file__).with_name(target).write_text(text + "\n", encoding="utf-8")


def crd(path: Path, version: str) -> dict[str, Any]:
    """The schema of one version of a custom resource; unknown fields are refused, as `kubectl apply` refuses them."""
    document = next(one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one)
    found = next(v for v in document["spec"]["versions"] if v["name"] == version)
    schema = found["schema"]["openAPIV3Schema"]
    schema["properties"].pop("status", None)
    schema["properties"]["apiVersion"]["const"] = f"{document['spec']['group']}/{version}"
    schema["properties"]["kind"]["const"] = document["spec"]["names"]["kind"]
    schema["properties"]["metadata"] = METADATA
    return share(strict(slim(schema)))


METADATA: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
        "namespace": {"type": "string"},
        "labels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


def kubernetes(folder: Path) -> dict[str, Any]:
    """Some kinds and all that they refer to."""
    known = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))["$defs"]
    definitions: dict[str, Any] = {}
    waiting = list(KUBERNETES_KINDS)
    while waiting:
        name = waiting.pop()
        if name not in definitions:
            definitions[name] = slim(known[name])
            waiting += _point(definitions[name])
    definitions["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"] = {**METADATA, "required": []}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "$defs": definitions}


def _point(node: Any) -> list[str]:
    """Turns references to definitions of the file into ours, and returns their names."""
    found: list[str] = []
    if isinstance(node, dict) and isinstance(node.get("$ref"), str):
        found.append(node["$ref"].rsplit("/", 1)[-1])
        node["$ref"] = f"#/$defs/{found[-1]}"
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        found += _point(child)
    return found


def slim(node: Any, *, names: bool = False) -> Any:
    """Without what does not validate; the keys of `properties` are names, not keywords."""
    if isinstance(node, list):
        return [slim(child) for child in node]
    if not isinstance(node, dict):
        return node
    kept = {
        key: slim(child, names=key in {"properties", "$defs", "definitions", "patternProperties"} and not names)
        for key, child in node.items()
        if names or key not in DROPPED
    }
    if names:
        return kept
    return {
        key: value for key, value in kept.items() if not key.startswith("x-") or "preserve" in key or "int-or" in key
    }


def strict(node: Any) -> Any:
    """Objects with known fields take no others, unless the resource says that it keeps unknown ones."""
    if isinstance(node, list):
        return [strict(child) for child in node]
    if not isinstance(node, dict):
        return node
    made = {key: strict(child) for key, child in node.items()}
    if isinstance(made.get("properties"), dict) and made.get("type") == "object" and "additionalProperties" not in made:
        made["additionalProperties"] = bool(made.get("x-kubernetes-preserve-unknown-fields"))
    if made.pop("x-kubernetes-int-or-string", False):
        made = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    made.pop("x-kubernetes-preserve-unknown-fields", None)
    return made


def share(schema: dict[str, Any]) -> dict[str, Any]:
    """Equal parts once."""
    definitions: dict[str, Any] = {}

    def visit(node: Any) -> Any:
        if isinstance(node, list):
            return [visit(child) for child in node]
        if not isinstance(node, dict):
            return node
        made = {key: visit(child) for key, child in node.items()}
        text = json.dumps(made, sort_keys=True)
        if "type" not in made or not isinstance(made["type"], str) or len(text) < SHARED_BYTES:
            return made
        name = hashlib.sha256(text.encode()).hexdigest()[:8]
        definitions[name] = made
        return {"$ref": f"#/$defs/{name}"}

    root = visit(schema)
    return {"$schema": "http://json-schema.org/draft-07/schema#", **root, "$defs": definitions}


if __name__ == "__main__":
    main(*sys.argv[1:])
