"""docs/migration-examples.md: its lines are those of the programs, and its table says what the tests find."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from tests.house.pages import blocks_of
from tests.tutorials.test_programs import PROGRAMS, TABLE, changed, source

PAGE = Path(__file__).parents[2] / "docs" / "migration-examples.md"
GUIDE = PAGE.with_name("from-a-dataloader.md")
CONTEXT = 2


def lines_that_change(name: str) -> str:
    """Return a program's changes, with the lines around them; an empty line stands between two places."""
    steps = difflib.unified_diff(source(name), source(f"{name}_served"), lineterm="", n=CONTEXT)
    places = re.split(r"^@@.*\n", "\n".join(list(steps)[2:]), flags=re.MULTILINE)[1:]
    return "\n".join(re.sub(r"\A( ?\n)+|(\n ?)+\Z", "", place) + "\n" for place in places)


@pytest.mark.parametrize("name", TABLE)
def test_its_lines_are_those_of_the_program(name: str) -> None:
    """Copied from the two files, between which nothing else changes."""
    shown = {block.text for block in blocks_of(PAGE) if block.kind == "diff"}
    assert lines_that_change(name) in shown, f"docs/migration-examples.md lacks:\n{lines_that_change(name)}"


def test_the_guide_shows_the_first_program() -> None:
    """docs/from-a-dataloader.md has one program whole, the same lines."""
    shown = [block.text for block in blocks_of(GUIDE) if block.kind == "diff"]
    assert shown == [lines_that_change("image_classifier")]


def test_its_table_says_what_is_tested() -> None:
    """A row for each program: its file, how many lines change, and whether it works."""
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| \[(.+?)\]\(\.\./tests/tutorials/programs/(\w+)\.py\) \| (\d) \| (.+?) \|$", text, re.MULTILINE
    )
    assert {name: (title, int(lines), works) for title, name, lines, works in rows} == {
        name: (program.title, changed(name), "yes") for name, program in TABLE.items()
    }
    assert all((PROGRAMS / f"{name}.py").exists() for _, name, _, _ in rows)
