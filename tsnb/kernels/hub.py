"""The one thread that owns every background kernel of this process.

A daemon thread with an asyncio loop of its own, started on first use and never ended: output goes on while a
cell is busy, and a child's parent-death signal (which fires when the *thread* that started it ends) means the
death of the notebook kernel and nothing else. Children are therefore started from here only.

Its private directory (0700) holds what the children need: `ipc` sockets (a unix socket's path may have 103
bytes, so the directory's own path is short), connection files, logs, and objects on their way. The directory
goes with the process; after a SIGKILL a sweeper, which outlives it, removes the directory at once (`native.sweeping`).
If that was killed too (with a whole container), the next hub of this user does: a directory is stale once the lock on
its `lock` file is free.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tsnb.config import LONGEST_SOCKET, require_platform, short_directory
from tsnb.kernels.terminal import Terminal
from tsnb.native.forks import free_in_child
from tsnb.native.sweeping import Sweeper

__all__ = ["Hub", "lock_directory", "short_parent", "the_hub"]

T = TypeVar("T")

LONGEST_DIRECTORY = LONGEST_SOCKET - 33
"""Bytes of a hub's path: the rest is for a kernel's own name and channel number."""

CLOSING_S = 5.0
"""How long closing may take at the end of the process; after that the parent-death signal does it."""


class Hub:
    """A thread with a loop, a private directory, and what has to be ended with them.

    Attributes:
        directory: Private files of this process's children.
        loop: The thread's event loop.
        pen: Writes the project's records beside the loop; it has one thread, so that the writes of a run stay in order.
        terminal: Takes what trials print where no notebook shows it.
        channels: What the channels to all kernels are made of (`processes.channels`); None: there was no kernel yet.
        closing: Whether the process is ending: nothing is told of its kernels any more.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.directory, self._lock = _make_directory()
        self._sweeper = Sweeper(self.directory)
        self.loop = asyncio.new_event_loop()
        self.pen = concurrent.futures.ThreadPoolExecutor(1, "tsnb-records")
        self.terminal = Terminal()
        self.channels: Any = None
        self.closing = False
        self._endings: dict[object, Callable[[], Awaitable[None]]] = {}
        self._last: dict[object, Callable[[], Awaitable[None]]] = {}
        self._counter = 0
        self._thread = threading.Thread(target=self._run, name="tsnb-hub", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def post(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start `work` on the hub's thread and return at once. From any thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run `work` on the hub's thread and wait for its result. From any thread but the hub's own.

        An interrupt of the caller cancels the work.

        Raises:
            TimeoutError: It took longer than `timeout_s`; the work is cancelled.
            RuntimeError: Called on the hub's own thread, which would wait for itself.
        """
        try:
            self.require_other_thread()
        except RuntimeError:
            work.close()
            raise
        future = self.post(work)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise TimeoutError(f"a background kernel did not answer within {timeout_s} s") from None
        except BaseException:
            future.cancel()
            raise

    def require_other_thread(self) -> None:
        """Refuse to wait on this thread for what happens on it.

        Raises:
            RuntimeError: It is the hub's own.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("the hub's thread cannot wait for itself")

    def new_path(self, stem: str, suffix: str = "") -> Path:
        """Return a new path in the private directory. From any thread."""
        self._counter += 1
        return self.directory / f"{stem[:12]}{self._counter}-{threading.get_native_id() % 1000}{suffix}"

    def at_end(self, owner: object, ending: Callable[[], Awaitable[None]], *, last: bool = False) -> None:
        """Have `ending` awaited when the process ends. Paired with `forget`.

        Args:
            owner: The object that ends.
            ending: Ends it.
            last: Whether all others have to have ended before.
        """
        (self._last if last else self._endings)[owner] = ending

    def forget(self, owner: object) -> None:
        """Take `owner` off the list: it has ended already."""
        self._endings.pop(owner, None)
        self._last.pop(owner, None)

    def close_first(self) -> None:
        """Have this close, at the end of the process, before all that is registered for it until now."""
        atexit.unregister(self.close)
        atexit.register(self.close)

    def close(self) -> None:
        """End every child and remove the directory. Called once, at the end of the process."""
        if os.getpid() != self.pid:  # a forked child inherits this object, but neither thread nor children
            return
        self.closing = True
        with contextlib.suppress(TimeoutError, RuntimeError):
            self.call(self._end_all(), CLOSING_S)
        self.terminal.drain()
        shutil.rmtree(self.directory, ignore_errors=True)
        self._sweeper.end()
        os.close(self._lock)

    async def _end_all(self) -> None:
        for group in (self._endings, self._last):
            endings = [ending() for ending in group.values()]
            await asyncio.gather(*endings, return_exceptions=True)


_hub: Hub | None = None
_making = free_in_child(threading.Lock())


def the_hub() -> Hub:
    """Return this process's hub, started on first use.

    Raises:
        UnsupportedPlatform: Neither Linux nor macOS.
        TsnbError: The runtime directory cannot be used.
    """
    global _hub
    require_platform()
    with _making:
        if _hub is None or _hub.pid != os.getpid():
            _hub = Hub()
            atexit.register(_hub.close)
        return _hub


def _make_directory() -> tuple[Path, int]:
    """Make a hub's directory, lock it, and sweep those without a living owner."""
    above = short_parent()
    _sweep(above)
    path = Path(tempfile.mkdtemp(prefix="hub-", dir=above))
    return path, lock_directory(path)


def lock_directory(path: Path) -> int:
    """Mark a `hub-*` directory as in use, for as long as the descriptor returned is open in any process."""
    lock = os.open(path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(OSError):  # a file system without locks: no other takes it for left behind there
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def short_parent() -> Path:
    """Return where `hub-*` directories lie: the runtime directory, or one in /tmp if that has a long path.

    Raises:
        TsnbError: It cannot be used.
    """
    return short_directory(len("/hub-12345678") + LONGEST_SOCKET - LONGEST_DIRECTORY)


def _sweep(above: Path) -> None:
    for path in above.glob("hub-*"):
        if _stale(path):
            shutil.rmtree(path, ignore_errors=True)


def _stale(path: Path) -> bool:
    try:
        lock = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # no lock yet: its owner may be about to take it
        with contextlib.suppress(OSError):
            return time.time() - path.stat().st_mtime > 60.0
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(lock)
