"""Makes a release table from the source of a released vLLM package, without importing it.

Run it when vLLM has a new release, read the difference by eye, and commit the table:

    python -m search_spaces.releases.extract SITE_PACKAGES/vllm --previous OLDER/vllm > search_spaces/releases/0.34.yaml

Not needed at run time. What a table means is release.py's business; how source is read is source.py's.
"""

import argparse
import ast
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from search_spaces.checkpoint import METHOD_OF_WORD
from search_spaces.releases.flags import ARGS, SPECULATIVE, functions, serve_flags, speculative_fields
from search_spaces.releases.source import Hint, SourceTree, UnresolvedError

_CONFIG = "vllm.config.vllm"
# In the order of the tests in EngineArgs.get_batch_defaults; the last of its first chain is every other GPU.
_MEMORY_CLASSES = {"160 * GiB_bytes": "huge_gpu", "70 * GiB_bytes": "large_gpu"}


def extract(package: Path, previous: Path | None = None) -> dict[str, Any]:
    """The table of one release line as plain data.

    Args:
        package: the package's directory, `.../site-packages/vllm`.
        previous: that of the release before, to tell what was removed.

    Raises:
        UnresolvedError: the source is laid out in a way that this script does not know; read it and extend the script.
    """
    source = SourceTree(package)
    version = _version(source)
    flags = serve_flags(source)
    methods, deprecated = _methods(source)
    fields = speculative_fields(source)
    dropping = _dropping_methods(source)
    table: dict[str, Any] = {
        "version": ".".join(version.split(".")[:2]),
        "provenance": f"source of the vLLM {version} package, read by search_spaces/releases/extract.py",
        "methods": methods,
        "deprecated_methods": deprecated,
        "block_drop": {"methods": dropping, "can_disable": "disable_eagle_block_drop" in fields},
        "excess_draft_tokens": "lowers_concurrency" if _caps_active_sequences(source) else "crash",
        "v2_runner_only": {"methods": _v2_methods(source), "architectures": _v2_architectures(source)},
        "draft_architectures": _draft_architectures(source),
        "speculators_types": _speculators_types(source),
        "defaults": _defaults(source),
        "speculative_fields": fields,
        "flags": flags,
    }
    if previous is not None:
        before = extract(previous)
        table["removed"] = {
            "since": before["version"],
            "flags": sorted(set(before["flags"]) - set(flags)),
            "speculative_fields": sorted(set(before["speculative_fields"]) - set(fields)),
            "methods": sorted(set(before["methods"]) - set(methods)),
        }
    return table


def _version(source: SourceTree) -> str:
    for node in ast.walk(source.module("vllm._version")):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "version" for t in node.targets):
            return str(source.value("vllm._version", node.value))
    raise UnresolvedError("vllm._version.version")


def _methods(source: SourceTree) -> tuple[list[str], list[str]]:
    """Methods, and the model-specific MTP names that vLLM replaces by `mtp`."""
    everything = [str(value) for value in _alias(source, "SpeculativeMethod").choices]
    aliases = [str(value) for value in _alias(source, "MTPModelTypes").choices if value != "mtp"]
    return [name for name in everything if name not in aliases], aliases


def _alias(source: SourceTree, name: str) -> Hint:
    return source.hint(SPECULATIVE, ast.Name(id=name))


def _dropping_methods(source: SourceTree) -> list[str]:
    """Methods whose prefix hits lose the last block: those of use_eagle, less those that a later rule exempts."""
    rules = {node.name: node for node in functions(source.module(SPECULATIVE))}
    compared = next(node for node in ast.walk(rules["use_eagle"]) if isinstance(node, ast.Compare))
    dropping = source.value(SPECULATIVE, compared.comparators[0])
    needs = rules.get("needs_eagle_block_drop")
    text = ast.unparse(needs.body[-1]) if needs else ""
    exempt = set(re.findall(r"use_(\w+)\(\)", text.partition("not (")[2]))
    return [str(name) for name in dropping if name not in exempt] if isinstance(dropping, list) else []


def _caps_active_sequences(source: SourceTree) -> bool:
    """Whether the release lowers max_num_active_seqs instead of letting draft tokens outgrow the token budget."""
    return any(
        isinstance(node, ast.If)
        and "use_dflash" in ast.unparse(node.test)
        and "scheduler_config.max_num_active_seqs = " in ast.unparse(node)
        for node in ast.walk(source.module(_CONFIG))
    )


def _v2_methods(source: SourceTree) -> list[str]:
    """Methods that model runner V1 refuses, or that force V2 where there was no such list yet."""
    rules = {node.name: node for node in functions(source.module(_CONFIG))}
    rule = rules.get("_get_v1_model_runner_unsupported_features") or rules["use_v2_model_runner"]
    return sorted(set(re.findall(r"speculative_config\.method == '(\w+)'", ast.unparse(rule))))


