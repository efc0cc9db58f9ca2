"""The pages on searching name only what exists: their lines are read as a user would write them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tsnb
from tsnb.experiments.plan import OPTION_NAMES
from tsnb.integrations.optuna import optimize
from tsnb.notebook.grammar import SWEEP, words_of

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("sweeps", "early-stopping", "population", "optuna", "cross-validation")
PAGES = {
    name: re.sub(r"<!--.*?-->", "", (DOCS / f"{name}.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    for name in NAMES
}
ALL = "\n".join(PAGES.values())
OWN = {"lr", "width", "epochs"}
"""Parameters of the pages' own functions, which calls hand on."""
CALLED: dict[str, Callable[..., Any]] = {
    "tsnb.sweep": tsnb.sweep,
    "tsnb.search.halving": tsnb.search.halving,
    "tsnb.search.race": tsnb.search.race,
    "tsnb.search.population": tsnb.search.population,
    "optimize": optimize,
}


def test_every_keyword_is_one_of_the_function() -> None:
    """In the examples, and in calls inside the text."""
    blocks = re.findall(r"```python\n(.*?)```", ALL, re.DOTALL)
    blocks = [block for block in blocks if not block.startswith("%")]
    blocks += [code for code in re.findall(r"`(tsnb\.[\w.]+\([^`]*\))`", ALL) if "=..." not in code]
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


def test_the_cells_and_their_options_are_read() -> None:
    """The magic's lines as they stand there, and every option that the pages name."""
    lines = re.findall(r"%%sweep ([^`\n]+)", ALL)
    first, *_ = given = [SWEEP.read(words_of(line, "%%sweep")) for line in lines]
    assert dict(first.grid) == {"lr": [0.1, 0.01]} and first.seed == 1
    assert len(given) >= 2
    options = set(re.findall(r"(--[a-z][a-z-]+|--n)\b", ALL))
    assert options <= set(SWEEP._option_string_actions)


@pytest.mark.parametrize("word", sorted(set(re.findall(r"\bsweep\.(\w+)", ALL))))
def test_what_a_sweep_has_is_there(word: str) -> None:
    """Its methods and attributes as the pages use them."""
    assert hasattr(tsnb.Sweep, word)


def test_distributions_and_rules_are_there() -> None:
    """Names of `tsnb.search` as the pages use them."""
    named = set(re.findall(r"tsnb\.search\.(\w+)", ALL))
    assert named and not [name for name in named if not hasattr(tsnb.search, name)]
