"""The numbers of a trial in its notebook: nothing is lost in how they are kept, and they take little memory."""

from __future__ import annotations

import math
import tracemalloc

from tsnb.experiments.bookkeeping import LoggedNumbers
from tsnb.records.writes import LoggedRow


def test_rows_come_back_as_they_were_logged() -> None:
    """Other names in each row, no epoch, nan and inf, an empty row, large steps, whole numbers beside fractions."""
    rows = [
        LoggedRow(0, None, None, 0, 1.5, {"loss": 0.1}),
        LoggedRow(2**50, 3, 40, 12_345_678_901, 1_763_800_000.25, {"loss": math.inf, "accuracy": 1.0}),
        LoggedRow(7, 0, 0, 0, 2.0, {}),
        LoggedRow(8, 1, 2, 3, 4.0, {"accuracy": -0.0}),
    ]
    metrics = LoggedNumbers()
    metrics.add(rows[:2])
    metrics.add(rows[2:])
    assert metrics.rows == rows
    assert [type(part) for part in metrics.rows[1][:5]] == [int, int, int, int, float]
    assert dict(metrics) == {"loss": math.inf, "accuracy": 0.0}
    assert metrics.by_step("loss") == {0: 0.1, 2**50: math.inf}
    assert metrics.by_epoch("accuracy") == {3: 1.0, 1: -0.0}
    metrics.add([LoggedRow(9, None, None, 0, 1.0, {"loss": math.nan})])
    assert math.isnan(metrics.rows[-1].numbers["loss"])


def test_a_long_training_takes_little_of_the_notebooks_memory() -> None:
    """200,000 rows took 117 MiB as objects."""
    tracemalloc.start()
    metrics = LoggedNumbers()
    for step in range(20_000):
        metrics.add(
            [LoggedRow(step, 0, step, step * 32, float(step), {"loss": 1.0 / (1 + step), "accuracy": 0.5})]
        )
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / 20_000 < 100, f"{used / 20_000:.0f} bytes a row"
