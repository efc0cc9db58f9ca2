"""The benchmark of steering: its figures, and that its program runs in its smallest form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.deciding import decided, final, reached
from benchmarks.steering import figure, table

ROOT = Path(__file__).parents[2]


def test_a_loss_is_reached_where_the_mean_over_an_epoch_is_no_more() -> None:
    """Not where one batch has it; never is None. The final one is the last epoch's mean."""
    done = [(float(at), loss) for at, loss in enumerate([9.0, 1.0, 5.0, 3.0, 2.0, 2.0])]
    assert reached(done, 2, 4.0) == 2.0, "when the batches 1 and 2 have 3.0 on average"
    assert reached(done, 2, 1.5) is None
    assert final([loss for _, loss in done], 2) == 2.0


def test_a_field_is_decided_when_the_last_that_is_worse_was_ended() -> None:
    """A rate that is nearly as good may stay, or be ended later; where the best was ended, nothing was decided."""
    finals = {0.3: float("nan"), 0.1: 1.0, 0.03: 1.1, 0.01: 2.0}
    assert decided({0.3: 5.0, 0.01: 7.0}, finals) == 7.0
    assert decided({0.3: 5.0, 0.01: 7.0, 0.03: 9.0}, finals) == 7.0
    assert decided({0.3: 5.0}, finals) is None
    assert decided({0.3: 5.0, 0.01: 7.0, 0.1: 8.0}, finals) is None


def test_what_could_not_be_measured_is_said_and_is_no_figure() -> None:
    """The reason stands under the table."""
    shown = table(
        [figure("latency", "clone", "ms", [3.0, 1.0, 2.0]), figure("decision", "x", "s", [], "no seed")]
    )
    assert "| latency | clone | 2 ms | 1 | 3 | 3 |" in shown
    assert "| decision | x | not measured | | | 0 |" in shown
    assert shown.endswith("x: no seed")


@pytest.mark.slow
@pytest.mark.system
def test_its_program_measures_pause_set_and_clone(tmp_path: Path) -> None:
    """In its smallest form, by real trials: each figure is there, and a clone by either way was measured."""
    kept = tmp_path / "rows.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.steering", "--quick", "--part", "latency", "--json", str(kept)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(kept.read_text())["rows"]
    assert [row["what"].partition(":")[0] for row in rows] == [
        "pause",
        "resume",
        "set",
        *["clone of 8 MiB by fork"] * 2,
        *["clone of 8 MiB by checkpoint"] * 2,
    ]
    assert all(row["n"] == 2 for row in rows), rows
