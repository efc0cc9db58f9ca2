"""The measure of a loader's queues: its smallest run gives every batch over both kinds."""

from __future__ import annotations

import pytest

from benchmarks.worker_queues import main


@pytest.mark.slow
def test_the_smallest_run(capsys: pytest.CaptureFixture[str]) -> None:
    """The program itself refuses a run that lost a batch."""
    assert main(["--quick", "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "| 1 | Python's | " in shown and "| 1 | packets | " in shown
