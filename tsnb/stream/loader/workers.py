"""What a loader's worker processes need beside the loader: an end with the producer, and objects that arrive.

Workers are forked by one thread while others go on (`native.forks`, 5). A program that another thread
starts at that moment has pipes open in this process for some milliseconds. A worker that is forked meanwhile would keep
them open, and whoever waits for their end would wait for the worker's: `subprocess.run`, in the user's own code or
ours, stood still for an epoch or for ever. So a fork waits for programs that are being started, and a pipe that was
made since that look is closed in the worker: between the two, threads may change.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from multiprocessing import connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import cloudpickle
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, get_worker_info
from torch.utils.data._utils import signal_handling

from tsnb.native.frames import frames_by_thread
from tsnb.native.start_line import close_workers
from tsnb.native.ties import tie_to_parent
from tsnb.stream.loader.seams import StandIn
from tsnb.stream.loader.tickets import TicketDataset

__all__ = [
    "WorkerStart",
    "end_workers",
    "going_through",
    "mind_own_workers",
    "starting_workers",
    "travelling",
    "workers_are_forked_here",
]

_starting = threading.local()


class WorkerStart:
    """Runs first in each worker, in place of the user's `worker_init_fn`, which it calls.

    The worker must die with the producer, even by SIGKILL; and `get_worker_info().dataset`, which users read and
    write there, must be their own dataset. An interrupt is for the process above: Ctrl-C reaches all of a terminal, and
    a worker that ends by itself is waited for in vain, five seconds each, as it cannot hand in what it has.
    """

    def __init__(self, user: Callable[[int], None] | None) -> None:
        self._user = user

    def __call__(self, worker: int) -> None:
        """Prepare this worker process, then let the user's function do so."""
        above, producer = os.getppid(), multiprocessing.parent_process()
        if producer is not None and not producer.is_alive():
            os._exit(1)  # it was killed while this one was being started: the process above is another one
        tie_to_parent(above)
        if producer is not None and producer.pid != above:  # forked by a server, which this one keeps alive
            threading.Thread(target=_end_with, args=(producer,), name="tsnb-producer", daemon=True).start()
        signal.signal(
            signal.SIGINT, _pass
        )  # not SIG_IGN: programs that the dataset starts would have it, too
        ForkingPickler.register(ExceptionWrapper, _sent)
        info = get_worker_info()
        if info is not None and isinstance(info.dataset, TicketDataset):
            object.__setattr__(info, "dataset", _users(info.dataset.dataset))  # it is frozen
        if self._user is not None:
            self._user(worker)


def _end_with(producer: Any) -> None:
    """End this worker with the producer. The fork server ends with its last worker, and all that it uses with it."""
    ends = [producer.sentinel]  # a pipe, which a process forked from the producer may hold open
    with contextlib.suppress(AttributeError, OSError):
        ends.append(os.pidfd_open(producer.pid))
    connection.wait(ends)
    os.kill(os.getpid(), signal.SIGKILL)


def _pass(_number: int, _frame: object) -> None:
    """Do nothing."""


def _users(dataset: Any) -> Any:
    """Return the user's own dataset."""
    return dataset.dataset if isinstance(dataset, StandIn) else dataset


def _sent(error: ExceptionWrapper) -> tuple[Any, ...]:
    """Reduce an error that a worker sends to the producer, so that it arrives.

    One of a class that cannot be pickled (local, or of a notebook and a spawned worker) would be lost in the queue's
    own thread, and the producer would wait for the batch for ever. Its traceback says what it was.
    """
    state = dict(vars(error))
    try:
        pickle.dumps(state["exc_type"])
    except Exception:  # noqa: BLE001  # pickling a class may call its metaclass
        state["exc_type"] = RuntimeError
    return ExceptionWrapper.__new__, (ExceptionWrapper,), state


class _Travelling:
    """Carries an object over the ordinary pickle of spawn and forkserver, by cloudpickle.

    Classes and functions defined in a notebook do not pickle otherwise. On the other side the object itself
    arrives, not this wrapper; in this process it answers for the object, to `isinstance` too: torch gives the
    workers of an IterDataPipe a seed that it gives to no others.
    """

    def __init__(self, carried: Any) -> None:
        self._carried = carried

    @property  # type: ignore[misc]  # typeshed: it could be set
    def __class__(self) -> Any:
        return type(self._carried)

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    def __reduce__(self) -> tuple[Any, ...]:
        return cloudpickle.loads, (cloudpickle.dumps(self._carried),)

    def __getattr__(self, name: str) -> Any:
        if name == "_carried":  # while being copied, before it is set
            raise AttributeError(name)
        return getattr(self._carried, name)

    def __call__(self, *args: Any) -> Any:
        return self._carried(*args)

    def __len__(self) -> int:
        return len(self._carried)

    def __getitem__(self, index: Any) -> Any:
        return self._carried[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._carried)


def travelling(carried: Any, loader: DataLoader[Any]) -> Any:
    """Return what to give to the loader in place of an object that its workers need."""
    if carried is None or not loader.num_workers:
        return carried  # to ask for the start method settles it for the whole process
    context = loader.multiprocessing_context
    method = context.get_start_method() if context is not None else multiprocessing.get_start_method()
    return carried if method == "fork" else _Travelling(carried)


@contextlib.contextmanager
def starting_workers() -> Iterator[None]:
    """Let workers that this thread forks inside the block not wait for another thread that reads `sys.stdin`.

    They begin by closing it, and its lock is held by who reads it: a script that serves until its user says
    something, in a pipe. In the worker there is no such thread that would let go of it.
    """
    _starting.here = True
    try:
        yield
    finally:
        _starting.here = False


def _leave_stdin() -> None:
    if getattr(_starting, "here", False) and sys.stdin is sys.__stdin__ is not None:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  # multiprocessing closes it; the former one is left open


os.register_at_fork(after_in_child=_leave_stdin)
close_workers()  # in the user's own script too: a `multiprocessing.py` in /tmp would run in its spawned workers


def mind_own_workers() -> None:
    """Let the death of a worker that this thread starts be an error of its own loop alone, from now on.

    Where the user's main thread has iterated a DataLoader before, torch has a handler of SIGCHLD there, which raises
    for the workers of any loader, in whatever the main thread does at that moment: it would end the script that
    serves. The loop itself looks for its workers every few seconds. Workers of a loader inside the user's own object,
    which may outlive the stream and so end by a signal, are no others.
    """
    _starting.unwatched = True
    if vars(signal_handling)["_set_worker_pids"] is not _set_worker_pids:
        vars(signal_handling)["_set_worker_pids"] = _set_worker_pids


_watch = vars(signal_handling)["_set_worker_pids"]


def _set_worker_pids(key: int, pids: tuple[int, ...]) -> None:
    """Stand in for torch's: it watches the workers of all threads but those that serve."""
    _watch(key, () if getattr(_starting, "unwatched", False) else pids)


@contextlib.contextmanager
def going_through(loader: Any, *, whole: bool = True) -> Iterator[Iterator[Any]]:
    """Iterate a loader, and end its workers in the end: an interrupt that came in a destructor would be dropped.

    Args:
        loader: One that nobody else iterates; of one that is no DataLoader no worker is ended.
        whole: Whether persistent workers end, too.
    """
    given = iter(loader)
    try:
        yield given
    finally:
        if isinstance(loader, DataLoader) and (whole or not loader.persistent_workers):
            end_workers(given)


def end_workers(given: Any) -> None:
    """End the workers of a DataLoader's iterator now; anything else is left alone."""
    if (end := getattr(given, "_shutdown_workers", None)) is not None:
        end()


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
