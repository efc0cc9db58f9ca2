"""The frames of all threads, and what Python's own call can end in."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import pytest

from tsnb.native import frames
from tsnb.native.frames import frames_by_thread

STORM = """
import gc, mmap, sys, threading
from tsnb.native.frames import frames_by_thread

sys.setswitchinterval(1e-5)

def deep(levels):
    if levels:
        return deep(levels - 1)
    frames_by_thread()

def work():
    for k in range(2000):
        ring = [mmap.mmap(-1, 4096)]  # while it is freed, other threads run
        ring.append(ring)
        del ring
        gc.set_threshold(gc.get_count()[0] + k % 8)  # the collector comes as the frames are listed
        deep(3)

threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done", gc.isenabled())
"""


def test_threads_that_look_while_the_collector_frees_memory_maps_do_not_stop_for_good() -> None:
    """Two trials in threads began their loops at once, and the whole process stood still."""
    done = subprocess.run(
        [sys.executable, "-c", STORM], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "done True\n", done.stderr


def test_the_collector_is_afterwards_as_it_was() -> None:
    """On or off, also where an object's end looks while this looks."""
    gc.disable()
    try:
        assert frames_by_thread()[threading.get_ident()].f_back is sys._getframe()
        assert not gc.isenabled()
    finally:
        gc.enable()
    frames_by_thread()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_process_that_is_forked_while_another_thread_looks_collects_and_can_look() -> None:
    """That thread is not in it, and would never put the collector on again."""
    with frames._looking:
        frames._put_off = True
        gc.disable()
        child: list[int] = []
        thread = threading.Thread(target=lambda: child.append(_forked()))
        thread.start()
        thread.join(30)
        frames._put_off = False
        gc.enable()
    assert os.waitstatus_to_exitcode(os.waitpid(child[0], 0)[1]) == 0


def _forked() -> int:
    if (pid := os.fork()) == 0:
        os._exit(0 if gc.isenabled() and frames_by_thread() else 1)
    return pid
