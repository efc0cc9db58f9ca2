"""What a fork and the end of a process must not leave behind, told in one place. Other modules name a number of this.

NOTE. A forked child is a DataLoader's worker, a clone of a trial, a kernel of the fork server, or the user's own. It
has the memory of its parent, and one thread. So at a fork:

1. The child has no part in what its parent holds open. Channels and locks of files are closed in it, else they would
   outlive the parent: `stream.transport.sockets`, `discovery.registry`, `discovery.promises`, `native.sweeping`,
   `balancing.controller`. SQLite's files are closed before the fork, since it copies wrong locks: `records.database`.
2. What the parent has attached, serves, watches or trains is not the child's: `stream.consumer.attaching`,
   `stream.consumer.attachment`, `serving.stream`, `hosting.serving`, `telemetry.watching`, `sweeps.sweep`,
   `experiments.overview.board`, `experiments.in_kernel.kept_state`, `duels.result`. A clone attaches anew at the same
   place.
3. A thread that holds a lock is not in the child, nor is one that does work for others. Locks are new there
   (`free_in_child`), and so is what was being done: `native.frames`, `text.foreign`, `stream.loader.collate`,
   `stream.loader.queues`, `experiments.live_values`, `telemetry.metrics`, `records.notices`, `records.commits`.
   What was looked up for one process is looked up again: `machine.owners`.
4. Batches that the parent holds stay as they are in the child, though the parent's slots are written anew. They get
   pages of their own before the fork: `stream.memory.own_pages`. So does an offloaded model: `spilling.pages`.
5. A worker must not keep open what another thread opens for a program that it starts: `stream.loader.workers`.
6. An interrupt is noted until the fork is over, and raised then: `guard`, below.

At the end of a process:

7. Who serves tells its consumers first, and only then leaves a cluster: `serving.stream`, `cluster.offer`. A hub ends
   its kernels: `kernels.hub`. Records and calls of `notify` are written out: `records.database`, `records.notices`.
8. After SIGKILL nothing of this runs. The system closes sockets, locks and memory without a name. Workers and kernels
   end with the thread that started them: `native.ties`. What has a name is swept by the next process
   (`native.sweeping`).
9. A child that is forked to do one thing ends by `os._exit`, without what its parent registered for its own end.
10. What ends with an object (`native.endings`) does nothing once the interpreter is ending.

An interrupt that comes while the process forks is raised after that: Python would print and drop it. What is to be done
before and after a fork (`os.register_at_fork`) is called from compiled code, and an exception that comes out of it is
printed, an interrupt's (Ctrl-C) too: the user has pressed stop, and nothing happens. What it met is cut short besides,
with locks taken and never given back. So from before the first of these calls until after the last one an interrupt is
only noted. That is why `guard` comes late: what was registered last is called first before a fork.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from types import FrameType
from typing import TypeVar

from tsnb.native.endings import raise_again

__all__ = ["free_in_child", "guard"]

_Lock = TypeVar("_Lock")


def free_in_child(lock: _Lock) -> _Lock:
    """Return a lock of the module level. In a forked child it is free: the thread that holds it is not there."""
    os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]  # as Python's own modules do
    return lock


class _Guard:
    """Notes interrupts for the time of one fork. Its calls are steps of generators, as those of `endings.ending`."""

    def __init__(self) -> None:
        self.noting = self.came = False

    def before(self) -> Iterator[None]:
        while True:
            try:
                yield
                self._note()
            except KeyboardInterrupt:
                self._note()
                self.came = True

    def in_parent(self) -> Iterator[None]:
        while True:
            try:
                yield
                self._note_no_more()
            except KeyboardInterrupt:
                self.came = True
            if self.came:
                self.came = False
                raise_again(KeyboardInterrupt, _Guard.in_parent.__code__)

    def in_child(self) -> None:
        """What was meant for the parent is not for the child."""
        self._note_no_more()
        self.came = False

    def _note(self) -> None:
        here = threading.get_ident() == threading.main_thread().ident  # no other thread is interrupted
        if here and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self.noting = True
            signal.signal(signal.SIGINT, self._take)

    def _note_no_more(self) -> None:
        if self.noting and threading.get_ident() == threading.main_thread().ident:
            self.noting = False
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True


_guarded = False


def guard() -> None:
    """Lose no interrupt that comes while this process forks, from now on. Called again it does nothing."""
    global _guarded
    if _guarded:
        return
    _guarded = True
    made = _Guard()
    before, in_parent = made.before(), made.in_parent()
    next(before)
    next(in_parent)
    os.register_at_fork(
        before=partial(next, before, None),
        after_in_parent=partial(next, in_parent, None),
        after_in_child=made.in_child,
    )
