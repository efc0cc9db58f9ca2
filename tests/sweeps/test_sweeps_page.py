"""docs/sweeps.md says nothing that is not there: its lines are read as users would write them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tsnb
from tsnb.experiments.plan import OPTION_NAMES
from tsnb.integrations.optuna import optimize
from tsnb.notebook.grammar import SWEEP, words_of

SOURCE = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
PAGE = re.sub(r"<!--.*?-->", "", SOURCE, flags=re.DOTALL)
OWN = {"lr", "wd", "epochs"}
"""Parameters of the page's own functions, which calls hand on."""
CALLED: dict[str, Callable[..., Any]] = {
    "tsnb.sweep": tsnb.sweep,
    "tsnb.search.halving": tsnb.search.halving,
    "optimize": optimize,
}


def test_every_keyword_is_one_of_the_function() -> None:
    """Calls in its examples, and the keywords in its table."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    calls = [node for block in blocks for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)]
    seen = set()
    for call in calls:
        word = ast.unparse(call.func)
        if word in CALLED:
            seen.add(word)
            known = set(inspect.signature(CALLED[word]).parameters)
            assert not {keyword.arg for keyword in call.keywords} - known - OWN - OPTION_NAMES, ast.unparse(
                call
            )
    assert seen == set(CALLED)


def test_the_cell_and_its_options_are_read() -> None:
    """The magic's line as it stands there, and every option that the page names."""
    (line,) = re.findall(r"%%sweep (.*)", PAGE.partition("## Which parameters")[0])
    given = SWEEP.read(words_of(line, "%%sweep"))
    assert dict(given.grid) == {"lr": [0.1, 0.01, 0.001], "wd": [0, 1e-4]} and given.every == 100
    without_commands = re.sub(r"`python -m [^`]*`", "", PAGE)  # a benchmark's options are its own
    options = set(re.findall(r"(--[a-z][a-z-]+|--n)\b", without_commands))
    assert options <= set(SWEEP._option_string_actions)


def test_what_a_sweep_has_is_there() -> None:
    """Its methods and attributes as the page uses them."""
    named = set(re.findall(r"\bsweep\.(\w+)", PAGE))
    assert {"wait", "best", "stop", "stopped_early"} <= named
    assert not [name for name in named if not hasattr(tsnb.Sweep, name)]
    distributions = set(re.findall(r"tsnb\.search\.(\w+)\(", PAGE))
    assert distributions and not [name for name in distributions if not hasattr(tsnb.search, name)]
