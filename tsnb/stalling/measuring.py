"""Runs a loader, a step, or both for some seconds and counts what a sample costs. Draws no conclusions.

Counting begins when the workers have filled their queues, and ends before they run out of indices, so that
neither a start nor an epoch's end is in it: small epochs are repeated. Loaders are gone through without disturbing
their owner (`undisturbed`).
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from tsnb.machine import clocks
from tsnb.machine.cores import cores_busy_s
from tsnb.machine.processes import children_of
from tsnb.stalling.silence import came, waits
from tsnb.stream.loader.workers import WorkerStart, end_workers, going_through

__all__ = [
    "Continued",
    "Counted",
    "Step",
    "check_length",
    "fresh",
    "length_of",
    "rows",
    "run",
    "run_step",
    "wait_for_gpu",
]


class Continued:
    """A loader on which each loop goes on where the last one stopped; at an epoch's end it begins the next.

    New workers of a served loader meet its memory for the first time, which costs them as much as a batch for each
    slot: in a long epoch that is nothing, in a measurement of half a second it would be most of it.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._loop: Iterator[Any] | None = None

    @property
    def begins(self) -> bool:
        """Whether the next batch is the first of an epoch."""
        return self._loop is None

    def __iter__(self) -> Continued:
        return self

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            StopIteration: The epoch has ended.
        """
        if self._loop is None:
            self._loop = iter(self._loader)
        try:
            return next(self._loop)
        except StopIteration:
            self._loop = None
            raise


def fresh(loader: Any) -> Any:
    """Return a loader that may be iterated without disturbing the user's own loop over it."""
    if not isinstance(loader, DataLoader):
        return loader
    mine = copy.copy(loader)
    mine.__dict__["_iterator"] = None  # that of persistent workers
    mine.worker_init_fn = WorkerStart(
        loader.worker_init_fn
    )  # so that they end with this process, if it is killed
    return mine


def length_of(loader: Any) -> int | None:
    """Return the batches in an epoch, where the loader says so."""
    try:
        return len(loader)
    except TypeError:
        return None


def check_length(loader: Any, samples: int | None) -> None:
    """Require that somebody says how long an epoch is.

    Args:
        loader: The loader, which may.
        samples: Of an epoch, as the user says; None: not given.

    Raises:
        ValueError: Nobody does.
    """
    if samples is None and length_of(loader) is None:
        raise ValueError(
            "The loader has no length, so the samples per epoch are unknown. Pass samples= (--samples)."
        )


def rows(batch: Any) -> int:
    """Return the samples in a batch: the first dimension of its first tensor or array; 1 if it has neither."""
    return _rows(batch) or 1


