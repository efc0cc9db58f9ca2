"""The count of calls a batch: its program runs in its smallest form, and counts both processes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.calls import Counted, table

MOST_CALLS = 65.0
"""Python calls a batch in the consumer's thread: 53 to 57 when this was written, and 106 before."""
ROOT = Path(__file__).parents[2]


def test_each_thread_and_each_process_has_a_row() -> None:
    """What is called stands below the table, most often first."""
    case = Counted("waits", {"consumer": Counter({"a.py:f": 2, "a.py:g": 3})}, {"consumer": Counter(recv=4)})
    shown = table([case], names=True)
    assert "| waits | consumer | 5.0 | |" in shown
    assert "| waits | consumer | | 4.0 |" in shown
    assert shown.index("3.00  a.py:g") < shown.index("2.00  a.py:f")


@pytest.mark.slow
def test_the_smallest_run() -> None:
    """It counts the consumer's thread and those of the producer. A batch costs the consumer no more than it did."""
    command = [sys.executable, "-m", "benchmarks.calls", "--quick"]
    shown = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300).stdout
    for who in ("consumer", "producer, serving", "producer, loading"):
        assert f"| waits | {who}" in shown, shown
        assert f"| behind | {who}" in shown, shown
    calls = [float(n) for n in re.findall(r"\| consumer \| ([\d.]+) \|", shown)]
    assert len(calls) == 2 and max(calls) < MOST_CALLS, shown
