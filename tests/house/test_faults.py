"""tests/FAULTS.md: every row of every table of faults is whole, and names a test that exists.

The tables at its head (promises, doors, limits) have other columns: `test_docs` checks them. The panel's has three.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.test_docs import missing_tests, table_after

TEXT = (Path(__file__).parents[1] / "FAULTS.md").read_text(encoding="utf-8")
PANEL = "Balance, panel and reports"
OTHERS = ("Promises", "Doors", "Limits", PANEL)
THEMES = [name for name in re.findall(r"^## (.+)$", TEXT, re.MULTILINE) if name not in OTHERS]
COLUMNS = ["fault", "who notices", "within", "what you see", "what is kept", "test"]
FAULTS_AT_LEAST = 40


@pytest.mark.parametrize("theme", THEMES)
def test_every_fault_says_all_there_is_to_say_and_names_its_test(theme: str) -> None:
    """No empty cell; the last one is a test that a reader can run."""
    rows = table_after(TEXT, f"## {theme}")
    assert rows
    for row in rows:
        assert len(row) == len(COLUMNS) and all(row), row
        assert re.fullmatch(r"`tests/[\w/]+\.py::test_\w+`", row[-1]), row
        assert not missing_tests(row[-1]), row


def test_each_fault_of_the_panel_names_its_test() -> None:
    """What is seen, and a test by name."""
    rows = table_after(TEXT, f"## {PANEL}")
    assert rows
    for fault, seen, test in rows:
        assert fault and seen
        assert re.fullmatch(r"`tests/[\w/]+\.py::test_\w+`", test), fault
        assert not missing_tests(test), fault


def test_the_table_covers_what_it_should() -> None:
    """Every signal of every process has a row; no test stands for two rows by mistake."""
    rows = [row for theme in THEMES for row in table_after(TEXT, f"## {theme}")]
    assert len(rows) >= FAULTS_AT_LEAST
    for signal in ("SIGKILL", "SIGSTOP", "SIGSEGV"):
        for theme in THEMES:
            assert any(signal in row[0] for row in table_after(TEXT, f"## {theme}")), (signal, theme)
    named = [row[-1] for row in rows]
    assert len(set(named)) == len(named)
