"""Looking at other processes gives the same answers with /proc and without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tsnb.native import processes
from tsnb.native.processes import usable_cores


@pytest.fixture(params=["proc", "psutil"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test looks in both ways."""
    if request.param == "psutil":
        monkeypatch.setattr(processes, "HAS_PROC", False)
        monkeypatch.setattr(processes, "_SLACK", 2000)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing."""
    made = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield made
    made.kill()
    made.wait()


def comes_true(what: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_a_live_process_is_known_by_its_number_and_start(child: subprocess.Popen[bytes]) -> None:
    """Numbers are used again: the start tells one from another; nobody's start is taken as it is."""
    when = processes.started(child.pid)
    assert when and processes.has_started_so(child.pid, when)
    assert processes.has_started_so(child.pid, 0)
    assert not processes.has_started_so(child.pid, when + 5000)
    assert processes.is_ours(child.pid)
    assert not processes.is_ending(child.pid) and not processes.has_gone(child.pid)


def test_one_that_has_gone_is_nobody_also_while_nobody_has_asked_for_its_status(
    child: subprocess.Popen[bytes],
) -> None:
    """A zombie serves and trains no more."""
    when = processes.started(child.pid)
    child.kill()
    assert processes.is_ending(child.pid, within_s=20.0) or comes_true(lambda: processes.is_ending(child.pid))
    assert comes_true(lambda: processes.started(child.pid) == 0)
    assert not processes.has_started_so(child.pid, when)
    child.wait()
    assert processes.started(child.pid) == 0
    assert processes.is_ending(child.pid) and processes.has_gone(child.pid)
    assert not processes.is_stopped(child.pid)
    assert processes.children(child.pid) == []
    assert not processes.is_ours(child.pid)


def test_a_stopped_process_and_the_children_of_one_are_seen(child: subprocess.Popen[bytes]) -> None:
    """What a consumer tells its user when nothing comes."""
    assert not processes.is_stopped(child.pid)
    child.send_signal(signal.SIGSTOP)
    assert comes_true(lambda: processes.is_stopped(child.pid))
    child.send_signal(signal.SIGCONT)
    assert comes_true(lambda: not processes.is_stopped(child.pid))
    assert child.pid in processes.children(os.getpid())


def test_without_a_descriptor_that_tells_of_an_end_there_is_none(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error: whoever asked looks by itself."""
    descriptor = processes.watch(child.pid)
    if descriptor >= 0:
        os.close(descriptor)
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    assert processes.watch(child.pid) == -1


def test_cores_are_those_of_the_affinity_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no system call tells, nobody is held to fewer."""
    assert usable_cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == os.cpu_count()
