"""Which of the notebook's variables a cell reads, known before anything is started.

The cell is read statement by statement in the order of execution: a name that is loaded before the cell has
bound it comes from the notebook. What a function's body reads counts from the moment the function's name is
first used, so a model defined between the function and its call is the cell's own. Scopes inside functions
and classes are resolved by the compiler's own tables (`symtable`).

Text in a cell (`!echo {lr}`, `%env X={v}`, `df.query("a > @v")`, `eval("x")`) is searched for names, too
(`mentions`): they are taken along where the notebook has them, and never reported. Nor is any name where others may
be made unseen: by a star import, `exec` of text that is computed, `%run`, a magic of another package.

After a loop or `try` its bindings count as made, after an `if` those made on both sides: a name that may be
unbound at run time is taken along if the notebook has it, and not reported if it has not.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import difflib
import dis
import symtable
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tsnb.errors import TsnbError
from tsnb.kernels.cargo.mentions import mentions_in, names_in_texts
from tsnb.kernels.cargo.pickling import KERNELS_OWN

__all__ = ["Captured", "UndefinedNames", "capture", "loops_over", "take_along"]

PROVIDED = KERNELS_OWN | {"tsnb"} | set(dir(builtins))
"""What a cell may read although neither it nor the notebook defines it."""


class UndefinedNames(TsnbError, NameError):
    """A cell reads names that neither it nor the notebook defines."""


@dataclass(frozen=True)
class Captured:
    """What a cell takes along."""

    variables: dict[str, Any] = field(default_factory=dict)
    """Objects of the notebook, by the name that the cell reads them by."""
    modules: dict[str, str] = field(default_factory=dict)
    """Modules, which travel by name: the cell's word for each (`np`) and its real name (`numpy`)."""
    mentioned: frozenset[str] = frozenset()
    """Those of the variables that the cell has in texts only: without them it may do as well."""
    bound: frozenset[str] = frozenset()
    """Names that the cell sets itself, at its top level."""
    imports: tuple[str, ...] = ()
    """Submodules that the notebook has imported and the cell reaches by attribute (`torch.nn.functional`)."""

    def joined(self, other: Captured) -> Captured:
        """Return it with what another cell takes along besides."""
        return replace(
            self,
            variables={**other.variables, **self.variables},
            modules={**other.modules, **self.modules},
            mentioned=(self.mentioned | other.mentioned) - (self.required | other.required),
            imports=tuple(dict.fromkeys([*other.imports, *self.imports])),
        )

    @property
    def required(self) -> frozenset[str]:
        """The variables that the cell reads, not in texts only."""
        return frozenset(self.variables) - self.mentioned

    def without(self, names: Iterable[str]) -> Captured:
        """Return it without some of the variables."""
        dropped = set(names)
        return replace(self, variables={n: v for n, v in self.variables.items() if n not in dropped})


