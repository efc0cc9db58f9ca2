"""Looking at other processes gives the same answers with /proc and without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tsnb.machine import processes


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


def test_a_process_is_as_old_as_it_is(child: subprocess.Popen[bytes]) -> None:
    """Ticks since the machine's start, the same as psutil's date."""
    use = processes.use_of(child.pid)
    assert use is not None
    assert processes.age_s(use.started) == pytest.approx(
        time.time() - psutil.Process(child.pid).create_time(), abs=1.5
    )
    assert processes.use_of(2**22 - 1) is None
    assert processes.part_bytes(2**22 - 1) is None


def test_what_a_thread_has_started_is_found_by_it() -> None:
    """The loading thread's children are the loader's workers; other children are not."""
    found: list[tuple[int, ...]] = []
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        started.append(subprocess.Popen(["sleep", "1000"]))
        found.append(processes.children_of_thread(threading.get_native_id()))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert found == [(started[0].pid,)]
    started[0].kill()
    started[0].wait()


FORKS = """
import mmap, os, sys, time
from tsnb.machine.processes import forks_bytes

MIB = 1 << 20
heap = bytearray(b"x" * (96 * MIB))
shared = mmap.mmap(-1, 64 * MIB)

def work():
    own = bytearray(b"y" * (16 * MIB))
    shared[:32 * MIB] = b"z" * (32 * MIB)  # as the first who writes a batch's slot
    os.write(ready[1], b".")
    time.sleep(1000)

ready = os.pipe()
pids = []
for _ in range(2):
    pid = os.fork()
    if not pid:
        work()
    pids.append(pid)
for _ in pids:
    os.read(ready[0], 1)
first = forks_bytes(pids)
heap[:] = b"w" * len(heap)  # the forks keep what it was
second = forks_bytes(pids)
for pid in pids:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
print(first // MIB, second // MIB, forks_bytes(pids))
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="this system does not tell")
def test_forks_have_what_comes_free_with_them() -> None:
    """Not their parent's memory, nor what is shared; what the parent has written since is theirs, and counts once."""
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    first, second, third = map(int, done.stdout.split())
    assert 32 <= first < 48
    assert 96 + 32 <= second < 96 + 48
    assert third == 0


def test_a_name_of_any_bytes_is_no_hindrance() -> None:
    """A program may call itself what it likes: parentheses, spaces, and bytes that are not text."""
    name = "import ctypes; ctypes.CDLL(None).prctl(15, b'\\xff) Z 1 (\\xfe')"
    code = f"{name}; print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1) as odd:
        assert odd.stdout is not None
        odd.stdout.readline()
        assert processes.started(odd.pid)
        assert not processes.is_ending(odd.pid) and not processes.is_stopped(odd.pid)
        assert processes.use_of(odd.pid) is not None
        odd.communicate(b"\n")


def test_an_open_file_is_seen_by_its_name(tmp_path: Path) -> None:
    """Of this process and of another one; nothing of one that has gone."""
    with (tmp_path / "device0").open("w"):
        for pid in ("self", os.getpid()):
            assert processes.has_open(pid, str(tmp_path))
            assert not processes.has_open(pid, "/dev/nvidia")
    assert not processes.has_open("self", str(tmp_path))
    assert not processes.has_open(2**22 - 1, "")
