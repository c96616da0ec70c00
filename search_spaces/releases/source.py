"""Reads Python source without importing it: definitions across modules, constants, and what an annotation allows.

Knows nothing of what vLLM's names mean; that is extract.py. Only the development scripts and tests use it.
"""

import ast
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Constant = bool | int | float | str | list[object] | dict[object, object] | None

_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.LShift: operator.lshift,
    ast.Pow: operator.pow,
}


class UnresolvedError(Exception):
    """An expression that has no value without running the code."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A name's definition and the module that it stands in."""

    module: str
    node: ast.AST


@dataclass
class Hint:
    """What an annotation allows: names of types, and the values of its Literals and enums."""

    types: set[str] = field(default_factory=set)
    choices: list[object] = field(default_factory=list)


class SourceTree:
    """The modules of one package directory."""

    def __init__(self, package: Path) -> None:
        self._root = package.parent
        self._trees: dict[str, ast.Module] = {}
        self._names: dict[str, dict[str, ast.AST]] = {}

    def module(self, name: str) -> ast.Module:
        """The syntax tree of a module; UnresolvedError when it is no Python file of the package."""
        if name not in self._trees:
            path = self._root.joinpath(*name.split("."))
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            if not file.is_file():
                raise UnresolvedError(name)
            self._trees[name] = ast.parse(file.read_text(encoding="utf-8"))
        return self._trees[name]

    def find(self, module: str, name: str) -> Definition:
        """Where a name that a module uses is defined, through any chain of imports."""
        node = self._top_level(module).get(name)
        if node is None:
            raise UnresolvedError(f"{module}.{name}")
        if isinstance(node, ast.ImportFrom):
            original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
            return self.find(_absolute(module, node, self._is_package(module)), original)
        return Definition(module, node)

    def class_fields(self, module: str, class_name: str) -> Iterator[tuple[str, str, ast.AnnAssign]]:
        """(module, name, annotated assignment) of a class and its bases in the package, bases first."""
        found = self.find(module, class_name)
        if not isinstance(found.node, ast.ClassDef):
            raise UnresolvedError(class_name)
        for base in found.node.bases:
            if isinstance(base, ast.Name):
                try:
                    yield from self.class_fields(found.module, base.id)
                except UnresolvedError:
                    continue  # a base outside the package, such as Generic
        for node in found.node.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not _is_class_var(node):
                yield found.module, node.target.id, node

    def value(self, module: str, node: ast.AST) -> Constant:  # noqa: PLR0911 - one case a line
        """The constant that an expression stands for."""
        match node:
            case ast.Constant(value=value):
                return value if isinstance(value, bool | int | float | str | None) else str(value)
            case ast.Tuple() | ast.List() | ast.Set():
                return [self.value(module, element) for element in node.elts]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._arithmetic(module, ast.BinOp(left=ast.Constant(0), op=ast.Sub(), right=operand))
            case ast.BinOp():
                return self._arithmetic(module, node)
            case ast.Call(func=ast.Name(id="frozenset" | "set"), args=[elements]):
                return self.value(module, elements)
            case ast.Name(id=name):
                found = self.find(module, name)
                if isinstance(found.node, ast.Assign | ast.AnnAssign) and found.node.value is not None:
                    return self.value(found.module, found.node.value)
            case ast.Attribute(value=ast.Name(id=owner), attr=attribute):
                return self._class_attribute(module, owner, attribute)
        raise UnresolvedError(ast.dump(node)[:80])

    def _arithmetic(self, module: str, node: ast.BinOp) -> Constant:
        left, right = self.value(module, node.left), self.value(module, node.right)
        if type(node.op) in _ARITHMETIC and isinstance(left, int | float) and isinstance(right, int | float):
            number: int | float = _ARITHMETIC[type(node.op)](left, right)
            return number
        raise UnresolvedError(ast.unparse(node))

    def hint(self, module: str, node: ast.AST) -> Hint:
        """What an annotation allows."""
        hint = Hint()
        self._add(hint, module, node)
        return hint

    def _add(self, hint: Hint, module: str, node: ast.AST) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self._add(hint, module, ast.parse(node.value, mode="eval").body)
        elif isinstance(node, ast.Constant):
            hint.types.add("None")
        elif isinstance(node, ast.BinOp):
            self._add(hint, module, node.left)
            self._add(hint, module, node.right)
        elif isinstance(node, ast.Subscript):
            self._add_subscript(hint, module, node)
        else:
            self._add_name(hint, module, node)

    def _add_subscript(self, hint: Hint, module: str, node: ast.Subscript) -> None:
        name = _last_name(node.value)
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name == "Literal":
            for element in inner:
                self._add_literal(hint, module, element)
        elif name in {"Annotated", "SkipValidation"}:
            self._add(hint, module, inner[0])
        elif name in {"Optional", "Union"}:
            for element in inner:
                self._add(hint, module, element)
            hint.types |= {"None"} if name == "Optional" else set()
        else:
            hint.types.add(name)

    def _add_literal(self, hint: Hint, module: str, node: ast.AST) -> None:
        """One element of a Literal: a value, or the name of another Literal."""
        hint.types.add("Literal")
        if isinstance(node, ast.Name):
            found = self.find(module, node.id)
            if isinstance(found.node, ast.Assign | ast.AnnAssign) and found.node.value is not None:
                self._add(hint, found.module, found.node.value)
        else:
            hint.choices.append(self.value(module, node))

    def _add_name(self, hint: Hint, module: str, node: ast.AST) -> None:
        name = _last_name(node)
        try:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found = self.find(self._imported_module(module, node.value.id), name)
            else:
                found = self.find(module, name)
        except UnresolvedError:
            hint.types.add(name)  # a builtin, or a name from outside the package
            return
        if isinstance(found.node, ast.ClassDef):
            members = _enum_members(found.node)
            hint.types.add("enum" if members else "dataclass")
            hint.choices += members.values()
        elif isinstance(found.node, ast.Assign | ast.AnnAssign) and found.node.value is not None:
            self._add(hint, found.module, found.node.value)

    def _class_attribute(self, module: str, class_name: str, attribute: str) -> Constant:
        found = self.find(module, class_name)
        if isinstance(found.node, ast.ClassDef):
            member = _enum_members(found.node).get(attribute)
            if isinstance(member, int | str):
                return member
            for node in found.node.body:
                if isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    if any(isinstance(target, ast.Name) and target.id == attribute for target in targets):
                        return self.value(found.module, node.value)
        raise UnresolvedError(f"{class_name}.{attribute}")

    def _imported_module(self, module: str, alias: str) -> str:
        """The module that `import a.b as alias` names; vLLM hides such an import behind a LazyLoader at times."""
        node = self._top_level(module).get(alias)
        if isinstance(node, ast.Import):
            return next(name.name for name in node.names if (name.asname or name.name) == alias)
        raise UnresolvedError(f"{module}.{alias}")

    def _is_package(self, module: str) -> bool:
        return self._root.joinpath(*module.split(".")).is_dir()

    def _top_level(self, module: str) -> dict[str, ast.AST]:
        """Names that a module defines or imports, also under `if TYPE_CHECKING`; the first definition counts."""
        if module not in self._names:
            names: dict[str, ast.AST] = {}
            for node in _statements(self.module(module).body):
                for name in _defined(node):
                    names.setdefault(name, node)
            self._names[module] = names
        return self._names[module]


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from _statements(node.body)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _absolute(module: str, node: ast.ImportFrom, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    parent = parts[: len(parts) - node.level + (1 if is_package else 0)]
    return ".".join([*parent, *([node.module] if node.module else [])])


def _enum_members(node: ast.ClassDef) -> dict[str, object]:
    """What a user writes for each member of an enum: its value, or its name where the value is an import path."""
    if not any("Enum" in _last_name(base) for base in node.bases):
        return {}
    members: dict[str, object] = {}
    for statement in node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            value = statement.value.value if isinstance(statement.value, ast.Constant) else None
            usable = isinstance(value, int) or (isinstance(value, str) and value and "." not in value)
            if not name.startswith("_"):
                members[name] = value if usable else name
    return members


def _is_class_var(node: ast.AnnAssign) -> bool:
    return "ClassVar" in ast.unparse(node.annotation) or "InitVar" in ast.unparse(node.annotation)


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else type(node).__name__
