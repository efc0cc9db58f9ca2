"""`tsnb.stalls` and what it returns: rounds of measurements, and `Stalls`, which tells what follows from them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

import torch

from tsnb.frozen.loaders import frozen_loader, part_of
from tsnb.frozen.part import FrozenPart
from tsnb.machine import clocks
from tsnb.machine.cores import available_cores
from tsnb.machine.processes import children_of
from tsnb.stalling import asked, measuring, sentences
from tsnb.stalling.asked import changed
from tsnb.stalling.figures import Interval
from tsnb.stalling.intervals import four_in_five, rest, rounds_of, shared_out, sized_out, spread
from tsnb.stalling.measured_code import CountedStep, undisturbed
from tsnb.stalling.measuring import Continued, Step, fresh, length_of
from tsnb.stalling.reading import storage_of
from tsnb.stalling.sentences import as_plain
from tsnb.stalling.serving import FrozenClock, FrozenCost, full_after, served
from tsnb.stalling.sharing import Computing, Loading, Round, Sharing, Way, others, ways
from tsnb.stalling.silence import awaited, told_when_silent
from tsnb.stalling.sizing import Sizing
from tsnb.stalling.storage import Hits, Storage, hits
from tsnb.stream.loader.workers import going_through
from tsnb.text.printable import harmless

__all__ = ["Stalls", "stalls"]


KEPT = 4
"""Batches that the model alone computes on, in turn."""
ROUNDS = 3
"""Everything is measured so many times in turns, each a part of the seconds asked for; medians count."""


@dataclass(frozen=True, repr=False)
class Stalls:
    """Where a trial's time goes, and what k of them would get on this machine. Shown as a table with sentences."""

    trials: int
    """How many trials the sentences speak of."""
    cores: float
    """CPU cores that this process may use."""
    batch_size: int
    """Samples in a batch."""
    threads: int
    """Torch threads in each trial."""
    own: Way
    """The loader as it is."""
    one: Way
    """The same loader, shared."""
    others: float | None
    """Cores that other programs took meanwhile; None where that is not told."""
    storage: Storage | None = None
    """What a sample reads from files; None: nothing, or it could not be seen."""
    hits: Hits | None = None
    """Share of the samples whose files are in memory in these figures; None: as it was while they were measured."""
    off: float = 0.0
    """How far figures may be off by the spread of the rounds, as a share of them: 80 % of calls are within."""

    epoch_samples: int | None = None
    """Samples in an epoch, where the loader says so."""
    measured: Stalls | None = None
    """What these figures were calculated from; None: they were measured themselves."""
    rounds: tuple[tuple[Way, Way], ...] = ()
    """`own` and `one` as each round of measurement alone has them: by them figures have their intervals."""
    steps: int = 0
    """How often the step really ran, and trained what it trains."""
    cold: bool = False
    """Whether the disk was to be measured."""
    frozen: FrozenCost | None = None
    """The frozen part of a network that the loader computes; None: measured without `then=`."""

    @cached_property
    def each_round(self) -> tuple[Stalls, ...]:
        """Each round of measurement alone."""
        return rounds_of(self)

    @cached_property
    def ends(self) -> tuple[Stalls, Stalls, Stalls]:
        """The same with the least and the most that the page cache may keep, and with everything in memory."""
        assert self.hits is not None  # asked for by `four_in_five` where a share was assumed
        least, most = (self.with_cached(share) for share in (self.hits.least, self.hits.most))
        return least, most, self.with_cached(1.0)

    @property
    def plain(self) -> Loading:
        """The cost of the loader as it is."""
        return self.own.loading

    @property
    def served(self) -> Loading:
        """What the same loader costs, shared."""
        return self.one.loading

    @property
    def computing(self) -> Computing | None:
        """What one step costs; None if none was given."""
        return self.own.computing

    @property
    def together_per_s(self) -> float | None:
        """Samples/s of loader and step together, on a machine without other programs; None without a step."""
        return 1 / self.own.one_s if self.own.one_s else None

    @property
    def together_served_per_s(self) -> float | None:
        """The same, with the loader shared."""
        return 1 / self.one.one_s if self.one.one_s else None

    @property
    def loader_per_s(self) -> float:
        """Samples/s of the loader alone, on the cores there are."""
        cost = self.plain
        return 1 / max(cost.wall_s, (cost.cpu_s + cost.taking_s) / self.cores)

    @property
    def served_per_s(self) -> float:
        """Samples/s of the same loader, shared with one process."""
        cost = self.served
        return 1 / max(cost.wall_s, (cost.cpu_s + cost.taking_s) / self.cores)

    @property
    def interval(self) -> tuple[float, float]:
        """What `loader_per_s` lies between in 80 of 100 cases, in samples/s.

        By the spread of the rounds, of the waits for the disk, and by what the page cache keeps (`with_memory`).
        """
        found = four_in_five(self, lambda each: each.loader_per_s, self.off)
        assert found is not None  # there always is a loader
        return found

    @property
    def model_per_s(self) -> float | None:
        """Samples/s of the step alone, on batches that lie ready; None without one."""
        return 1 / self.computing.wall_s if self.computing else None

    @property
    def stalled(self) -> float | None:
        """Share of its time that one trial waits for data, 0 to 1; None without a step."""
        if self.computing is None or self.together_per_s is None:
            return None
        return max(0.0, 1 - self.computing.wall_s * self.together_per_s)

    @property
    def stalled_interval(self) -> Interval | None:
        """What `stalled` lies between in 80 of 100 cases, 0 to 1; None without a step."""

        def busy(each: Stalls) -> float | None:
            return None if each.stalled is None else 1 - each.stalled

        return None if (found := rest(four_in_five(self, busy))) is None else (max(0.0, found[0]), found[1])

    @property
    def text(self) -> str:
        """What limits, what sharing would give, and what to do next, in plain sentences."""
        return " ".join(sentences.sentences(self))

    def sharing(self, trials: int, *, cores: float | None = None) -> Sharing:
        """Return what so many equal trials get, with a loader each and on one.

        Args:
            trials: How many train at the same time, each as long a step as the one that was measured.
            cores: CPU cores for all of them; by default those of this machine.

        Raises:
            ValueError: It is not a number of trials, or of cores.
        """
        number = asked.TRIALS.checked("trials", trials)
        return shared_out(self, number, self.cores if cores is None else asked.CORES.checked("cores", cores))

    def with_workers(self, workers: int) -> Stalls:
        """Return the same for a loader with another `num_workers`, calculated, not measured.

        Args:
            workers: Worker processes, 1 or more.

        Raises:
            ValueError: It is not a number of processes.
        """
        return changed(self, workers=asked.WORKERS.checked("workers", workers))

    def with_cached(self, share: float) -> Stalls:
        """Return the same where this share of the samples is read from memory, the rest from the disk; calculated.

        Args:
            share: 0 to 1.

        Raises:
            ValueError: It is not a share, or the cost of the disk is not known: `stalls(..., cold=True)` measures it.
        """
        likely = asked.SHARE.checked("share", share)
        return changed(self, hits=Hits(likely, likely, likely))

    def with_memory(self, memory: str | float) -> Stalls:
        """Return the same with so much memory for the page cache, epoch after epoch in random order; calculated.

        Args:
            memory: "8GiB", or a number of bytes.

        Raises:
            ValueError: It is not a size, or the files that are read are not known: `stalls(..., cold=True)` finds them.
        """
        size = asked.CACHED.checked("memory", memory)
        if self.storage is None or self.storage.total_bytes is None:
            raise ValueError(
                "The size of an epoch's files is unknown, because the loader is not a DataLoader with a "
                "length or opens no visible file. Pass the share yourself: found.with_cached(0.5)."
            )
        return changed(self, hits=hits(size, self.storage.total_bytes))

    def with_disk(self, rate: str | float) -> Stalls:
        """Return the same with a disk of this rate, for all workers together; calculated.

        Args:
            rate: "100MB/s", or a number of bytes a second.

        Raises:
            ValueError: It is not a rate, or the bytes that a sample reads are not known.
        """
        per_s = asked.RATE.checked("rate", rate)
        if self.storage is None or not self.storage.sample_bytes:
            raise ValueError(
                "The bytes read per sample are unknown, because the loader is not a DataLoader or opens "
                "no visible file."
            )
        wait_s = self.storage.sample_bytes / per_s
        return changed(self, storage=replace(self.storage, wait_s=wait_s, busy_s=wait_s, off=0.0))

    def sizing(
        self,
        *,
        gpus: int = 1,
        samples: int | None = None,
        vcpu_price: float | None = None,
        gpu_price: float | None = None,
    ) -> Sizing:
        """Return the vCPUs that each GPU needs so that its model does not wait, with and without sharing.

        Args:
            gpus: How many train at once, a trial each.
            samples: In an epoch; by default those of the loader that was measured.
            vcpu_price: Of a vCPU for an hour.
            gpu_price: Of a GPU for an hour.

        Raises:
            ValueError: No step was measured, or a number is out of range.
        """
        if self.computing is None:
            raise ValueError("sizing() needs the model's speed. Call tsnb.stalls(loader, train_step=...).")
        number = asked.GPUS.checked("gpus", gpus)
        length = self.epoch_samples if samples is None else asked.SAMPLES.checked("samples", samples)
        prices = {"vcpu_price": vcpu_price, "gpu_price": gpu_price}
        own, gpu = (
            None if price is None else asked.PRICE.checked(name, price) for name, price in prices.items()
        )
        return sized_out(self, number, length, own, gpu)

    def to_dict(self, trials: Iterable[int] = (1, 2, 4, 8), *, cores: float | None = None) -> dict[str, Any]:
        """Return the figures as plain values, for JSON.

        Args:
            trials: Numbers of trials, of which each gets an entry of `sharing`.
            cores: CPU cores for all of these; by default those of this machine.

        Raises:
            ValueError: One of them is not a number of trials, or of cores.
        """
        return as_plain(
            self, _numbers_of(trials), None if cores is None else asked.CORES.checked("cores", cores)
        )

    def __repr__(self) -> str:
        return harmless(sentences.plain_text(self))

    def _repr_html_(self) -> str:
        return sentences.html(self)


