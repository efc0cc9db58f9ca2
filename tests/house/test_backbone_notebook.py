"""The notebook about eight heads on one backbone, run as a person would."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.house.notebooks import FOLDER, NOTHING_IS_LEFT, assert_a_person_can_read_it, check_after, run

NOTEBOOK = FOLDER / "10_one_backbone.ipynb"

COMPUTED_ONCE = """
assert reading.cache.state == "serving", reading.cache
assert reading.frozen.batches <= 2 * 40, reading.frozen  # of 9 trials with 4 epochs of 40 batches
"""
LEARNED = """
assert len(heads) == 8
assert min(trial.metrics["accuracy"] for trial in heads.values()) > 0.5
assert tuned > 0.8
"""


def test_a_person_can_read_it() -> None:
    """It asks a question, explains as it goes, has short cells, and ends with links."""
    assert_a_person_can_read_it(NOTEBOOK.name)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_eight_heads_and_a_whole_network_share_a_stream(tmp_path: Path) -> None:
    """Every cell runs in a fresh kernel: the backbone computes one epoch, and nine trials learn."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    check_after(notebook, "batches computed", COMPUTED_ONCE)
    check_after(notebook, "best head", LEARNED)
    check_after(notebook, "%trials stop", NOTHING_IS_LEFT)
    said, _ = run(notebook, tmp_path, "nbclient")
    assert "whole network" in said
