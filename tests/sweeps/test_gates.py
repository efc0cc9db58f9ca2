"""The common start: who waits, who opens, and that nobody waits for a dead one."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tsnb.kernels import gate as gate_module
from tsnb.kernels.gate import Gate, pass_lock
from tsnb.stream.consumer.loop import pass_gate
from tsnb.stream.this_process import this_process


def held(path: Path) -> bool:
    """Return whether somebody who comes now has to wait."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def test_the_last_one_opens_it(tmp_path: Path) -> None:
    """Each counts once, and one that has ended is not waited for; no file is left."""
    gate = Gate(tmp_path / "gate", "abc")
    assert gate.left_s() is None, "nobody waits yet"
    gate.arrived("a")
    gate.arrived("a")
    gate.gone("c")
    assert gate.shut and held(gate.path) and 0 < (gate.left_s() or 0) <= gate_module.WAITING_S
    gate.arrived("b")
    assert not gate.shut and not held(gate.path) and not gate.path.exists()
    gate.open()


def test_the_first_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is missing then: its time is up some seconds after the first has come."""
    monkeypatch.setattr(gate_module, "WAITING_S", 0.05)
    monkeypatch.setattr(gate_module, "SAID_S", 0.02)
    gate = Gate(tmp_path / "gate", "abc")
    assert gate.slow() == []
    gate.arrived("a")
    time.sleep(0.1)
    gate.gone("c")
    assert gate.slow() == ["b"] and gate.slow() == [], "said once, of those who are still to come"
    assert gate.left_s() == 0.0 and gate.shut
    assert gate.lapse() == ["b"] and not gate.shut


def test_a_slow_starter_is_waited_for(tmp_path: Path) -> None:
    """One that prepares its own things for a minute is as much of the comparison as the others."""
    gate = Gate(tmp_path / "gate", "ab")
    gate.arrived("a")
    assert (gate.left_s() or 0) > 300
    gate.open()


def test_an_open_gate_is_open_for_those_who_wait_already(tmp_path: Path) -> None:
    """Even if the notebook has forked meanwhile, and the child has the lock's descriptor too."""
    gate = Gate(tmp_path / "gate", "ab")
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    waiting = os.open(gate.path, os.O_RDONLY)
    gate.open()
    fcntl.flock(waiting, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(waiting)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.system
def test_the_gate_of_a_notebook_that_was_killed_is_open(tmp_path: Path) -> None:
    """The lock goes with the process, so a trial that waits goes on; and it tells before it waits, once."""
    path = tmp_path / "gate"
    code = f"""
import pathlib, time
from tsnb.kernels.gate import Gate, pass_lock
gate = Gate(pathlib.Path({str(path)!r}), "ab")
print(1, flush=True)
time.sleep(60)
"""
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "1\n"
    assert held(path)
    told: list[int] = []

    def tell() -> None:
        told.append(1)
        holder.kill()

    this_process.gate, this_process.first_batch = partial(pass_lock, path), tell
    pass_gate(30.0)  # waits until the holder is dead
    assert told == [1] and this_process.gate is None and this_process.first_batch is None
    pass_gate(30.0)
    assert told == [1]
    holder.wait()
    holder.stdout.close()