def stalls(
    loader: Iterable[Any],
    train_step: Step | None = None,
    *,
    then: Callable[[Any], Any] | None = None,
    n_trials: int = 4,
    seconds: float = 2.0,
    threads: int = 1,
    cold: bool = False,
) -> Stalls:
    """Measure how long a model waits for its loader, and what sharing saves.

    Runs the loader alone, the step alone, both together, and the loader as `tsnb.serve` shares it: some 15 seconds.
    The step really trains, so pass a copy of the model if that matters.

    Example:
        >>> tsnb.stalls(loader, train_step, seconds=0.2)

    Args:
        loader: A `DataLoader`, or another iterable of batches that can be iterated more than once.
        train_step: Function of one batch: one training step. Defaults to None, a model that costs nothing.
        then: Frozen network, or function of a batch, as `tsnb.serve` takes it. The step gets its features. Defaults to
            None.
        n_trials: Number of trials that the sentences speak of. The result answers for any number. Defaults to 4.
        seconds: Seconds per measurement. Longer is steadier. Defaults to 2.
        threads: Torch threads in the step. Defaults to 1, as in trials.
        cold: Whether to also measure the disk. Other readers of these files then wait for the disk. Defaults to
            False.

    Returns:
        The measurements. They show as tables with sentences, with `sharing(k)` for numbers.

    Raises:
        TypeError: If `loader` is an iterator, or `train_step` cannot be called.
        ValueError: If a number is out of range, or the loader yields no batch.
        LoaderFailed: If the loader cannot be shared.
        TsnbError: If the step raises. The message has the place and the batch.
    """
    _check(loader, train_step, cold)
    loader = loader if then is None else frozen_loader(loader, FrozenPart(then))
    n_trials, threads = asked.TRIALS.checked("n_trials", n_trials), asked.THREADS.checked("threads", threads)
    seconds = asked.SECONDS.checked("seconds", seconds)
    train_step = None if train_step is None else CountedStep(train_step)
    part, workers = part_of(loader), getattr(loader, "num_workers", 0)
    frozen = None if part is None else FrozenClock(part, workers)
    ahead = workers * (getattr(loader, "prefetch_factor", None) or 0)
    batches = length_of(loader)
    rounds = []
    with told_when_silent(workers), ExitStack() as stack:
        before, others = set(children_of(os.getpid())), clocks.threads()
        with _threads(threads), undisturbed(loader):
            storage = storage_of(loader, seconds / 2, cold=cold)
        for each in (_threads(threads), undisturbed(loader)):
            stack.enter_context(each)
        there = stack.enter_context(served(loader, seconds))
        stream, serving = there.stream, clocks.threads() - others
        kept = _some(loader) if train_step is not None else []
        part_s = seconds / ROUNDS
        length = None if isinstance(stream, Continued) else batches
        served_span = (part_s, full_after(loader), length, before, serving, workers)
        for _ in range(ROUNDS):  # in turns, so that a busy moment does not fall on one of the five
            alone = _alone(loader, frozen, part_s, ahead, batches, workers)
            computing = together = together_served = None
            if train_step is not None:
                computing = measuring.run_step(train_step, kept, part_s)
                together = measuring.run(fresh(loader), train_step, part_s, ahead, batches, workers=workers)
                measuring.wait_for_gpu()
            shared = measuring.run(stream, None, *served_span)
            if train_step is not None:
                together_served = measuring.run(stream, train_step, *served_span)
                measuring.wait_for_gpu()
            rounds.append(Round(alone, computing, together, shared, together_served))
    steps = 0 if train_step is None else train_step.runs
    cost = None if frozen is None else frozen.cost
    return replace(_result(loader, n_trials, threads, rounds, storage), steps=steps, cold=cold, frozen=cost)