def _rows(part: Any) -> int:
    shape = getattr(part, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 0
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        part = vars(part)
    inside = part.values() if isinstance(part, dict) else part if isinstance(part, (list, tuple)) else ()
    return next((found for each in inside if (found := _rows(each))), 0)


Step = Callable[[Any], Any]
MARK_S = 0.02
"""The clocks are read so often at most: reading them costs some 50 us."""
LEAST = 3
"""Batches that are counted at least, however long they take."""
LONGEST = 5
"""Times the seconds asked for: then a run ends, whatever it has."""


@dataclass
class Counted:
    """One run: seconds of the time that counts, summed over epochs."""

    samples: int = 0
    batches: int = 0
    wall_s: float = 0.0
    taking_wall_s: float = 0.0
    """In which the training loop had no batch."""
    taking_s: float = 0.0
    """CPU of this thread in `next()`."""
    computing_s: float = 0.0
    """CPU of this process in the step, without the loader's own threads."""
    rest_s: float = 0.0
    """CPU of everything else here and below: workers, threads that help."""
    no_core_s: float = 0.0
    """In which the slower side, this thread or the workers, was ready but had no core."""
    others_s: float | None = 0.0
    """CPU of programs that have nothing to do with it; None where it is not told."""

    def each(self, seconds: float) -> float:
        """Return seconds a sample."""
        return seconds / max(1, self.samples)


@dataclass
class _Clocks:
    """All clocks at one moment."""

    samples: int
    batches: int
    wall_s: float
    process_s: float
    workers: dict[int, float]
    waits: dict[int, float]
    own_wait_s: float
    taking_wall_s: float
    taking_s: float
    computing_s: float
    busy_s: float | None


def run(
    loader: Any,
    step: Step | None,
    seconds: float,
    ahead: int,
    epoch_batches: int | None,
    before: set[int] | None = None,
    threads: Collection[int] = (),
    workers: int = 1,
) -> Counted:
    """Take batches for some seconds, and compute on them.

    Equal workers finish at one moment, so whole rounds of them count: else a batch of the time counted is missing.

    Args:
        loader: Iterated again and again, an epoch each time.
        step: Called with each batch; None: the batches are only taken.
        seconds: How long to count.
        ahead: Batches that its workers prepare ahead: so many are taken before it counts.
        epoch_batches: In an epoch, where known.
        before: Processes below this one that have nothing to do with it; by default those of this moment.
        threads: Those of this process that belong to the loader; see `clocks.threads`.
        workers: Of the loader.

    Raises:
        ValueError: The loader gives no batch.
    """
    before = set(children_of(os.getpid())) if before is None else before
    try:
        return _counted(loader, step, seconds, ahead, epoch_batches, before, threads, max(1, workers))
    finally:
        if isinstance(loader, DataLoader):
            end_workers(loader._iterator)  # persistent ones


def _counted(
    loader: Any,
    step: Step | None,
    seconds: float,
    ahead: int,
    epoch_batches: int | None,
    before: set[int],
    threads: Collection[int],
    workers: int,
) -> Counted:
    """Do what `run` does; persistent workers stay."""
    total = Counted()
    deadline_s = time.perf_counter() + LONGEST * seconds
    while total.batches < LEAST or (
        total.wall_s - total.no_core_s < seconds and time.perf_counter() <= deadline_s
    ):
        whole = loader.begins if isinstance(loader, Continued) else True
        skip, stop = _span(ahead, epoch_batches if whole else None, workers)
        marks: list[_Clocks] = []
        number = 0
        with going_through(loader, whole=False) as given:
            marked = _marks(given, step, skip, stop, before, threads, workers)
            for number, mark in marked:  # noqa: B007  # the last one counts
                if mark is not None:
                    marks.append(mark)
                    if _far_enough(total, marks, seconds, deadline_s) or mark.batches == stop:
                        break
            else:
                if whole:  # what was left of an epoch tells nothing of the next one
                    epoch_batches = number  # it had not said so: the next is counted up to its end
                if whole and number < 2:  # two marks are needed
                    raise ValueError(
                        "An epoch of one batch cannot be measured. Pass a loader with more batches, or "
                        "smaller ones."
                    )
        if len(marks) > 1:
            _add(total, marks[0], marks[-1])
    return total


def _far_enough(total: Counted, marks: list[_Clocks], seconds: float, deadline_s: float) -> bool:
    """Whether what was counted before, and what lies between these marks, is all that was asked for."""
    first, last = marks[0], marks[-1]
    batches = total.batches + last.batches - first.batches
    # seconds with a core: on a busy machine it takes longer, and counts as much
    spent_s = total.wall_s - total.no_core_s + last.wall_s - first.wall_s - _no_core_s(first, last)
    return batches >= LEAST and (spent_s >= seconds or last.wall_s > deadline_s)


def _span(ahead: int, epoch_batches: int | None, workers: int) -> tuple[int, int | None]:
    """Return how many batches of an epoch come before it counts, and after which one it ends."""
    if epoch_batches is None:
        return ahead + 1, None
    skip = max(1, min(ahead + 1, epoch_batches // 4))
    most = max(skip + 1, epoch_batches - min(ahead, epoch_batches // 4))
    return skip, most - (most - skip) % workers if most - skip >= workers else most


def _marks(
    given: Iterator[Any],
    step: Step | None,
    skip: int,
    stop: int | None,
    before: set[int],
    threads: Collection[int],
    workers: int,
) -> Iterator[tuple[int, _Clocks | None]]:
    """Go through one epoch; yield the number of batches, with all clocks now and then from the first that counts on."""
    pids: set[int] = set()
    samples = batches = 0
    taking_wall_s = taking_s = computing_s = marked_s = 0.0
    while True:
        began, cpu = time.perf_counter(), time.thread_time()
        waits()
        try:
            batch = next(given)
        except StopIteration:
            return
        finally:
            came()
        taking_wall_s += time.perf_counter() - began
        taking_s += time.thread_time() - cpu
        batches += 1
        samples += rows(batch)
        if step is not None:
            cpu = _without_s(threads)
            step(batch)
            computing_s += _without_s(threads) - cpu
        del batch
        if batches == skip:
            pids = set(children_of(os.getpid())) - before
        elif batches != stop and (
            batches < skip or (batches - skip) % workers or time.perf_counter() - marked_s < MARK_S
        ):
            yield batches, None
            continue
        marked_s = time.perf_counter()
        yield batches, _mark(pids, samples, batches, taking_wall_s, taking_s, computing_s)


def _without_s(threads: Collection[int]) -> float:
    """Return the CPU seconds of this process without those of some of its threads."""
    return time.process_time() - sum(map(clocks.thread_cpu_s, threads))


def _mark(
    pids: set[int], samples: int, batches: int, taking_wall_s: float, taking_s: float, computing_s: float
) -> _Clocks:
    workers = {pid: spent for pid in pids if (spent := clocks.cpu_s(pid)) is not None}
    waits = {pid: clocks.waited_s(pid) for pid in workers}
    return _Clocks(
        samples,
        batches,
        time.perf_counter(),
        time.process_time(),
        workers,
        waits,
        clocks.waited_s(),
        taking_wall_s,
        taking_s,
        computing_s,
        cores_busy_s(),
    )


def _add(total: Counted, first: _Clocks, last: _Clocks) -> None:
    """Count what lies between two marks of one epoch."""
    wall_s = last.wall_s - first.wall_s
    taking_s, computing_s = last.taking_s - first.taking_s, last.computing_s - first.computing_s
    alive = [pid for pid in last.workers if pid in first.workers]
    workers_s = sum(last.workers[pid] - first.workers[pid] for pid in alive)
    process_s = last.process_s - first.process_s
    total.samples += last.samples - first.samples
    total.batches += last.batches - first.batches
    total.wall_s += wall_s
    total.taking_wall_s += last.taking_wall_s - first.taking_wall_s
    total.taking_s += taking_s
    total.computing_s += computing_s
    total.rest_s += workers_s + max(0.0, process_s - taking_s - computing_s)
    total.no_core_s += _no_core_s(first, last)
    if first.busy_s is None or last.busy_s is None or total.others_s is None:
        total.others_s = None
    else:
        total.others_s += max(0.0, last.busy_s - first.busy_s - process_s - workers_s)


def _no_core_s(first: _Clocks, last: _Clocks) -> float:
    """Return how long the slower side, this thread or the workers, was ready and had no core between two marks."""
    waits = [last.waits[pid] - first.waits[pid] for pid in last.waits if pid in first.waits]
    waited = max(last.own_wait_s - first.own_wait_s, sum(waits) / len(waits) if waits else 0.0)
    return min(waited, 0.9 * (last.wall_s - first.wall_s))


def run_step(step: Step, batches: list[Any], seconds: float) -> Counted:
    """Compute on batches that lie ready, over and over, for some seconds.

    Args:
        step: Called with each batch.
        batches: Some, so that not all of it lies in a cache.
        seconds: How long to count.
    """
    total = Counted()
    for batch in batches[:2]:  # the first steps allocate, tune and compile
        step(batch)
    wait_for_gpu()
    began, cpu, waited = time.perf_counter(), time.process_time(), clocks.waited_s()
    busy = cores_busy_s()
    for batch in itertools.cycle(batches):
        step(batch)
        total.samples += rows(batch)
        total.batches += 1
        if total.batches >= LEAST and time.perf_counter() - began >= seconds:
            break
    wait_for_gpu()
    total.wall_s = time.perf_counter() - began
    total.computing_s = time.process_time() - cpu
    total.no_core_s = min(clocks.waited_s() - waited, 0.9 * total.wall_s)
    now = cores_busy_s()
    total.others_s = None if now is None or busy is None else max(0.0, now - busy - total.computing_s)
    return total


def wait_for_gpu() -> bool:
    """Let a GPU finish what it was given; return whether this process uses one."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # is_available() would start the driver here
        return False
    torch.cuda.synchronize()
    return True
