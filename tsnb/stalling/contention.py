"""What several loaders of the same data cost each other, beyond the cores, and the memory of one: two are served.

Two loaders with a core each can still hold each other up: a disk that serves one read at a time, a lock, the memory
bus, Python's lock in the process that serves both. Where a sample takes clearly longer with two at once than alone,
half of it is what one loader at a time can have:

    alone t1 a sample, two at once t2 > t1     each has t2 / 2 of what no other can have meanwhile
    k at once                                  k t2 / 2 a sample each, or longer for want of cores
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from tsnb.machine import clocks
from tsnb.machine.processes import children_of, held
from tsnb.stalling.measured_code import undisturbed
from tsnb.stalling.measuring import Continued, length_of, run
from tsnb.stalling.serving import full_after, served
from tsnb.stalling.sharing import Loading
from tsnb.stalling.silence import told_when_silent

__all__ = ["LoaderContention", "contention", "lone_of"]

CLEAR = 1.15
"""Two at once are slower by another reason than chance if a sample takes so many times as long."""


@dataclass(frozen=True)
class LoaderContention:
    """What a loader costs others."""

    lone_s: float = 0.0
    """Seconds a sample in which no other loader of the same data gets on; 0: nothing was noticed."""
    memory_bytes: float = 0.0
    """Memory of its workers and of its arena alone."""
    fill_s: float = 0.0
    """Seconds that its first batches take longer than later ones: a start of workers, memory that is new."""
    serve_s: float = 0.0
    """Seconds of that until there is a stream, in the process that serves: of several loaders one after the other."""


class _Both(Continued):
    """Two streams, a batch of each at a time; the first one's count."""

    def __init__(self, counted: Any, other: Any) -> None:
        self._counted, self._other = map(_continued, (counted, other))

    @property
    def begins(self) -> bool:
        """Whether the next batch is the first of an epoch."""
        return self._counted.begins

    def __next__(self) -> Any:
        """Return the next batch of the one that counts, when the other's is there too.

        Raises:
            StopIteration: Its epoch has ended.
        """
        batch = next(self._counted)
        try:
            next(self._other)
        except StopIteration:  # it is a batch ahead, or behind
            next(self._other)
        return batch


def _continued(stream: Any) -> Continued:
    return stream if isinstance(stream, Continued) else Continued(stream)


def contention(loader: Any, alone: Loading, seconds: float) -> LoaderContention:
    """Serve a loader twice at once; return what the two cost each other, and what memory one takes.

    Args:
        loader: A DataLoader with workers; of another nothing can be told.
        alone: What it costs alone, served.
        seconds: How long to count.

    Raises:
        ValueError: An epoch has one batch.
        LoaderFailed: It cannot be shared.
    """
    if not isinstance(loader, DataLoader) or not loader.num_workers:
        return LoaderContention()
    with told_when_silent(loader.num_workers), undisturbed(loader), ExitStack() as stack:
        before, others = set(children_of(os.getpid())), clocks.threads()
        first = stack.enter_context(served(loader, seconds))
        both = [first, stack.enter_context(served(loader, seconds))]
        serving = clocks.threads() - others
        streams = _Both(*(each.stream for each in both))
        ahead = full_after(loader)
        counted = run(streams, None, seconds, ahead, length_of(loader), before, serving, loader.num_workers)
        workers_bytes = _weighed(
            streams, ahead, before
        )  # not while it counts: the kernel walks all their pages
        arenas = [each.producer.status().touched_bytes for each in both]
    two_s = counted.each(counted.wall_s - counted.no_core_s)
    memory_bytes = (workers_bytes + sum(arenas)) / 2
    fill_s = max(0.0, first.took_s - first.samples * alone.wall_s)
    return LoaderContention(lone_of(two_s, alone), memory_bytes, fill_s, min(fill_s, first.serve_s))


def lone_of(two_s: float, alone: Loading) -> float:
    """Return the seconds a sample in which no other loader of the same data gets on; 0: no more than chance. Pure.

    Args:
        two_s: Seconds a sample with two at once.
        alone: What it costs alone.
    """
    one_s = max(alone.wall_s, 2 * alone.taking_s)  # one thread takes the batches of both
    return two_s / 2 if two_s > CLEAR * one_s else 0.0


def _weighed(streams: _Both, most: int, before: set[int]) -> float:
    """Take some batches more, and return the most memory that the workers had, now and then.

    In an epoch that is short there are none when its last batches are taken.
    """
    found = 0.0
    for number, _ in zip(range(most), streams, strict=False):
        if number & (number + 1) == 0:
            workers = set(children_of(os.getpid())) - before
            found = max(found, sum(float(memory.own_bytes) for pid in workers if (memory := held(pid))))
    return found