def _alone(
    loader: Any, frozen: FrozenClock | None, seconds: float, ahead: int, batches: int | None, workers: int
) -> measuring.Counted:
    """Run the loader alone, and count what its frozen part computes."""

    def measured() -> measuring.Counted:
        return measuring.run(fresh(loader), None, seconds, ahead, batches, workers=workers)

    return measured() if frozen is None else frozen.run(measured)


def _some(loader: Any) -> list[Any]:
    """Return the first batches of an epoch."""
    with going_through(fresh(loader)) as given:
        return list(awaited(itertools.islice(given, KEPT)))


def _numbers_of(trials: Any) -> list[int]:
    """Return numbers of trials in order.

    Raises:
        ValueError: They are not several, or one is not a number of trials.
    """
    if isinstance(trials, str) or not isinstance(trials, Iterable):
        raise ValueError(f"trials={trials!r} is invalid. Pass several numbers of trials, such as (1, 2, 4).")
    return sorted(asked.TRIALS.checked("trials", each) for each in trials)


def _check(loader: Any, step: Any, cold: Any) -> None:
    asked.check_loader(loader)
    if step is not None and not callable(step):
        raise TypeError(
            f"train_step={step!r} is invalid. Pass a function that takes a batch and trains on it."
        )
    asked.check_cold(cold)


@contextmanager
def _threads(threads: int) -> Iterator[None]:
    """Let torch compute on so many threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _result(loader: Any, trials: int, threads: int, rounds: list[Round], storage: Storage | None) -> Stalls:
    """Draw the medians of all rounds together."""
    workers = getattr(loader, "num_workers", 0)
    on_gpu = measuring.wait_for_gpu()
    own, one = ways(rounds, workers, on_gpu=on_gpu)
    size = round(median(r.alone.samples / r.alone.batches for r in rounds))
    told = Stalls(trials, available_cores(), size, threads, own, one, others(rounds))
    batches = length_of(loader)
    return replace(
        told,
        storage=storage,
        off=spread([r.alone.each(r.alone.wall_s - r.alone.no_core_s) for r in rounds]),
        epoch_samples=None if batches is None else batches * size,
        rounds=tuple(ways([each], workers, on_gpu=on_gpu) for each in rounds),
    )
