"""Work at an object's end: an interrupt that comes at that moment is not swallowed, nor is the work lost.

Python raises a signal's exception (Ctrl-C: `KeyboardInterrupt`) at the next step of whatever code the main thread
runs. Where that is a `__del__`, the exception is printed and dropped: the user has pressed stop, and nothing happens.
A `try` inside `__del__` does not help, since the first step of a call lies before it: the very place where Python looks
for a signal that came during compiled code. A generator that waits inside a `try` has no such place: going on with it
is one step of compiled code, and whatever is raised there is caught.

What was caught is raised again in the main thread as soon as that is out of all endings.

Some objects are bound to their process too (`Bound`): pickling or copying one says so, and what to do instead.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FrameType
from typing import Any, ClassVar, NoReturn, SupportsIndex

from tsnb.native.frames import frames_by_thread

__all__ = ["Bound", "ending", "raise_again"]

AGAIN_S = 0.005
"""How often an interrupt is sent until it is taken."""
LOOK_S = 0.0005
"""How often it is looked whether the main thread has come out of what ends."""


def ending(act: Callable[[], None]) -> Callable[[], None]:
    """Return what does something once, wherever it is called: to be kept in an instance's slot named `__del__`.

    A class of which `__slots__` has a `__del__` calls what lies there at the end of each instance, without a step of
    Python's own on the way.

    Args:
        act: What to do, from any thread and in the middle of any other code: no lock, nothing that waits. Done a second
            time where an interrupt cut it short, so twice must be as good as once. Must not keep the instance alive.
    """
    made = _once(act)
    next(made)
    return partial(
        next, made, None
    )  # as much one step as `made.__next__`, and at peace with one that is over


def _once(act: Callable[[], None]) -> Iterator[None]:
    closed = False
    try:
        try:
            yield
        except GeneratorExit:
            closed = True
            if sys.is_finalizing():  # nothing has ended, but the interpreter is about to
                return
            # garbage in a cycle, and the collector came to the generator before it came to the instance
        act()
    except Exception:
        raise  # a fault of ours: Python shows it
    except BaseException as interrupt:  # noqa: BLE001  # of any signal's handler
        with contextlib.suppress(Exception):
            act()
        raise_again(type(interrupt), _once.__code__)
    if not closed:
        yield


def raise_again(kind: type[BaseException], inside: CodeType) -> None:
    """Have an exception of a signal's raised in the main thread once more, where it is not dropped.

    Args:
        kind: Its class.
        inside: The code in which it would be: it is waited until the main thread has come out of that.
    """
    take = None
    main = threading.main_thread().ident or 0
    if kind is KeyboardInterrupt and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with contextlib.suppress(ValueError):  # another thread
            signal.signal(signal.SIGINT, take := _taker())
    with contextlib.suppress(RuntimeError):  # no thread is started any more: the interpreter is about to end
        _thread.start_new_thread(_interrupt, (kind, main, inside, take))


def _taker() -> Callable[[int, FrameType | None], None]:
    """Return a handler that raises one interrupt as Python's own does, which then takes its place."""

    def take(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        raise KeyboardInterrupt

    return take


def _interrupt(kind: type[BaseException], main: int, inside: CodeType, take: Any) -> None:
    """Raise an exception in the main thread, once it is out of some code. Runs in a thread of its own.

    An interrupt is sent until it is taken. This thread runs as soon as the main one gives Python's lock away, and that
    is right before a call of the system that may wait for ever: what comes just before that does not wake it.
    """
    while _is_inside(frames_by_thread().get(main), inside):
        time.sleep(LOOK_S)
    while take is not None and signal.getsignal(signal.SIGINT) is take:
        signal.pthread_kill(main, signal.SIGINT)  # wakes a system call too
        time.sleep(AGAIN_S)
    if take is None:  # its handler was the user's own, and has run already
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(kind))


def _is_inside(frame: FrameType | None, code: CodeType) -> bool:
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False


class Bound:
    """Base of what holds connections, threads or processes, which cannot be copied or sent elsewhere.

    Attributes:
        _instead: What to do, in whole sentences.
    """

    __slots__ = ()
    _instead: ClassVar[str] = ""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be pickled or copied.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"A tsnb {type(self).__name__} cannot be pickled or copied, because it is bound to the "
            f"process that created it. {self._instead}"
        )
