"""The frames in which all threads are, without the deadlock that Python's own call can end in."""

from __future__ import annotations

import gc
import os
import sys
import threading
from types import FrameType

__all__ = ["frames_by_thread"]

_looking = threading.RLock()
_put_off = False
"""Whether the collector is off because somebody looks."""


def _after_fork_in_child() -> None:
    global _looking, _put_off
    if _put_off:  # by another thread, which has not been copied
        gc.enable()
    _looking, _put_off = threading.RLock(), False


os.register_at_fork(after_in_child=_after_fork_in_child)


def frames_by_thread() -> dict[int, FrameType]:
    """Return the innermost frame of each thread, by the thread's identifier.

    `sys._current_frames` holds a lock of the interpreter while it allocates (CPython's gh-106883). If the collector
    runs then, and what it frees lets other threads run (a memory map does), one of them may want that lock: both wait
    for ever. So the collector is off meanwhile.
    """
    global _put_off
    with _looking:
        outer = _put_off
        try:
            _put_off = outer or gc.isenabled()
            gc.disable()
            return sys._current_frames()
        finally:
            if _put_off and not outer:
                gc.enable()
            _put_off = outer
