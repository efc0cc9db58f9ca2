"""The notebook about the model that limits the others, run as a person would."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from tests.house.notebooks import FOLDER, NOTHING_IS_LEFT, assert_a_person_can_read_it, check_after, run

NOTEBOOK = FOLDER / "03_bottleneck.ipynb"

WATCH = """
import math

from tsnb.telemetry.shown.diagnosis import diagnose, shares

def watch(*names):
    lags = {}
    while True:  # until each has begun, and none gets further behind: a first step may take long, and stops no other
        before = tsnb.streams.status("digits")
        known, lags = lags, {one.name: one.lag for one in before.consumers if one.batches}
        if all(name in known and lags.get(name, math.inf) <= known[name] + before.window for name in names):
            break
        time.sleep(0.5)
    time.sleep(3)
    after = tsnb.streams.status("digits")
    pairs = {name: [next(c for c in r.consumers if c.name == name) for r in (before, after)] for name in names}
    parts = {name: shares(*pair) for name, pair in pairs.items()}
    pace = {name: (two.samples - one.samples) / (after.time_s - before.time_s) for name, (one, two) in pairs.items()}
    return diagnose(before, after), parts, pace
"""
ALL_THREE = """
three, three_parts, three_pace = watch("mlp", "small-cnn", "wide-cnn")
assert (three.kind, three.pace) == ("window-bound", "wide-cnn"), three.text
assert three_parts["mlp"].held > 0.5 > three_parts["wide-cnn"].held
"""
WITHOUT_THE_SLOWEST = """
two, two_parts, two_pace = watch("mlp", "small-cnn")
assert two_pace["mlp"] > 1.3 * three_pace["mlp"]
"""
THE_FASTEST_ALONE = """
one, one_parts, one_pace = watch("mlp")
assert one.kind == "loader-bound", one.text
assert one_parts["mlp"].waiting > 0.3 > one_parts["mlp"].held
"""
PREDICTED = """
assert small.model_per_s > 3 * large.model_per_s
assert small.stalled > 0.5 > large.stalled
assert small.sharing(3).cpu_saved > large.sharing(3).cpu_saved
"""


def test_a_person_can_read_it() -> None:
    """It asks a question, explains as it goes, has short cells, and ends with links."""
    assert_a_person_can_read_it(NOTEBOOK.name)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_the_slowest_is_named_and_the_others_speed_up_without_it(tmp_path: Path) -> None:
    """Every cell runs in a fresh kernel. Between the cells, readings of the stream are checked."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    check_after(notebook, "%tensorsocket dashboard digits", WATCH + ALL_THREE)
    check_after(notebook, 'tsnb.trials["wide-cnn"].stop()', WITHOUT_THE_SLOWEST)
    check_after(notebook, "%tensorsocket status digits", THE_FASTEST_ALONE)
    check_after(notebook, "%trials stop", PREDICTED + NOTHING_IS_LEFT)
    said, data = run(notebook, tmp_path, "papermill")
    assert all(f"trial {name!r} stopped" in said for name in ("mlp", "small-cnn", "wide-cnn")), (
        "their output is in the file"
    )
    assert any(re.search("wide-cnn sets? the pace", shown.get("text/plain", "")) for shown in data)
    assert any("application/vnd.jupyter.widget-view+json" in shown for shown in data)
    assert any("application/vnd.plotly.v1+json" in shown for shown in data)
    assert sum("loader alone, shared" in shown.get("text/html", "") for shown in data) == 2
