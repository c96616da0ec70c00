"""Which flags `vllm serve` takes and which fields speculative_config has, read from vLLM's source.

vLLM makes most flags from the fields of its config classes (EngineArgs.add_cli_args); this follows them to the field's
annotation and default. Part of extract.py; not needed at run time.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from search_spaces.releases.source import Constant, Hint, SourceTree, UnresolvedError

ARGS = "vllm.engine.arg_utils"
SPECULATIVE = "vllm.config.speculative"
_BUILTIN_TYPES = {"bool": "bool", "int": "int", "float": "float", "str": "str", "dict": "json", "dataclass": "json"}

Described = dict[str, Any]


def serve_flags(source: SourceTree) -> dict[str, Described]:
    """All flags of `vllm serve` without dashes: the engine's and the front end's, with type, choices and default."""
    flags: dict[str, Described] = {}
    for function in functions(source.module(ARGS), "add_cli_args"):
        assigned = _assignments(function)
        for name, keywords in _arguments(function):
            flags[name] = _flag(source, ARGS, keywords, assigned)
    front_end = _front_end_module(source)
    for module, name, node in source.class_fields(front_end, "FrontendArgs"):
        flags[name.replace("_", "-")] = _field(source, module, node)
    for function in functions(source.module(front_end), "make_arg_parser"):
        for name, keywords in _arguments(function):
            flags[name] = _flag(source, front_end, keywords, {})
    return dict(sorted(flags.items()))


def speculative_fields(source: SourceTree) -> dict[str, Described]:
    """Fields of SpeculativeConfig that a user may set; those that vLLM fills in with its own configs are left out."""
    fields = {
        name: _field(source, module, node)
        for module, name, node in source.class_fields(SPECULATIVE, "SpeculativeConfig")
        if not re.search("ModelConfig|ParallelConfig", ast.unparse(node.annotation))
    }
    return {"method": {"type": "str", "default": None}, **{n: f for n, f in fields.items() if n != "method"}}


def functions(tree: ast.AST, name: str | None = None) -> Iterator[ast.FunctionDef]:
    """All functions in a tree, or those of one name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and name in (None, node.name):
            yield node


def _assignments(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """What each local name was first given."""
    assigned: dict[str, ast.expr] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, node.value)
    return assigned


def _arguments(function: ast.FunctionDef) -> Iterator[tuple[str, list[ast.keyword]]]:
    """(flag without dashes, keywords) of each add_argument call, once for each of its long names."""
    for node in ast.walk(function):
        call = _call(node, "add_argument")
        for argument in call.args if call else ():
            if isinstance(argument, ast.Constant) and str(argument.value).startswith("--"):
                yield str(argument.value)[2:], call.keywords if call else []


def _flag(source: SourceTree, module: str, keywords: list[ast.keyword], assigned: dict[str, ast.expr]) -> Described:
    """One add_argument call: keywords that are written out override what the config class says of the field."""
    found: Described = {"type": "str", "default": None}
    for keyword in keywords:
        if keyword.arg is None:
            found |= _unpacked(source, module, keyword.value, assigned)
        elif keyword.arg == "default":
            found["default"] = _value_or_none(source, module, keyword.value)
        elif keyword.arg == "choices":
            found |= _chosen(source, module, keyword.value)
        elif keyword.arg == "action" and re.search("BooleanOptionalAction|store_true", ast.unparse(keyword.value)):
            found["type"] = "bool"
        elif keyword.arg == "type":
            found["type"] = _BUILTIN_TYPES.get(ast.unparse(keyword.value), found["type"])
    return found


def _unpacked(source: SourceTree, module: str, node: ast.expr, assigned: dict[str, ast.expr]) -> Described:
    """What `**expression` brings: a field of a config, or a dict that unpacks one and changes its default."""
    if isinstance(node, ast.Dict):
        found: Described = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                found |= _unpacked(source, module, value, assigned)
            elif isinstance(key, ast.Constant) and key.value == "default":
                found["default"] = _value_or_none(source, module, value)
        return found
    if isinstance(node, ast.Name) and node.id in assigned:
        return _unpacked(source, module, assigned[node.id], assigned)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        config = assigned.get(node.value.id) if isinstance(node.value, ast.Name) else node.value
        call = _call(config, "get_kwargs")
        if call is not None:
            return _config_field(source, module, ast.unparse(call.args[0]), str(node.slice.value))
    raise UnresolvedError(ast.unparse(node))


def _config_field(source: SourceTree, module: str, config: str, field: str) -> Described:
    for where, name, node in source.class_fields(module, config):
        if name == field:
            return _field(source, where, node)
    raise UnresolvedError(f"{config}.{field}")


def _chosen(source: SourceTree, module: str, node: ast.expr) -> Described:
    try:
        return {"type": "choice", "choices": sorted(set(map(str, _choices(source, module, node))))}
    except UnresolvedError:
        return {"type": "str"}  # the values depend on the platform that vLLM finds


def _choices(source: SourceTree, module: str, node: ast.expr) -> list[object]:
    """Values that argparse is told; those of one platform only count too."""
    if isinstance(node, ast.BinOp):
        return _choices(source, module, node.left) + _choices(source, module, node.right)
    if isinstance(node, ast.IfExp):
        return _choices(source, module, node.body) + _choices(source, module, node.orelse)
    call = _call(node, "get_args")
    values = source.hint(module, call.args[0]).choices if call else source.value(module, node)
    if not isinstance(values, list):
        raise UnresolvedError(ast.unparse(node))
    return values


def _field(source: SourceTree, module: str, node: ast.AnnAssign) -> Described:
    """Type, choices and default of a config's field."""
    hint = source.hint(module, node.annotation)
    found: Described = {"type": _type_name(hint)}
    if hint.choices and found["type"] != "bool":
        # A Literal beside str is a hint to the reader; of an enum's members vLLM takes other spellings too.
        found["type"] = "open_choice" if hint.types & {"str", "enum"} else "choice"
        found["choices" if found["type"] == "choice" else "known"] = sorted(set(map(str, hint.choices)))
    default: ast.expr | None = node.value
    if isinstance(default, ast.Call):
        keywords = {keyword.arg: keyword.value for keyword in default.keywords}
        default = keywords.get("default", default.args[0] if default.args else None)
    found["default"] = None if default is None else _value_or_none(source, module, default)
    return found


def _type_name(hint: Hint) -> str:
    types = hint.types - {"None", "Literal", "enum"}
    if types == {"bool", "str"}:  # a flag with an optional value
        return "str"
    for name in ("bool", "dataclass", "dict", "int", "float", "str"):
        if name in types:
            return _BUILTIN_TYPES[name]
    return "list" if types & {"list", "tuple", "set"} else "str"


def _value_or_none(source: SourceTree, module: str, node: ast.expr) -> Constant:
    try:
        return source.value(module, node)
    except UnresolvedError:
        return None  # decided when the engine runs


def _front_end_module(source: SourceTree) -> str:
    for place in ("common", "launchers", "openai"):  # 0.33, 0.29 and 0.28
        name = f"vllm.entrypoints.{place}.cli_args"
        try:
            source.find(name, "FrontendArgs")
        except UnresolvedError:
            continue
        return name
    raise UnresolvedError("FrontendArgs")


def _call(node: ast.AST | None, name: str) -> ast.Call | None:
    """The node when it is a call of that function or method."""
    return node if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name else None
