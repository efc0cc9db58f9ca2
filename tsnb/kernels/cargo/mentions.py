"""Which variables a cell mentions in text: shell lines, magics, queries, code in strings. Pure.

Names found here are taken along where the notebook has them, and never reported where it has not: a text may mean
something else.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from tsnb.private.files import MANY_BYTES, read_foreign

__all__ = ["Mentions", "mentions_in", "names_in_texts"]

PYTHON_MAGICS = frozenset({"capture", "lprun", "memit", "mprun", "prun", "time", "timeit"})
"""Magics that run the Python that stands behind them."""

SETS_NOTHING = PYTHON_MAGICS | {
    "autoawait", "autoreload", "bash", "cd", "colors", "conda", "config", "debug", "dhist", "env", "html", "javascript",
    "js", "latex", "ls", "lsmagic", "markdown", "matplotlib", "mkdir", "pdb", "pinfo", "pip", "precision", "pwd", "rm",
    "set_env", "sh", "svg", "sx", "system", "tensorboard", "uv", "writefile", "xmode",
}  # fmt: skip
"""Magics that make no variables: a cell with another one may read what it makes."""

_FIELD = re.compile(r"(?<!\{)\{([^{}]+)\}")
_DOLLAR = re.compile(r"(?<!\$)\$(?:\{)?([A-Za-z_]\w*)")
_AT = re.compile(r"(?<![\w.])@([A-Za-z_]\w*)")
_TABLE = re.compile(r"\b(?:from|join|update|into)\s+([A-Za-z_]\w*)", re.IGNORECASE)
_OUTPUT = re.compile(r"--(?:out|err|proc)[\s=]+([A-Za-z_]\w*)")

QUERIES = frozenset({"eval", "execute", "query", "sql"})
"""Methods that find variables by what stands in their text: pandas' `@name`, DuckDB's `from name`."""

CELLS = frozenset({"ev", "ex", "push", "run_cell", "run_cell_async", "run_code"})
"""Methods of IPython's shell that run code in the cell's own variables."""

LOOKING = frozenset({"eval", "exec", "globals", "locals", "vars"})
"""Functions that find or make variables by their name."""


class Mentions:
    """What one call says by its text.

    Attributes:
        code: Python that it runs: statement by statement, with what they bind.
        names: Variables that it mentions.
        binds: Variables that it makes.
        may_bind: Whether it may make others.
        looks: Whether it may find variables by any text of the cell.
    """

    def __init__(self) -> None:
        self.code: list[str] = []
        self.names: list[str] = []
        self.binds: list[str] = []
        self.may_bind = False
        self.looks = False


def names_in_texts(tree: ast.AST) -> list[str]:
    """Return the names that texts consist of, or have in braces: `globals()["lr"]`, `"{lr}".format(**vars())`."""
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [name for text in texts for name in ([text] if text.isidentifier() else _expanded(text))]


def mentions_in(call: ast.Call) -> Mentions:
    """Return what a call says by its text.

    Args:
        call: Any call of the cell; IPython has made calls of magics and shell lines.
    """
    found = Mentions()
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if name in {"run_line_magic", "run_cell_magic"}:
        _magic(found, texts, cell=name == "run_cell_magic")
    elif name in {"system", "getoutput"} and _of_ipython(call):
        found.names += _expanded(" ".join(texts))
    elif name in CELLS:
        found.code += texts[:1]
        found.may_bind = True
    elif isinstance(call.func, ast.Name) and name in LOOKING:
        runs = name in {"eval", "exec"}
        found.code += texts[:1] if runs else []
        found.looks = not texts if runs else not call.args
        found.may_bind = found.looks and name != "eval"
    elif name in QUERIES:
        for text in texts:
            found.names += [*_AT.findall(text), *_TABLE.findall(text)]
    return found


def _of_ipython(call: ast.Call) -> bool:
    """Whether it is `get_ipython().system(...)`, as IPython writes `!echo`."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(owner, ast.Call) and getattr(owner.func, "id", "") == "get_ipython"


def _magic(found: Mentions, texts: list[str], *, cell: bool) -> None:
    if not texts:
        found.may_bind = True
        return
    magic, *rest = texts
    line = rest[0] if rest else ""
    if magic in PYTHON_MAGICS:
        code = rest if magic == "timeit" or not cell else rest[1:]
        # without the magic's own options
        found.code += [re.sub(r"^\s*(-\w+(?:\s+\d+)?\s+)*", "", text) for text in code]
    else:
        found.names += _expanded(line)
    if magic == "capture":
        found.binds += [word for word in line.split() if word.isidentifier()]
    elif magic == "run":
        _run(found, line.split())
    elif magic in SETS_NOTHING:
        found.binds += _OUTPUT.findall(line)
    elif magic not in {"trial", "trials", "tensorsocket"}:
        found.may_bind = True


def _run(found: Mentions, words: list[str]) -> None:
    """Read the script of `%run`: with -i it sees the cell's variables, and its own are the cell's afterwards."""
    found.may_bind = True
    scripts = [word for word in words if word.endswith(".py")]
    if "-i" in words and scripts:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            found.code.append(read_foreign(Path(scripts[0]).expanduser(), MANY_BYTES).decode())


def _expanded(text: str) -> list[str]:
    """Return the names in `{...}` and `$name`, which IPython replaces by their values."""
    return [*_DOLLAR.findall(text), *(name for field in _FIELD.findall(text) for name in _names_of(field))]


def _names_of(field: str) -> Iterator[str]:
    """Give the names that an expression in braces loads; its format (`:.2f`) is not part of it."""
    for text in (field, field.partition(":")[0], field.partition("!")[0]):
        with contextlib.suppress(SyntaxError, ValueError):
            tree = ast.parse(text.strip(), mode="eval")
            yield from (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
            return
