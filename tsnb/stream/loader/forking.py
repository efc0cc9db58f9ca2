"""A loader's workers are forked by one thread while others go on: what must not come along, and with whom they end.

A program that another thread starts at that moment has pipes open in this process for some milliseconds. A worker that
is forked meanwhile would keep them open, and whoever waits for their end would wait for the worker's: `subprocess.run`,
in the user's own code or ours, stood still for an epoch or for ever. So a fork waits for programs that are being
started, and a pipe that was made since that look is closed in the worker: between the two, threads may change.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
import types
from pathlib import Path

from tsnb.native.frames import frames_by_thread
from tsnb.native.ties import tie_to_parent

__all__ = ["workers_are_forked_here"]

START_S = 1.0
"""How long a fork waits for programs that other threads start at that moment: milliseconds each."""
_DESCRIPTORS = Path("/proc/self/fd")

_this_thread = threading.local()


def workers_are_forked_here() -> None:
    """Have all that this thread forks from now on end with it, and begin without other threads' pipes."""
    _this_thread.forks_workers = True


def _before_fork() -> None:
    _this_thread.pid = os.getpid()
    if not getattr(_this_thread, "forks_workers", False):
        return
    until_s = time.monotonic() + START_S
    while True:
        _this_thread.pipes = _pipes()  # before the look: a program that begins after it has others
        if not _a_program_starts() or time.monotonic() > until_s:
            return
        time.sleep(0.001)


def _after_fork() -> None:
    if getattr(_this_thread, "forks_workers", False):
        for number, _ in _pipes() - _this_thread.pipes:
            os.close(number)
        tie_to_parent(_this_thread.pid)


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def _pipes() -> set[tuple[int, str]]:
    """Return the pipes of this process: descriptor and name; none where the system does not tell."""
    found = set()
    with contextlib.suppress(OSError):
        for descriptor in _DESCRIPTORS.iterdir():
            with contextlib.suppress(OSError):  # it was closed meanwhile
                if (name := str(descriptor.readlink())).startswith("pipe:"):
                    found.add((int(descriptor.name), name))
    return found


def _a_program_starts() -> bool:
    """Return whether another thread is starting a program."""
    own, starts = threading.get_ident(), subprocess.Popen.__init__.__code__
    for thread, top in frames_by_thread().items():
        frame: types.FrameType | None = top
        while thread != own and frame is not None:
            if frame.f_code is starts:
                return True
            frame = frame.f_back
    return False
