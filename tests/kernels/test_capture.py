"""What a cell takes along: exactly what it reads."""

from __future__ import annotations

import os.path
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from tsnb.kernels.cargo.capture import UndefinedNames, capture, loops_over

NOTEBOOK = {
    "os": os,
    "torch": torch,
    "nn": torch.nn,
    "a": 1,
    "b": 2,
    "f": len,
    "model": "theirs",
    "loss": 0.5,
    "loader": [1],
    "Base": object,
    "_": "last output",
    "In": [],
    "get_ipython": len,
}

READS = [
    ("x = a + 1", {"a"}),
    ("a = 1\nprint(a)", set()),
    ("a = a + 1", {"a"}),
    ("a += 1", {"a"}),
    ("del a", {"a"}),
    ("a: int = b", {"b"}),
    ("a: int\nprint(a)", {"a"}),
    ("(a := b)\nprint(a)", {"b"}),
    ("print(sum, open, __name__)", set()),
    ("import json as a, os.path\na, os", set()),
    ("from m import a as b\nprint(b)", set()),
    ("for a in loader: print(a)\nprint(a)", {"loader"}),
    ("for i in range(2):\n    loss = i\nprint(loss)", set()),
    ("while b: a = 1\nprint(a)", {"b"}),
    ("with f(b) as a: print(a)", {"f", "b"}),
    ("try:\n    a = 1\nexcept Base as b:\n    print(b)\nprint(a)", {"Base"}),
    ("if b:\n    a = 1\nprint(a)", {"a", "b"}),
    ("if b:\n    a = 1\nelse:\n    a = 2\nprint(a)", {"b"}),
    ("match b:\n    case [a, *loss]: print(a, loss)\n    case {'k': f, **model}: print(f, model)", {"b"}),
    ("[a for a in loader if b]", {"loader", "b"}),
    ("{a: b for a in loader}", {"loader", "b"}),
    ("x = [(a, y) for a in loader for y in a]\nprint(a)", {"loader", "a"}),
    ("g = lambda a, *r, k=b: a + loss + k", {"b", "loss"}),
    ("def g(a, k=b):\n    return a + loss\ng(1)", {"b", "loss"}),
    ("def g():\n    def h():\n        return a\n    return h\ng()()", {"a"}),
    ("def g():\n    a = 1\n    def h():\n        return a\n    return h\ng()", set()),
    ("def g():\n    return a\n", set()),
    ("def g(x: Base) -> f: ...", {"Base", "f"}),
    ("@f\ndef g():\n    return a", {"f", "a"}),
    ("def g():\n    return model\nmodel = 'own'\ng()", set()),
    ("def g():\n    return model\ng()\nmodel = 'own'", {"model"}),
    ("def g():\n    return h()\ndef h():\n    return a\ng()", {"a"}),
    ("def g():\n    global a\n    a = 1\ng()", set()),
    ("class C(Base):\n    x = b\n    def m(self):\n        return a\n", {"Base", "b"}),
    ("class C(Base):\n    x = b\n    def m(self):\n        return a\nC()", {"Base", "a", "b"}),
    ("await f(a)", {"f", "a"}),
    ("async for x in f(a): print(x)", {"f", "a"}),
    ("f'{a:{b}}'", {"a", "b"}),
    ("f(*loader, **b)[a].loss = 3", {"f", "loader", "b", "a"}),
    ("get_ipython().run_line_magic('time', 'y = f(a)')\nprint(y)", {"f", "a"}),
    ("get_ipython().run_line_magic('timeit', '-n 10 f(a)')", {"f", "a"}),
    ("get_ipython().run_cell_magic('capture', 'out', 'def g():\\n    return b\\ng()\\n')", {"b"}),
    ("get_ipython().run_line_magic('cd', 'a')", set()),
    ("_ = In\nget_ipython()\ndisplay(tsnb)", set()),
    ("get_ipython().system('echo {a} $b $$f {{loss}} $HOME')", {"a", "b"}),
    ("x = get_ipython().getoutput('ls {os.path.join(model, \"x\")} {loss:.2f}')", {"model", "loss"}),
    ("os.system('echo $a')", set()),
    ("get_ipython().run_line_magic('env', 'X={a} Y=$b Z={nowhere}')", {"a", "b"}),
    ("a = 1\nget_ipython().run_line_magic('env', 'X={a}')", set()),
    ("get_ipython().run_cell_magic('time', '', 'y = f(a)\\n')\nprint(y)", {"f", "a"}),
    ("get_ipython().run_cell_magic('timeit', 'x = a', 'f(x)\\n')", {"f", "a"}),
    ("get_ipython().run_cell_magic('capture', 'out', 'f(a)\\n')\nprint(out)", {"f", "a"}),
    ("get_ipython().run_cell_magic('bash', '--out said', 'echo {b}')\nprint(said)", set()),
    ("loader.query('x > @a and y < @b and @z.c == 1')", {"loader", "a", "b"}),
    ("f('mail@loss')", {"f"}),
    ("f.sql('select * from loader where x')", {"f", "loader"}),
    ("eval('a + 1')", {"a"}),
    ("ip = get_ipython()\nip.run_cell('y = b')\nprint(y, made)", {"b"}),
    ("exec('y = b')\nprint(y)", {"b"}),
    ("globals()['a']", {"a"}),
    ("'{loss:.2f} {0}'.format(**vars())", {"loss"}),
    ("vars(model)['a']", {"model"}),
    ("f'{f\"{a}\":>{b}}'", {"a", "b"}),
]


