"""Clocks that other programs do not move."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from tsnb.machine import clocks
from tsnb.machine.cores import available_cores
from tsnb.machine.processes import children_of


@pytest.mark.system
def test_the_clocks_count_a_process_whatever_else_runs() -> None:
    """The CPU time of another process, from its id; a process that has gone has none."""
    code = (
        "import time\nwhile time.process_time() < 0.5: pass\nprint(time.process_time(), flush=True)\ninput()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        told = float(process.stdout.readline())
        counted = clocks.cpu_s(process.pid)
        assert counted is not None and told <= counted < told + 0.2
        assert process.pid in children_of(os.getpid())
        process.communicate("\n")
    assert clocks.cpu_s(process.pid) is None
    assert 0 < available_cores() <= (psutil.cpu_count() or 1)
    assert clocks.waited_s() >= 0


@pytest.mark.parametrize("lost", range(4))
def test_losing_its_core_at_any_moment_makes_a_sample_neither_cheaper_nor_dearer(
    lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also between the reading of the clock and that of the time without a core."""
    now_s = waited_s = 0.0
    readings = 0

    def read(what: str) -> float:
        nonlocal now_s, waited_s, readings
        found = {"now": now_s, "waited": waited_s}[what]
        readings += 1
        if readings - 1 == lost:  # just after it
            now_s, waited_s = now_s + 0.5, waited_s + 0.5
        return found

    monkeypatch.setattr(clocks, "_kept_waiting_s", lambda: read("waited"))
    monkeypatch.setattr("time.perf_counter", lambda: read("now"))
    began_s = clocks.cost_clock()
    now_s += 0.001
    assert clocks.cost_clock() - began_s == pytest.approx(0.001)