def _v2_architectures(source: SourceTree) -> list[str]:
    """Draft architectures with a head that only model runner V2 calls."""
    rules = {node.name: node for node in functions(source.module(_CONFIG))}
    rule = rules.get("_is_dflash_candidate_draft") or rules.get("_is_dflash2_draft")
    found = set(re.findall(r"'(\w+DraftModel)'", ast.unparse(rule))) if rule else set()
    v1 = rules.get("_get_v1_model_runner_unsupported_features")
    if v1 is not None and "is_xpress" in ast.unparse(v1):
        architectures = source.value(SPECULATIVE, ast.Name(id="XPRESS_ARCHITECTURES"))
        found |= {str(name) for name in architectures} if isinstance(architectures, list) else set()
    return sorted(found)


def _draft_architectures(source: SourceTree) -> dict[str, str]:
    """Draft classes that the model registry knows, with the method that each is served under."""
    module = "vllm.model_executor.models.registry"
    found = source.find(module, "_SPECULATIVE_DECODING_MODELS").node
    registry = found.value if isinstance(found, ast.Assign | ast.AnnAssign) else None
    if not isinstance(registry, ast.Dict):
        raise UnresolvedError("_SPECULATIVE_DECODING_MODELS")
    methods = {}
    for key, value in zip(registry.keys, registry.values, strict=True):
        name = str(source.value(module, key)) if key is not None else ""
        implementation = f"{name} {ast.unparse(value)}"
        for word, method in METHOD_OF_WORD.items():
            if word.lower() in implementation.lower():
                methods[name] = method
                break
    return methods


def _speculators_types(source: SourceTree) -> list[str]:
    """Values of speculators_model_type (checkpoints in the Speculators format) that the release can load."""
    module = source.module("vllm.transformers_utils.configs.speculators.algos")
    return re.findall(r"@register_speculator\('(\w+)'\)", ast.unparse(module))


def _defaults(source: SourceTree) -> dict[str, dict[str, int]]:
    """vLLM's own limits by kind of device, for the API server and one worker, and the unit of KV block sizes."""
    function = next(functions(source.module(ARGS), "get_batch_defaults"))
    defaults: dict[str, dict[str, int]] = {}
    for statement in function.body:
        if not isinstance(statement, ast.If):
            continue
        if "device_memory" in ast.unparse(statement.test):
            defaults |= _by_memory(statement)
        elif "is_cpu()" in ast.unparse(statement.test):
            defaults["cpu"] = _batch_limits(statement.body)
    units = {"cpu": _kv_block_unit(source, "cpu_attn")}
    gpu_unit = _kv_block_unit(source, "flash_attn")
    return {kind: {**limits, "kv_block_multiple": units.get(kind, gpu_unit)} for kind, limits in defaults.items()}


def _by_memory(statement: ast.If) -> dict[str, dict[str, int]]:
    found = {}
    while True:
        text = ast.unparse(statement.test)
        kind = next(kind for words, kind in _MEMORY_CLASSES.items() if words in text)
        found[kind] = _batch_limits(statement.body)
        if len(statement.orelse) == 1 and isinstance(statement.orelse[0], ast.If):
            statement = statement.orelse[0]
            continue
        found["gpu"] = _batch_limits(statement.orelse)
        return found


def _batch_limits(body: list[ast.stmt]) -> dict[str, int]:
    text = "\n".join(map(ast.unparse, body))
    limits = {}
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        match = re.search(rf"default_{name} = {{.*OPENAI_API_SERVER: (\d+)", text)
        if match is None:
            raise UnresolvedError(f"get_batch_defaults: {name}")
        limits[name] = int(match[1])
    return limits


def _kv_block_unit(source: SourceTree, backend: str) -> int:
    function = next(
        functions(source.module(f"vllm.v1.attention.backends.{backend}"), "get_supported_kernel_block_sizes")
    )
    return min(int(number) for number in re.findall(r"MultipleOf\((\d+)\)", ast.unparse(function)))


def to_yaml(table: dict[str, Any]) -> str:
    """One line for each flag and field, so that two releases can be compared line by line."""
    return yaml.safe_dump(table, sort_keys=False, default_flow_style=None, width=100_000, allow_unicode=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", type=Path, help="directory of the released package, .../site-packages/vllm")
    parser.add_argument("--previous", type=Path, help="the same of the release before, to tell what was removed")
    options = parser.parse_args()
    sys.stdout.write(to_yaml(extract(options.package, options.previous)))


if __name__ == "__main__":
    main()
