"""Forking a kernel in the middle of its code: what forbids it, what has to be settled first, and the fork itself.

A forked process has the thread that forked and no other, and a copy of all memory, locks that others held included.

| what | what is done |
|---|---|
| ipykernel's threads, tsnb's | the clone gets new ones with a front of its own (`front`) |
| OpenMP's threads | ended before; they come back, in both, with the next parallel region |
| those of OpenBLAS, of torch's own pool and of jemalloc | they see to it themselves |
| the user's threads and processes, loader workers, CUDA | refused: what waits for them in the clone would hang |
| a cell that awaits | refused: its rest needs the event loop, which is the parent's |
| text in the buffers of open files | written before: both would write it |
| Python's random numbers | put back by the caller: Python draws a new seed in each forked process |
| the file of an offloaded model | copied before by the caller (`spilling.pages.copied`): both would write into it |
| memory | looked for: after one step of each nothing is shared any more |

The clone's parent is the fork server, which inherits it: a process between the two ends at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import io
import multiprocessing
import multiprocessing.resource_tracker
import os
import re
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tsnb.kernels.in_kernel.forked import blas_threads
from tsnb.machine.memory import free_memory
from tsnb.machine.processes import children, has_open
from tsnb.native.ties import tie_to_parent

__all__ = ["await_adoption", "fork_twice", "obstacle", "quiet", "settle_openmp"]

_OURS = re.compile(
    r"IOPub|Heartbeat|Control|Shell channel|ParentPoller.*|Thread-\d+( \(_watch_pipe_fd\))?|IPythonHistorySavingThread"
    r"|tqdm_monitor|tsnb-report"
)
"""Threads by Python's name for them that a clone gets anew, or does without."""
_SETTLED = re.compile(r"ZMQbg/.*|jemalloc_bg_thd")
"""Threads by the system's name for them that a clone gets anew, or does without: jemalloc (pyarrow's) has handlers of
its own for forks."""
_WRITERS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
_SQLITE = b"SQLite format 3\0"
"""What a file of SQLite's begins with."""
_HARD = 2
"""omp_pause_hard: end the threads, and forget what belongs to them."""
ROOM = 1.1
"""How much of its own memory has to be free for a clone: the state again, and gradients that are made anew."""
ENDING_S = 0.5
"""How long threads that were told to end may take: well below a millisecond, if the machine has nothing else to do."""
ADOPTED_S = 5.0
"""How long the server may take to become the clone's parent: the process between has only to end."""


def obstacle(server: int | None) -> str:
    """Return why this process cannot be forked now, and what to do about it; empty where it can.

    Called on the thread that would fork, after `settle_openmp`.

    Args:
        server: The fork server that looks after this kernel; None: it is no fork.
    """
    for look in (_place, _devices, _processes, _threads, _room):
        why = look()
        if why:
            return why
    if server is None or os.getppid() != server:
        return (
            "its process was not forked from the notebook's fork server, which would look after the "
            "clone. Start the trial without --detach and TSNB_START=spawn, and without variables that "
            "libraries read once"
        )
    return ""


def _place() -> str:
    if threading.current_thread() is not threading.main_thread():
        return "it reads its batches in another thread. Read them in the main thread"
    frame: Any = sys._getframe()
    while (
        frame is not None and frame.f_code.co_name != "_pseudo_sync_runner"
    ):  # IPython's, of cells without await
        frame = frame.f_back
    return (
        ""
        if frame is not None
        else "its cell uses await. Move the awaited code into a function and call asyncio.run(f())"
    )


def _devices() -> str:
    torch = sys.modules.get("torch")
    if (torch is not None and torch.cuda.is_initialized()) or has_open("self", "/dev/nvidia"):
        return "it uses a GPU, whose state a fork cannot copy"
    return ""


def _processes() -> str:
    workers = multiprocessing.active_children()
    if workers:
        names = ", ".join(process.name for process in workers)
        return (
            f"it has running worker processes ({names}). Use num_workers=0 in the trial's own "
            "DataLoaders, or clone it while none of them is being iterated (without persistent_workers)"
        )
    tracker: Any = multiprocessing.resource_tracker
    known = getattr(tracker._resource_tracker, "_pid", None)
    others = [pid for pid in children(os.getpid()) if pid != known]
    if others:
        pids = ", ".join(map(str, others))
        return f"it has started processes that are still running (pid {pids}). Clone it when they have ended"
    return ""


def _threads() -> str:
    deadline = time.monotonic() + ENDING_S
    while True:
        own, nameless = _others()
        if own:
            return f"it has a running thread ({own!r}). Clone it when that thread has ended"
        if len(nameless) <= max(0, (blas_threads() or 1) - 1) + _torch_threads() - 1:
            return ""
        if time.monotonic() > deadline:
            words = ", ".join(dict.fromkeys(nameless))
            return f"a library has started threads in it that a fork cannot copy ({words})"
        time.sleep(0.0005)  # OpenMP's are on their way out


