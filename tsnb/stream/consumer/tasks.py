"""The end of a task: what a pool's worker, or a thread, was given to do, while the worker or its process lives on."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from tsnb.native.frames import frames_by_thread

__all__ = ["task_of", "when_task_ends"]

_RUN_BY = frozenset({
    ("threading", "_bootstrap_inner"),
    ("concurrent.futures.thread", "run"),
    ("concurrent.futures.process", "_process_worker"),
    ("multiprocessing.pool", "worker"),
    ("multiprocess.pool", "worker"),
    ("billiard.pool", "workloop"),
    ("loky.process_executor", "_process_worker"),
    ("joblib.externals.loky.process_executor", "_process_worker"),
})  # fmt: skip
"""What calls tasks: module and function. The innermost counts, a pool of threads within a process's worker, say."""


class _End:
    """Lies in a task's frame, and goes with it; a trace function is what a frame has a place for."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def __call__(self, *_: Any) -> _End:
        """Do nothing: a debugger came later."""
        return self

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._act()


def when_task_ends(act: Callable[[], None]) -> None:
    """Call a function when the task ends in which this is called; not in a debugger, nor where this is no task.

    Args:
        act: Called in the thread of the task, once, however it ends.
    """
    task = _task(sys._getframe(1))
    if task is not None and task.f_trace is None and sys.gettrace() is None:
        task.f_trace = _End(act)


def task_of(thread: int) -> int | None:
    """Return what tells the task that a thread does from its earlier ones; None: it does none.

    One that has failed lives on in its traceback, and its frame with all that it holds, until the collector comes by.
    """
    own = thread == threading.get_ident()
    task = _task(sys._getframe(1) if own else frames_by_thread().get(thread))
    return None if task is None else id(task)


def _task(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the task that a thread does, by its innermost frame."""
    inner = None
    while frame is not None:
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) in _RUN_BY:
            return inner
        inner, frame = frame, frame.f_back
    return None