def capture(
    source: str,
    namespace: Mapping[str, Any],
    *,
    also: Iterable[str] = (),
    made: Iterable[str] = (),
    bodies: bool = False,
    check: bool = True,
) -> Captured:
    """Find what a cell needs from the notebook.

    Args:
        source: The cell's Python, after IPython's own transformations.
        namespace: The notebook's variables.
        also: Variables that it takes along whether it reads them or not.
        made: Names that there will be before it runs.
        bodies: Whether its functions may be called by others: what they read is taken along where the notebook has it.
        check: Whether a name that is not defined is an error.

    Raises:
        UndefinedNames: It reads names that are not defined; lists them, with the nearest known names. Or `also` has
            some that the notebook lacks.
        SyntaxError: It is not valid Python.
    """
    tree = compile(source, "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    reading = _NameReader(symtable.symtable(source, "<cell>", "exec"))
    reading.run(tree.body)
    wanted = list(also)
    take_along(wanted, namespace)
    defined = {*namespace, *reading.ever_bound, *made, *PROVIDED}
    defined = defined.union(*(_globals_set(namespace[n]) for n in reading.reads if n in namespace))
    missing = [name for name in reading.reads if name not in defined]
    if check and missing and not reading.may_bind:
        raise UndefinedNames(_missing_message(missing, namespace))
    mentions = [*reading.mentions, *(names_in_texts(tree) if reading.looks else ())]
    mentions += reading.read_later() if bodies else ()
    variables, modules = _split([*reading.reads, *wanted, *mentions], namespace)
    return Captured(
        variables,
        modules,
        frozenset(variables.keys() - reading.reads.keys() - set(wanted)),
        frozenset(reading.ever_bound),
        tuple(_submodules(tree, modules)),
    )


def take_along(names: Iterable[str], namespace: Mapping[str, Any]) -> Captured:
    """Return variables of the notebook by name, for code that reads nothing else of it.

    Raises:
        UndefinedNames: The notebook lacks some.
    """
    lacking = [name for name in names if name not in namespace]
    if lacking:
        raise UndefinedNames(_missing_message(lacking, namespace))
    return Captured(*_split(names, namespace))


def _split(names: Iterable[str], namespace: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return those variables that the notebook has, and apart from them the modules, by their names."""
    found = {n: namespace[n] for n in dict.fromkeys(names) if n in namespace and n not in KERNELS_OWN}
    modules = {n: v.__name__ for n, v in found.items() if _travels_by_name(v)}
    return {n: v for n, v in found.items() if n not in modules}, modules


def _globals_set(value: Any) -> set[str]:
    """Return the names that the notebook's functions make by `global`: this one, and those that it calls."""
    names: set[str] = set()
    pending, seen = [value], set[int]()
    while pending:
        function = pending.pop()
        if id(function) in seen or getattr(function, "__module__", "") != "__main__":
            continue
        seen.add(id(function))
        if isinstance(function, type):
            pending += vars(function).values()
        pending.append(getattr(function, "__dict__", {}).get("__wrapped__"))
        if isinstance(function, types.FunctionType):
            for code in _codes_of(function.__code__):
                names |= {str(s.argval) for s in dis.get_instructions(code) if s.opname == "STORE_GLOBAL"}
                pending += [function.__globals__[n] for n in code.co_names if n in function.__globals__]
    return names


def _codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _codes_of(inner)


def _travels_by_name(value: Any) -> bool:
    return isinstance(value, types.ModuleType) and sys.modules.get(value.__name__) is value


def _submodules(tree: ast.AST, modules: Mapping[str, str]) -> Iterable[str]:
    """Give `a.b` for each `word.b` in the cell that is a module the notebook has imported."""
    found = set()
    for node in ast.walk(tree):
        parts: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            parts.insert(0, inner.attr)
            inner = inner.value
        if parts and isinstance(inner, ast.Name) and inner.id in modules:
            full = ".".join([modules[inner.id], *parts])
            if full in sys.modules:
                found.add(full)
    return sorted(found)


def _missing_message(missing: list[str], namespace: Mapping[str, Any]) -> str:
    known = [name for name in namespace if not name.startswith("_")]
    told = []
    for name in missing:
        near = difflib.get_close_matches(name, known, n=1)
        told.append(f"{name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    are = "is" if len(missing) == 1 else "are"
    return (
        f"{', '.join(told)} {are} not defined, neither in this cell nor in the notebook. Nothing was "
        "started. Run the cell that defines it first. If a magic or exec defines it, skip this check "
        "with %%trial NAME --no-check, or check=False in Python."
    )


class _NameReader(ast.NodeVisitor):
    """Reads a module's statements in the order of execution.

    Attributes:
        reads: Names needed from outside, in the order of first need.
        ever_bound: Names that the cell binds anywhere at its top level.
        may_bind: Whether it makes names that cannot be known.
        mentions: Names that it has in texts.
        looks: Whether it may find variables by any text.
    """

    def __init__(self, table: symtable.SymbolTable) -> None:
        self.reads: dict[str, None] = {}
        self.ever_bound: set[str] = set()
        self.may_bind = self.looks = False
        self.mentions: dict[str, None] = {}
        self._bound: set[str] = set()
        self._later: dict[str, set[str]] = {}
        self._tables = list(table.get_children())

    def run(self, statements: Iterable[ast.AST]) -> None:
        """Read statements one after the other."""
        for statement in statements:
            self.visit(statement)

    def read_later(self) -> set[str]:
        """Return what functions read that the cell defines and does not use."""
        return set().union(*self._later.values()) - self._bound

    def _read(self, name: str) -> None:
        if name not in self._bound:
            self.reads.setdefault(name)
        for inner in self._later.pop(name, ()):  # a function's body runs when somebody uses its name
            self._read(inner)

    def _bind(self, name: str) -> None:
        self._bound.add(name)
        self.ever_bound.add(name)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._read(node.id)
        elif isinstance(node.ctx, ast.Store):
            self._bind(node.id)
            self._later.pop(node.id, None)
        else:
            self._read(node.id)
            self._bound.discard(node.id)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        said = mentions_in(node)
        for code in said.code:
            self._run_text(code)
        for name in said.names:
            if name not in self._bound:
                self.mentions.setdefault(name)
        for name in said.binds:
            self._bind(name)
        self.may_bind |= said.may_bind
        self.looks |= said.looks

    def _run_text(self, code: str) -> None:
        """Read code that stands in a text, as far as it is Python: names that it lacks are not reported."""
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            statements = ast.parse(code.strip()).body
            self._tables += symtable.symtable(code.strip(), "<cell>", "exec").get_children()
            self.run(statements)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.run([node.value, *node.targets])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._read(node.target.id)
        self.run([node.value, node.target])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.annotation)
        if node.value is not None:
            self.run([node.value, node.target])

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.run([node.value, node.target])

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.run([node.iter, node.target, *node.body, *node.orelse])

    visit_AsyncFor = visit_For  # noqa: N815 (the name ast looks for; so below)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._branches([node.body, node.orelse])

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        self._branches([[case] for case in node.cases])

    def _branches(self, branches: list[Any]) -> None:
        """Read alternatives; afterwards only what all of them bind counts as bound."""
        before, after = set(self._bound), []
        for branch in branches:
            self._bound = set(before)
            self.run(branch)
            after.append(self._bound)
        self._bound = set.intersection(*after)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self.generic_visit(node)
        if node.name:
            self._bind(node.name)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name:
            self._bind(node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.generic_visit(node)
        if node.rest:
            self._bind(node.rest)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None:
            self.visit(node.type)
        if node.name:
            self._bind(node.name)
        self.run(node.body)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._bind(alias.asname or alias.name.partition(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self.may_bind |= alias.name == "*"
            self._bind(alias.asname or alias.name)

    def _visit_any_comprehension(self, node: Any) -> None:
        targets = [n for g in node.generators for n in ast.walk(g.target)]
        values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._inner_scope(
            [e for g in node.generators for e in (g.iter, *g.ifs)] + values,
            {n.id for n in targets if isinstance(n, ast.Name)},
        )

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_any_comprehension  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Read a lambda where it stands: it is mostly used at once."""
        self.run([*node.args.defaults, *filter(None, node.args.kw_defaults)])
        self._inner_scope([node.body], {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)})

    def _inner_scope(self, expressions: Iterable[ast.AST], own: set[str]) -> None:
        """Read expressions in which `own` names are their own, bound before anything is read."""
        hidden = own - self._bound
        self._bound |= hidden
        self.run(expressions)
        self._bound -= hidden - self.ever_bound

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.run([*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)])
        self.run(a.annotation for a in ast.walk(node.args) if isinstance(a, ast.arg) and a.annotation)
        if node.returns is not None:
            self.visit(node.returns)
        self._define(node, deferred=not node.decorator_list)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.run([*node.decorator_list, *node.bases, *node.keywords])
        self._define(node, deferred=not node.decorator_list)

    def _define(self, node: Any, *, deferred: bool) -> None:
        """Bind a function or class; what its body reads counts from its first use (a decorator uses it)."""
        tables = self._tables_of(node)
        body = set().union(*(_globals_of(table) for table in tables))
        self.ever_bound |= set().union(*(_globals_of(table, bound=True) for table in tables))
        self._bind(node.name)
        self._later[node.name] = body - {node.name}
        if isinstance(node, ast.ClassDef):  # its own body runs now, its methods later
            for name in sorted(_body_reads(node) & body):
                self._read(name)
        if not deferred:
            self._read(node.name)

    def _tables_of(self, node: Any) -> list[symtable.SymbolTable]:
        lines = {node.lineno, *(d.lineno for d in node.decorator_list)}
        return [t for t in self._tables if t.get_name() == node.name and t.get_lineno() in lines]


def _globals_of(table: symtable.SymbolTable, *, bound: bool = False) -> set[str]:
    """Return the module-level names that a scope and the scopes in it read (or bind, by `global`)."""
    own = (s for s in table.get_symbols() if s.is_global())
    names = {s.get_name() for s in own if (s.is_assigned() if bound else s.is_referenced())}
    return names.union(*(_globals_of(child, bound=bound) for child in table.get_children()))


def _body_reads(node: ast.ClassDef) -> set[str]:
    """Return the names that a class's own body loads, outside its methods."""
    names: set[str] = set()
    pending: list[ast.AST] = list(node.body)
    while pending:
        inner = pending.pop()
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
            names.add(inner.id)
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            pending += [*inner.decorator_list, *inner.args.defaults, *filter(None, inner.args.kw_defaults)]
        elif not isinstance(inner, ast.Lambda):
            pending += ast.iter_child_nodes(inner)
    return names


def loops_over(source: str, names: Iterable[str]) -> list[str]:
    """Return which of `names` a cell loops over (`for batch in loader`, `enumerate(loader)`)."""
    wanted = set(names)
    loops = [n.iter for n in ast.walk(ast.parse(source)) if isinstance(n, (ast.For, ast.comprehension))]
    return sorted({n.id for loop in loops for n in ast.walk(loop) if isinstance(n, ast.Name)} & wanted)
