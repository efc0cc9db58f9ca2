"""What some code of a notebook imports, changes in what it has imported, and puts there by decorators and calls.

It reads the text and looks at no object: `imported` does.
"""

from __future__ import annotations

import ast
import contextlib
import functools
from typing import Any, NamedTuple

__all__ = ["Code", "Target", "read"]

_MUTATORS = frozenset({
    "update", "setdefault", "append", "add", "extend", "insert", "pop", "popitem", "clear", "remove", "discard",
})  # fmt: skip
_RUN_HERE = frozenset({"time", "timeit", "capture", "prun"})
"""Cell magics whose text runs in the notebook."""


class Target(NamedTuple):
    """Something that code changes: `lib.TABLE["a"] = 1` changes the item "a" of `TABLE` of `lib`."""

    root: str
    path: tuple[str, ...]
    kind: str
    key: Any


class Code(ast.NodeVisitor):
    """Reads what stands in some code.

    Attributes:
        imports: What each name was imported as: a module, and an attribute of it or nothing.
        modules: All modules that it imports.
        targets: What it changes.
        decorators: Names in decorators, and in the annotations of what they decorate.
        calls: The name in front of each call that is given names, and those.
    """

    def __init__(self) -> None:
        self.imports: dict[str, tuple[str, str]] = {}
        self.modules: list[str] = []
        self.targets: list[Target] = []
        self.decorators: list[str] = []
        self.calls: list[tuple[str, ...]] = []

    def visit_Import(self, node: ast.Import) -> None:
        """Note the modules."""
        for alias in node.names:
            top = alias.name.partition(".")[0]
            self.imports[alias.asname or top] = (alias.name if alias.asname else top, "")
            self.modules.append(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Note the module, and its attributes by the names that they get."""
        if node.module and not node.level:
            self.modules.append(node.module)
            for alias in node.names:
                self.imports[alias.asname or alias.name] = (node.module, alias.name)
                self.modules.append(f"{node.module}.{alias.name}")

    def visit_Attribute(self, node: ast.Attribute | ast.Subscript) -> None:
        """Note what an assignment changes."""
        if isinstance(node.ctx, ast.Store):
            self.targets += _target(node)
        self.generic_visit(node)

    visit_Subscript = visit_Attribute  # noqa: N815 (the name ast looks for)

    def visit_Call(self, node: ast.Call) -> None:
        """Note what a call changes, and whom it is given."""
        self.targets += _called(node)
        given = [arg.id for arg in node.args if isinstance(arg, ast.Name)]
        if given and (front := _names_in(node.func)):
            self.calls.append((front[0], *given))
        if (inner := _cell_in(node)) is not None:
            with contextlib.suppress(SyntaxError, ValueError, RecursionError):
                self.visit(ast.parse(inner))
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Note the names in its decorators."""
        if node.decorator_list:
            self.decorators += _names_in(*node.decorator_list, node.args)
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 (as above)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Note the names in its decorators."""
        self.decorators += _names_in(*node.decorator_list)
        self.generic_visit(node)


@functools.lru_cache(4096)
def read(source: str) -> Code:
    """Return what stands in some code; nothing of what is no Python."""
    found = Code()
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        found.visit(ast.parse(source))
    return found


def _names_in(*nodes: ast.AST) -> list[str]:
    return [part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)]


def _target(node: ast.expr) -> list[Target]:
    """Return what an assignment to an attribute or item changes: of nested items the outermost."""
    steps: list[ast.Attribute | ast.Subscript] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        steps.insert(0, node)
        node = node.value
    if not isinstance(node, ast.Name) or not steps:
        return []
    path: list[str] = []
    for step in steps:
        if isinstance(step, ast.Subscript):
            constant = isinstance(step.slice, ast.Constant)
            kind, key = (
                ("item", step.slice.value) if isinstance(step.slice, ast.Constant) else ("content", None)
            )
            return [Target(node.id, tuple(path), kind if constant else "content", key)]
        path.append(step.attr)
    return [Target(node.id, tuple(path[:-1]), "attribute", path[-1])]


def _called(node: ast.Call) -> list[Target]:
    """Return what a call of `setattr`, or of a method that changes a list or dictionary, changes."""
    if isinstance(node.func, ast.Name) and node.func.id == "setattr" and len(node.args) == 3:
        name = node.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            return _target(ast.Attribute(node.args[0], name.value, ast.Store()))
    if isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATORS:
        return [
            Target(found.root, (*found.path, found.key), "content", None)
            for found in _target(node.func.value)
            if found.kind == "attribute"
        ] or (
            [Target(node.func.value.id, (), "content", None)] if isinstance(node.func.value, ast.Name) else []
        )
    return []


def _cell_in(node: ast.Call) -> str | None:
    """Return the text of a cell magic that runs it here: `%%time`."""
    words = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    is_magic = isinstance(node.func, ast.Attribute) and node.func.attr == "run_cell_magic" and len(words) == 3
    return words[2] if is_magic and words[0] in _RUN_HERE else None