def _torch_threads() -> int:
    """Return how many threads torch computes on: beside OpenMP's it has a pool of its own, which sees to forks."""
    torch = sys.modules.get("torch")
    return 1 if torch is None else int(torch.get_num_threads())


def _others() -> tuple[str, list[str]]:
    """Return a thread of the user's, by its name, and what the system calls those that Python does not know."""
    named = {thread.native_id: thread.name for thread in threading.enumerate()}
    nameless: list[str] = []
    for task in map(int, os.listdir("/proc/self/task")):  # noqa: PTH208 (the trial stands still meanwhile)
        if (
            task == os.getpid()
        ):  # the main thread; Python's own note of it is that of the process it was forked from
            continue
        if task in named:
            if not _OURS.fullmatch(named[task]):
                return named[task], []
            continue
        with contextlib.suppress(OSError):  # it has just ended
            word = Path(f"/proc/self/task/{task}/comm").read_text().strip()
            if not _SETTLED.fullmatch(word):
                nameless.append(word)
    return "", nameless


def _room() -> str:
    found = re.search(r"^RssAnon:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    free = free_memory()
    need = int(int(found[1]) * 1024 * ROOM) if found else 0
    if free is None or need <= free.size:
        return ""
    return (
        f"a clone needs {need / 2**20:,.0f} MiB, but only {free.size / 2**20:,.0f} MiB "
        f"{free.where} are free. Stop another trial first"
    )


def settle_openmp() -> str:
    """End the threads of every OpenMP library of this process; they come back with the next parallel region.

    Returns:
        Why that cannot be done, where it cannot; else nothing.
    """
    maps = Path("/proc/self/maps").read_text()
    for path in dict.fromkeys(re.findall(r"(/\S*lib(?:gomp|iomp5|omp)\b\S*)$", maps, re.MULTILINE)):
        try:
            ended = ctypes.CDLL(path).omp_pause_resource_all(_HARD) == 0
        except (OSError, AttributeError):
            ended = False
        if not ended:
            return (
                f"the threads of {Path(path).name} cannot be ended for a fork. Start the trial with threads=1"
            )
    return ""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within it no interrupt is taken on this thread; one that came meanwhile comes afterwards, in the parent alone."""
    pid, former = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if os.getpid() != pid and signal.SIGINT in signal.sigpending():
            signal.sigwait({signal.SIGINT})
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def fork_twice() -> int:
    """Fork; return the pid of a process between the two, which ends at once, and 0 in the clone.

    The caller waits for that process, once the clone has said its word: it takes a while to end, as it gives a copy of
    all page tables back. From then on the clone is the fork server's child.

    Called within `quiet`, where there is no `obstacle`.

    Raises:
        OSError: The system makes no process.
    """
    _flush_files()
    between = os.fork()
    if between:
        return between
    try:
        if os.fork():
            os._exit(0)
        os.setsid()
    except BaseException:  # noqa: BLE001 (whatever it is, this must not train on as a second trial)
        os._exit(1)
    return 0


def await_adoption(server: int) -> None:
    """Wait in a clone until it is the fork server's child, and end with that at the latest."""
    deadline = time.monotonic() + ADOPTED_S
    while os.getppid() != server:
        if time.monotonic() > deadline:
            os._exit(1)
        time.sleep(0.0005)
    tie_to_parent(server)


def _flush_files() -> None:
    """Write out what waits in the buffers of open files: both processes would write it."""
    files = [made for made in gc.get_objects() if type(made) in _WRITERS] if _writes() else []
    for file in [sys.stdout, sys.stderr, *files]:
        with contextlib.suppress(Exception):
            if not file.closed and file.writable():
                file.flush()


def _writes() -> bool:
    """Whether a file is open for writing, other than the log and databases: looking for its object takes 50 ms.

    SQLite has no text of Python's in its buffers. None of its files is opened here: closing one would give up the
    locks that this process has on it.
    """
    streams = sys.stdout, sys.stderr
    copies = [
        getattr(stream, "_original_stdstream_copy", None) for stream in streams
    ]  # where ipykernel redirects
    logs = {os.fstat(number).st_ino for number in (1, 2, *copies) if number is not None}
    files, databases = [], set()
    for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 (see above)
        with contextlib.suppress(OSError):  # that of the listing itself
            found = os.fstat(descriptor)
            writable = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
            if writable and stat.S_ISREG(found.st_mode) and found.st_nlink and found.st_ino not in logs:
                files.append(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115 (as it is)
                if os.pread(descriptor, len(_SQLITE), 0) == _SQLITE:
                    databases.add(files[-1])
    beside = {f"{database}{suffix}" for database in databases for suffix in ("-wal", "-shm", "-journal")}
    return not databases.union(beside).issuperset(files)