@pytest.mark.parametrize(("cell", "expected"), READS, ids=[cell.partition("\n")[0][:40] for cell, _ in READS])
def test_a_cell_takes_along_what_it_reads_and_no_more(cell: str, expected: set[str]) -> None:
    """Names count as read where they are loaded before the cell binds them, in the order of execution."""
    assert set(capture(cell, NOTEBOOK).variables) == expected


def test_modules_travel_by_name() -> None:
    """`np` becomes an import of numpy there; submodules that the cell reaches by attribute are imported too."""
    taken = capture("nn.functional.relu(torch.zeros(1)); os.path.join('a')", NOTEBOOK)
    assert taken.variables == {}
    assert taken.modules == {"nn": "torch.nn", "torch": "torch", "os": "os"}
    assert "torch.nn.functional" in taken.imports


def test_a_module_made_in_the_notebook_travels_by_value() -> None:
    """A module that no import finds is an object like others."""
    made = types.ModuleType("made")
    assert capture("made.x", {"made": made}).variables == {"made": made}


def test_names_that_functions_of_the_notebook_make_are_not_reported(notebook: Any) -> None:
    """By `global`, in any function that the cell's own calls reach, methods and decorated ones too."""
    box = notebook.run(
        "import functools\ndef inner():\n    global made\n    made = 1\ndef init(): inner()\n"
        "class Setup:\n    def go(self):\n        global also\n        also = 1\n"
        "@functools.lru_cache\ndef kept():\n    global third\n    third = 1"
    )
    capture("init()\nSetup().go()\nkept()\nprint(made, also, third)", box)
    with pytest.raises(UndefinedNames):
        capture("print(made)", box)


def test_what_a_script_of_run_i_reads_is_taken_along(tmp_path: Path) -> None:
    """It runs in the cell's own variables."""
    (tmp_path / "setup.py").write_text("y = a + nowhere\n")
    cell = f"get_ipython().run_line_magic('run', '-i {tmp_path}/setup.py')\nprint(y)"
    assert capture(cell, NOTEBOOK).variables == {"a": 1}


def test_a_cell_may_take_more_along_and_go_unchecked() -> None:
    """`--with a,os` and `--no-check`; what is only mentioned is told apart from what is read."""
    taken = capture("modle + b", NOTEBOOK, also=["a", "os"], check=False)
    assert (taken.variables, taken.modules) == ({"b": 2, "a": 1}, {"os": "os"})
    with pytest.raises(UndefinedNames, match="'nope' is not defined"):
        capture("b", NOTEBOOK, also=["nope"], check=False)
    with pytest.raises(UndefinedNames, match="--no-check"):
        capture("modle", NOTEBOOK, also=["a"])
    assert capture("f.query('@a')", NOTEBOOK).mentioned == {"a"}


@pytest.mark.parametrize("cell", ["print(modle)", "def g():\n    return modle\ng()", "[modle for i in b]"])
def test_an_undefined_name_is_reported_with_what_was_meant(cell: str) -> None:
    """A typo is told before anything starts, as a NameError with the nearest name."""
    with pytest.raises(UndefinedNames, match=r"'modle' \(did you mean 'model'\?\) is not defined") as caught:
        capture(cell, NOTEBOOK)
    assert isinstance(caught.value, NameError)


@pytest.mark.parametrize(
    "cell",
    [
        "from m import *\nprint(modle)",
        "if a:\n    modle = 1\nprint(modle)",
        "exec(model)\nprint(modle)",
        "exec('modle = 1')\nprint(modle)",
        "globals().update(a)\nprint(modle)",
        "get_ipython().run_line_magic('run', '-i setup.py')\nprint(modle)",
        "get_ipython().run_line_magic('store', '-r modle')\nprint(modle)",
        "get_ipython().run_line_magic('sql', 'modle << select 1')\nprint(modle)",
    ],
)
def test_a_name_that_may_be_bound_is_not_reported(cell: str) -> None:
    """What a star import or a branch may bind is left to the run."""
    capture(cell, NOTEBOOK)


def test_a_syntax_error_says_where() -> None:
    """A cell that is no Python never starts a kernel."""
    with pytest.raises(SyntaxError) as caught:
        capture("x = 1\ny = (", NOTEBOOK)
    assert caught.value.lineno == 2


def test_loops_over_a_loader_are_found() -> None:
    """`for`, comprehensions and wrappers such as enumerate count; a mere mention does not."""
    cell = "for i, batch in enumerate(a): ...\n[x for x in b]\nlen(loader)"
    assert loops_over(cell, ["a", "b", "loader"]) == ["a", "b"]
