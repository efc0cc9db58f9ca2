"""The reference pages that are made from the code are as it is now, and their examples are valid."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path
from types import ModuleType

import pytest

from tsnb import errors
from tsnb.cli.commands import _parser
from tsnb.growing.selection import read_select
from tsnb.notebook.grammar import SWEEP, TENSORSOCKET, TRIAL, TRIALS, parse, words_of

DOCS = Path(__file__).parents[2] / "docs"


def maker() -> ModuleType:
    """The program that makes the pages: docs/ is not a package."""
    spec = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKER = maker()
LINES = sorted({f"tsnb {name}" for name in MAKER.commands()} | MAKER.EXAMPLES.keys())


@pytest.mark.parametrize("page", MAKER.pages())
def test_a_made_page_is_up_to_date(page: str) -> None:
    """A changed option or error changes its page."""
    assert (DOCS / page).read_text(encoding="utf-8") == MAKER.pages()[page], (
        "run .venv/bin/python docs/make_reference.py"
    )


def test_the_page_has_every_command() -> None:
    """Each command of the terminal stands under one task."""
    placed = " ".join(MAKER.COMMANDS.values()).split()
    assert sorted(placed) == sorted(MAKER.commands())


@pytest.mark.parametrize("command", LINES)
def test_every_command_has_an_example_that_its_parser_reads(command: str) -> None:
    """What a reader copies from the page is accepted."""
    line = MAKER.EXAMPLES[command]
    magic, _, rest = line.partition(" ")
    if magic == "tsnb":
        words = shlex.split(rest)
        assert _parser().parse_args(words).command == command.split()[1] == words[0]
    elif magic == "%tensorsocket":
        assert parse(rest, magic, TENSORSOCKET)[0] == command.split()[1]
    elif magic == "%trials":
        assert parse(rest, magic, TRIALS, default="list")[0] == command.split()[1]
    else:
        {"%%trial": TRIAL, "%%sweep": SWEEP}[magic].read(words_of(rest, magic))
    if "--select" in line:
        read_select(line.split("--select ")[1])


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_says_its_cause_and_what_to_do(name: str) -> None:
    """Both are sentences."""
    cause, fix = MAKER.cause_and_fix(getattr(errors, name))
    assert cause.endswith(".") and fix.endswith(".")
