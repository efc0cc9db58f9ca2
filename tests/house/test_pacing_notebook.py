"""The notebook about pacing, run as a person would."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.house.notebooks import FOLDER, NOTHING_IS_LEFT, assert_a_person_can_read_it, check_after, run

NOTEBOOK = FOLDER / "04_pacing.ipynb"

TOGETHER = """
def until(true, seconds=120):
    deadline = time.monotonic() + seconds
    while not true(reading := tsnb.streams.status("digits")):
        assert time.monotonic() < deadline, reading
        time.sleep(0.1)
    return reading

def trial(reading, name):
    return next(one for one in reading.consumers if one.name == name)

def together(reading):
    here = {c.name for c in reading.consumers if c.batches >= 20 and c.lag <= reading.window}
    return here >= {"small", "medium", "wide"}

in_step = until(together)
assert in_step.pacing == "together"
assert max(trial(in_step, name).lag for name in ("small", "medium", "wide")) <= in_step.window + 1
"""
FREE = """
apart = until(lambda reading: reading.pacing == "free" and trial(reading, "wide").lag > 3 * in_step.window)
assert apart.pacing == "free"
assert apart.window > in_step.window
"""
WEIGHTS = """
before = until(lambda reading: reading.pacing == "weights")
after = until(lambda reading: trial(reading, "wide").batches > trial(before, "wide").batches + 15)
assert after.weights == {"wide": 4.0}
assert trial(after, "wide").weight == 4
assert trial(after, "small").weight == 1
"""
TOGETHER_AGAIN = """
again = until(lambda reading: reading.window == in_step.window)
assert again.pacing == "together"
"""
REPORTED = """
changes = [mark.text.split()[1] for mark in report.story.marks if mark.kind == "pacing"]
assert changes == ["free", "weights", "together"]
small, wide = (next(one for one in report.story.trials if one.name == name) for name in ("small", "wide"))
assert small.alone_per_s > 3 * wide.alone_per_s
"""


def test_a_person_can_read_it() -> None:
    """It asks a question, explains as it goes, has short cells, and ends with links."""
    assert_a_person_can_read_it(NOTEBOOK.name)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_the_pacing_changes_while_trials_run_and_the_report_shows_it(tmp_path: Path) -> None:
    """Every cell runs in a fresh kernel: three trials, the panel, free, weights, in step again, the report."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (start,) = (cell for cell in notebook.cells if "%tensorsocket start loader" in cell.source)
    # without a number a slower trial lags as far as memory goes, and no lag tells which pacing holds
    start.source = start.source.replace("--late-join 100%", "--late-join 100% --window 8")
    assert "--window 8" in start.source
    check_after(notebook, "%tensorsocket dashboard digits", TOGETHER)
    check_after(notebook, "%tensorsocket balance digits free", FREE)
    check_after(notebook, "%tensorsocket balance digits weights", WEIGHTS)
    check_after(notebook, "%tensorsocket balance digits together", TOGETHER_AGAIN)
    check_after(notebook, "tsnb.report", REPORTED)
    check_after(notebook, "%trials stop", NOTHING_IS_LEFT)
    said, data = run(notebook, tmp_path, "nbconvert")
    assert all(f"trial {name!r} stopped" in said for name in ("small", "medium", "wide")), (
        "their output is in the file"
    )
    assert any("application/vnd.jupyter.widget-view+json" in shown for shown in data)
    assert any("image/svg+xml" in shown for shown in data)
