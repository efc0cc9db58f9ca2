"""A kernel's front in a clone: new channels and threads around the shell that there is, in the middle of a cell.

The clone of a kernel has its variables, its half-run cell and its shell, and none of its threads. It becomes a kernel
of its own at once: a new ipykernel application over a new connection file, whose control channel answers while the cell
goes on. What the parent's application was is neither used, closed nor collected any more: its sockets are shared.

The stack below the running cell is the parent's event loop. It is never returned to: it would poll the parent's
sockets. When the cell has ended, a loop of the clone's own is run on top of it, and the process ends with that.

Objects that code has kept (tqdm and logging keep `sys.stderr`) go on: the old streams become the new ones.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import socket
import stat
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from tsnb.kernels.in_kernel.arrival import name_tracebacks, report_crashes
from tsnb.private.files import open_private

__all__ = ["open_front", "turn_output"]

_kept: list[Any] = []
"""The parent's kernel: zmq's objects must not be collected in another process."""
_at_end: list[Callable[[Any], None]] = []
"""What serves this kernel once its cell has ended; a clone of a clone has its own instead."""


def turn_output(log: str) -> None:
    """Have what this process and compiled code write go to a log of its own, past ipykernel's redirections, too.

    Raises:
        OSError: The file cannot be opened.
    """
    own = open_private(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    copies = [getattr(stream, "_original_stdstream_copy", None) for stream in (sys.stdout, sys.stderr)]
    for number in [1, 2, *(copy for copy in copies if copy is not None)]:
        os.dup2(own, number)
    os.close(own)


def open_front(connection_file: str, title: tuple[str, str], prepare: Callable[[], None]) -> None:
    """Be a kernel of its own. Called in a clone, on its only thread.

    Args:
        connection_file: Where it can be reached; `ipc`, as the file says already.
        title: What a traceback calls its cell ("Trial", "cnn").
        prepare: Called when there is a kernel, before it answers.

    Raises:
        OSError, zmq.ZMQError: It cannot be opened.
    """
    from IPython.core.getipython import get_ipython

    former = _leave_former()
    app = _new_application(former, connection_file)
    shell: Any = get_ipython()
    shell.kernel = app.kernel
    app.shell = shell
    prepare()
    _renew_bars()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of loops that are made outside of a coroutine
        app.kernel.start()  # the control channel answers from now on; the rest when the cell has ended
    while _at_end:
        shell.events.unregister("post_run_cell", _at_end.pop())
    _at_end.append(partial(_serve, app))
    shell.events.register("post_run_cell", _at_end[0])
    name_tracebacks(title)
    report_crashes()


def _leave_former() -> Any:
    """Have nothing of the parent's kernel run or be collected here; return its application."""
    from ipykernel.kernelapp import IPKernelApp

    app: Any = IPKernelApp.instance()
    held = ("kernel", "context", "iopub_thread", "control_thread", "shell_channel_thread", "heartbeat")
    _kept.append(
        (app, *(getattr(app, name, None) for name in held), sys.displayhook, asyncio._get_running_loop())
    )
    for function in (app.close, app.iopub_thread.stop, app.cleanup_connection_file):
        atexit.unregister(function)
    signal.set_wakeup_fd(-1)
    asyncio._set_running_loop(None)
    # else a call to the parent would be let in here after its death, and never answered
    for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 (a clone's first steps)
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode) and _is_of(descriptor, app.ip):
                os.close(descriptor)
    return app


def _is_of(descriptor: int, prefix: str) -> bool:
    """Whether a socket is one of a kernel's `ipc` channels."""
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        name = copy.getsockname()
    return isinstance(name, str) and name.startswith(f"{prefix}-")


def _new_application(former: Any, connection_file: str) -> Any:
    """Return a new application with its kernel, as `IPKernelApp.initialize` makes them, without what it would run."""
    from ipykernel.ipkernel import IPythonKernel
    from ipykernel.kernelapp import IPKernelApp

    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr, sys.displayhook = sys.__stdout__, sys.__stderr__, sys.__displayhook__
    IPKernelApp.clear_instance()
    IPythonKernel.clear_instance()
    asyncio.set_event_loop(asyncio.new_event_loop())
    app: Any = IPKernelApp.instance(config=former.config, connection_file=connection_file)
    app.profile_dir, app.user_ns, app.parent_handle = former.profile_dir, None, 0
    app.init_connection_file()
    app.init_sockets()
    app.init_heartbeat()
    app.write_connection_file()
    app.init_io()
    for old, new in zip(streams, (sys.stdout, sys.stderr), strict=True):
        vars(old).clear()
        vars(old).update(vars(new))
    app.init_kernel()  # it finds the shell that there is, and points its hooks here
    return app


def _renew_bars() -> None:
    """Give tqdm a lock that no thread of the parent's holds, and no monitor: its thread is the parent's."""
    if "tqdm" not in sys.modules:
        return
    from tqdm import tqdm
    from tqdm.std import TqdmDefaultWriteLock

    bars, lock = tqdm, TqdmDefaultWriteLock
    setattr(lock, "th_lock", threading.RLock())  # noqa: B010 (typeshed does not know it)
    bars.monitor = None
    bars.set_lock(lock())


def _serve(app: Any, _result: Any) -> None:
    """Serve the kernel, now that its cell has ended, until it is shut down. Never returns."""
    from IPython.core.getipython import get_ipython
    from tornado.ioloop import IOLoop

    shell: Any = get_ipython()
    while _at_end:  # later cells end as cells do
        shell.events.unregister("post_run_cell", _at_end.pop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as between two cells
    app.io_loop = IOLoop.current()
    app.kernel._publish_status("idle", "shell")
    try:
        app.io_loop.start()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)
