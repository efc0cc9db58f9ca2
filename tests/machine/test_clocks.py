"""Clocks that other programs do not move."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from tsnb.machine import clocks
from tsnb.machine.cores import available_cores, cores_busy_s
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


@pytest.mark.system
def test_other_programs_are_told_from_this_one_and_from_those_that_belong_to_it() -> None:
    """What this process and those below it compute is no other's, nor what is named; all the rest is."""
    spins = [sys.executable, "-c", "import time\nwhile time.process_time() < 60: pass"]
    orphans = f"import subprocess; print(subprocess.Popen({spins}, stdout=subprocess.DEVNULL).pid)"
    orphan = psutil.Process(int(subprocess.check_output([sys.executable, "-c", orphans])))
    with subprocess.Popen(spins) as process:
        below = psutil.Process(process.pid)
        try:
            named, unnamed = clocks.OthersClock(), clocks.OthersClock()
            named.look([orphan.pid])
            unnamed.look()
            busy_s, below_s, orphan_s = cores_busy_s(), _spent_s(below), _spent_s(orphan)
            while min(_spent_s(below) - below_s, _spent_s(orphan) - orphan_s) < 0.5:
                time.sleep(0.05)
            found_s, all_s, now_s = named.look([orphan.pid]), unnamed.look(), cores_busy_s()
            assert busy_s is not None and now_s is not None
            assert all_s - found_s == pytest.approx(_spent_s(orphan) - orphan_s, abs=0.2)
            ours_s = _spent_s(below) - below_s + _spent_s(orphan) - orphan_s
            assert found_s < now_s - busy_s - ours_s + 0.2
        finally:
            process.kill()
            orphan.kill()


def _spent_s(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)
