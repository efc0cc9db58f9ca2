"""The logs of this notebook's trials, as the panel's log pane reads them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tsnb.experiments import trials
from tsnb.notebook.panels import TrialLogs


def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


def test_a_log_is_read_in_parts_and_a_new_run_from_its_start(shell: Any) -> None:
    """Each part goes on where the last one ended; running the cell again is another log under the same name."""
    logs = TrialLogs()
    assert logs.read("talker", "", 0, 1000) is None
    assert logs.trials() == []
    shell.run_cell_magic("trial", "talker", "for k in range(100): print('line', k)\nprint('bar', end='\\r')")
    trials["talker"].wait(60)
    first = logs.read("talker", "", 0, 100_000)
    assert first is not None
    whole = first.text + first.open
    assert [line for line in whole.splitlines() if line.startswith("line")] == [
        f"line {k}" for k in range(100)
    ]
    at = whole.index("line 50")
    part = logs.read("talker", first.run, at, 100_000)
    assert part is not None
    assert (part.start, part.text + part.open) == (at, whole[at:])
    assert logs.trials() == [("talker", "done")]

    shell.run_cell_magic("trial", "talker", "print('again')")
    until(lambda: trials["talker"].state == "done")
    again = logs.read("talker", first.run, at, 100_000)
    assert again is not None
    assert again.run != first.run
    assert again.start == 0
    assert "again\n" in again.text + again.open
    assert "line" not in again.text + again.open
