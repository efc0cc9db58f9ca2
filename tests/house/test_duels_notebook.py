"""The notebook about duels, run as a person would."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.house.notebooks import FOLDER, NOTHING_IS_LEFT, assert_a_person_can_read_it, check_after, run

NOTEBOOK = FOLDER / "09_duels.ipynb"

ONE_SEED = """
assert single["draw_earlier"] > single["train"] + 0.02, single  # looks good
"""
VERDICTS = """
words = {name: duel.verdict.word for name, duel in duels.items()}
assert words["larger_steps"] == "better", words
assert words["draw_later"] == "no difference found", words
assert words["draw_earlier"] in ("no difference found", "undecided"), words
"""


def test_a_person_can_read_it() -> None:
    """It asks a question, explains as it goes, has short cells, and ends with links."""
    assert_a_person_can_read_it(NOTEBOOK.name)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_a_duel_tells_apart_what_a_single_run_does_not(tmp_path: Path) -> None:
    """Every cell runs in a fresh kernel: one run of each change, then a duel of each."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    check_after(notebook, "single.items()", ONE_SEED)
    check_after(notebook, "duels.items()", VERDICTS)
    check_after(notebook, "%trials stop", NOTHING_IS_LEFT)
    said, _ = run(notebook, tmp_path, "nbclient")
    assert "larger_steps" in said and "pairing" in said
