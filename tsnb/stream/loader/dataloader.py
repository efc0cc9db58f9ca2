"""A DataLoader as a source: its workers write into the arena, and its epochs can be seeded and begun anywhere.

The user's loader object is never changed: its shallow copy gets another `collate_fn`, `worker_init_fn` and
batch sampler (`stream.loader.tickets`), and with a seed samplers of its own.
"""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, IterableDataset

from tsnb.stream.decisions.slow_samples import SampleCosts
from tsnb.stream.loader.collate import SlotCollate
from tsnb.stream.loader.crew import BatchPace, WorkerCrew, file_sizes, in_order
from tsnb.stream.loader.facts import GROWS, epoch_samples, indices_of, why_deaf
from tsnb.stream.loader.generators import draw_apart, drawing_from, stream_generator
from tsnb.stream.loader.queues import PacketQueue, QueueContext, has_packets, why_ordinary
from tsnb.stream.loader.repeating import length, loader_order, replayed, sampler_chain
from tsnb.stream.loader.seams import Given, OrderedBatches, OwnOrder, Ready, SampleStore
from tsnb.stream.loader.tickets import TICKET_S, TicketCollate, TicketDataset, Tickets, mix
from tsnb.stream.loader.workers import WorkerStart, starting_workers, travelling
from tsnb.stream.memory.arena import Arena
from tsnb.stream.memory.slots import SlotPipe

__all__ = ["DataLoaderSource"]

MAX_TICKET = 8
"""Batches in a ticket. By then the queues cost little; more would only lie ahead."""
AHEAD_BYTES = 1 << 25
"""Tickets never make the workers prepare more than this ahead of what they would without them: large batches travel
alone, since the queues are not what limits them."""
SMOOTHING = 0.1
"""Weight of the newest measurement of what a batch costs."""


_CONTEXT = "_DataLoader__multiprocessing_context"
"""What torch asks for the queues and processes of an iterator."""


class DataLoaderSource:
    """A DataLoader whose workers collate into the arena; a `stream.loader.sources.Source`."""

    def __init__(
        self,
        loader: DataLoader[Any],
        arena: Arena,
        pipe: SlotPipe,
        seed: int | None,
        workers: int | None,
        keeper: SampleStore | None = None,
        growth: OwnOrder | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self._keeper = keeper
        seed = seed if growth is None else growth.seed
        self._seed = seed
        self._generators = (torch.Generator(), torch.Generator())
        mine = copy.copy(loader)
        self._dataset = loader.dataset
        self._drops = bool(loader.drop_last and loader.batch_size)
        # DataLoader forbids to set these after construction; on a copy that has not been iterated it is safe
        fields = mine.__dict__
        fields["_iterator"] = None
        fields["pin_memory"] = False  # batches are in shared memory; a consumer that wants CUDA pins its own
        if workers is not None:
            fields["num_workers"] = workers
            fields["prefetch_factor"] = (loader.prefetch_factor or 2) if workers else None
            fields["timeout"] = loader.timeout if workers else 0
        iterable = isinstance(loader.dataset, IterableDataset)
        fields["persistent_workers"] = (
            loader.persistent_workers and mine.num_workers > 0 and not why_deaf(loader, seed)
        )
        if seed is not None:
            fields["generator"] = self._generators[1]
        else:
            draw_apart(mine, generator or stream_generator())
        name = "sampler" if loader.batch_sampler is None else "batch_sampler"
        self._growing = None if growth is None else growth.batches()
        self._sampler = fields[name] if seed is None else drawing_from(fields[name], self._generators[0])
        if self._growing is not None:
            self._sampler = self._growing
        self._tickets = None if iterable else Tickets(self._sampler, 1 if mine.num_workers else 0)
        self._prepare_workers(
            mine,
            loader,
            SlotCollate(
                arena, pipe, travelling(loader.collate_fn, mine), batched=loader.batch_sampler is not None
            ),
        )
        if self._tickets is not None:
            fields[name] = self._tickets
        self.order = loader_order(loader, mine.num_workers, seed) if growth is None else growth.order
        self.batch_size = loader.batch_size
        self.batches = length(loader)
        self.samples = epoch_samples(loader)
        self.indices = indices_of(loader) if growth is None else GROWS
        self.ordinary = why_ordinary(mine.multiprocessing_context) if mine.num_workers else ""
        self.workers = LoaderWorkers(
            mine,
            self._tickets,
            self._dataset,
            own_queues=not self.ordinary,
            by_line=seed is not None and growth is None,
        )

    def _prepare_workers(self, mine: DataLoader[Any], loader: DataLoader[Any], collate: SlotCollate) -> None:
        fields = mine.__dict__
        fields["dataset"] = travelling(loader.dataset, mine)
        if self._keeper is not None:
            fields["dataset"] = self._keeper.dataset(fields["dataset"], loader, mine.num_workers)
        fields["worker_init_fn"] = WorkerStart(travelling(loader.worker_init_fn, mine))
        fields["collate_fn"] = collate
        if self._tickets is not None and mine.num_workers:
            fields["dataset"] = TicketDataset(fields["dataset"])
            fields["collate_fn"] = TicketCollate(collate, batched=loader.batch_sampler is not None)

    @property
    def stays(self) -> bool:
        """Whether its workers stay for the next epoch."""
        return self.workers.stay

    def most_ahead(self, batch_bytes: int) -> int:
        """As `LoaderWorkers.most_ahead`."""
        return self.workers.most_ahead(batch_bytes)

    def begin(self, epoch: int, start: int = 0, cover: int | None = None) -> Iterator[Given]:
        """Begin an epoch. Indices before `start` are passed over, unless the dataset is an IterableDataset."""
        loader = self.workers.begin_epoch()
        # each of them may want to know, and telling one twice does no harm
        for part in (loader, *sampler_chain(self._sampler), self._dataset):
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
        if self._seed is not None:
            for index, generator in enumerate(self._generators):
                generator.manual_seed(mix(self._seed, epoch, index))
        if self._tickets is None:
            return replayed(self.workers.begun(), epoch, start)
        self._tickets.cover = self._covered(cover)
        self._tickets.begin(epoch, start, None if self._seed is None else mix(self._seed, epoch, 2))
        given = (
            self.workers.give(start, self._drawn)
            if self.workers.number
            else self._one_by_one(self.workers.begun(), start)
        )
        if self._growing is not None:
            given = self._measured_anew(given, self._growing)
        return given if self._keeper is None else self._to_its_end(given, self._keeper, start)

    def _measured_anew(self, given: Iterator[Given], growing: OrderedBatches) -> Iterator[Given]:
        """Give an epoch's batches, and know how long it is as samples enter."""
        while True:
            one = next(given, None)
            if growing.order is not None:
                self.batches, self.samples = growing.order.batches, growing.order.samples
            if one is None:
                return
            yield one

    def _to_its_end(self, given: Iterator[Given], keeper: SampleStore, start: int) -> Iterator[Given]:
        """Give an epoch's batches, and note that it is over."""
        yield from given
        keeper.epoch_over(whole=not start)

    def _one_by_one(self, batches: Iterator[Any], start: int) -> Iterator[Given]:
        """Give what is loaded without workers."""
        number = start
        for batch in batches:
            number = yield from self._unwanted(number)
            number += 1
            yield Ready(batch, self._drawn(number - 1))
        yield from self._unwanted(number)

    def _unwanted(self, number: int) -> Generator[Given, None, int]:
        """Give the batches from a number on of which nothing is wanted; return the number of the next one."""
        assert self._tickets is not None
        while self._tickets.ordered.get(number, ()) is None:
            number += 1
            yield Ready((), self._drawn(number - 1))
        return number

    def _covered(self, cover: int | None) -> npt.NDArray[np.bool_] | None:
        """Return which samples are wanted: bool [samples]; None: all."""
        samples = self.indices.samples
        if cover is None or samples is None:
            return None
        packed = np.frombuffer(cover.to_bytes((samples + 7) // 8, "little"), np.uint8)
        return np.unpackbits(packed, count=samples, bitorder="little").astype(np.bool_)

    def _drawn(self, number: int) -> Sequence[Any] | None:
        """Return what the sampler gave for a batch, once; None where that is not told."""
        assert self._tickets is not None
        keys: Sequence[Any] | None = self._tickets.ordered.pop(number, None)
        return keys if self.indices.samples is not None or self._growing is not None else None

    def close(self) -> None:
        """Let go of workers that stay."""
        self.workers.drop()

    def why_empty(self, _epoch: int) -> str:
        """Say what may be the reason for an epoch without a batch."""
        if self._tickets is None:
            return "its IterableDataset returned no sample. Let its __iter__ start again for each epoch."
        if self._drops and length(self._dataset):
            return (
                f"its dataset has {length(self._dataset)} samples, fewer than one batch of "
                f"{self.batch_size}, and drop_last=True drops incomplete batches. Use a smaller "
                "batch_size or drop_last=False."
            )
        return (
            "its dataset is empty, or its sampler can be iterated only once. Give the DataLoader a "
            "sampler that starts again for each epoch."
        )


class LoaderWorkers:
    """The workers of a DataLoader; `stream.loader.seams.Workers`.

    Args:
        loader: A copy of the user's, which is changed here.
        tickets: What orders its batches; None: its dataset is an IterableDataset.
        dataset: The user's.
        own_queues: Whether the workers use queues of ours.
        by_line: Whether it makes no difference which worker prepares a batch, or when.

    Attributes:
        number: How many there are; 0: the loading thread prepares the batches.
        prefetch: Batches that each prepares ahead, as `DataLoader.prefetch_factor`.
        stay: Whether they stay for the next epoch.
        fixed: Why their number cannot change; "" if it can.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        tickets: Tickets | None,
        dataset: Any,
        *,
        own_queues: bool,
        by_line: bool,
    ) -> None:
        self._loader = loader
        self._tickets = tickets
        self._dataset = dataset
        self._own_queues = own_queues
        self._any_worker = by_line
        self._in_order: bool | None = getattr(loader, "in_order", None)
        self._costs: SampleCosts | None = None
        self._pace = BatchPace()
        self._line: PacketQueue | None = None  # of workers that stay
        self._batch_s: float | None = None
        self._most = 1
        self._loading: list[Callable[[], Any]] = []  # the iterators of the epoch being loaded
        self._wanted: tuple[int, int] | None = None  # number and prefetch, where others were asked for
        self._crews: list[WorkerCrew] = []
        self._batch_bytes = 0
        self.number: int = loader.num_workers
        self.prefetch: int = loader.prefetch_factor or 0
        self.stay: bool = loader.persistent_workers
        self.fixed = ""

    # -- called by the loading thread ----------------------------------------------------------------------

    @property
    def ahead(self) -> int:
        """Batches that they prepare ahead now."""
        several = max(1, self._tickets.size) if self._tickets is not None else 1
        return self._orders * several

    def most_ahead(self, batch_bytes: int) -> int:
        """Return how many batches will ever be prepared ahead, if they are of this size."""
        self._batch_bytes = max(1, batch_bytes)
        if self._tickets is not None and self._orders:
            self._most = self._several()
        return self._orders * self._most

    def _several(self) -> int:  # batches in a ticket
        return max(1, min(MAX_TICKET, AHEAD_BYTES // (self._orders * self._batch_bytes)))

    @property
    def _orders(self) -> int:  # tickets that are open at a time
        return self.number * self.prefetch

    def begin_epoch(self) -> DataLoader[Any]:
        """Have as many as were asked for, and return the loader that begins another epoch."""
        if self._wanted is not None:
            self._set(*self._wanted)
        self._loading = []
        self.stay = self._loader.persistent_workers
        return self._loader

    def begun(self) -> Iterator[Any]:
        """Have them start; return the loader's iterator."""
        fields, own = self._loader.__dict__, self._loader.multiprocessing_context
        if self.number and self._own_queues:
            fields[_CONTEXT] = QueueContext(own)
        try:
            with starting_workers():
                batches = iter(self._loader)
        finally:
            fields[_CONTEXT] = own  # the queues belong to the iterator, and end with it
        self._loading.append(weakref.ref(batches))
        return batches

    def _crew(self) -> WorkerCrew:
        """Have them start, or begin another epoch, and get their tickets."""
        assert self._tickets is not None
        fields, line = self._loader.__dict__, None
        if self._by_line():
            line = self._line if fields["_iterator"] is not None else PacketQueue()
            # twice: while one worker is at a slow batch, the others fill the room without being sent on each time
            fields["in_order"], fields["prefetch_factor"] = False, 2 * self.prefetch
            self._line = line if self._loader.persistent_workers else None
            if self._costs is None and (samples := length(self._dataset)) is not None:
                self._costs = SampleCosts(samples, file_sizes(self._dataset))
        elif self._in_order is not None:
            fields["in_order"], fields["prefetch_factor"] = self._in_order, self.prefetch
        fields["collate_fn"].line = line
        self._tickets.by_line = line is not None
        return WorkerCrew(self.begun(), self._tickets, line, self._orders, self._costs)

    def _by_line(self) -> bool:
        """Whether they take tickets from a line, so that slow batches can be begun earlier.

        What a batch draws must not depend on the worker that prepares it, nor what is in it on when it is ordered; and
        the DataLoader must let answers through as they come (torch 2.6).
        """
        return self._any_worker and self.number > 1 and self._in_order is not None and has_packets()

    def give(self, start: int, drawn: Callable[[int], Sequence[Any] | None]) -> Iterator[Given]:
        """Give the batches of each ticket, in the order of the epoch, and its error at its place.

        Args:
            start: The number of the first batch.
            drawn: As `crew.in_order`.
        """
        assert self._tickets is not None
        crews, whole = [self._crew()], False
        self._crews = crews
        try:
            yield from in_order(crews, start, self._pace, self._measured, drawn, self._others)
            whole = True
        finally:
            self._crews = []
            if not whole:
                self.wake()  # before they are ended
            # an error's traceback holds this frame, and workers that a collector of cycles lets go take ten seconds
            for crew in crews:
                if not whole or crew.line is not self._line:
                    crew.end()
            if not whole:
                self.drop()
        if self._tickets.error is not None:
            raise self._tickets.error

    def _measured(self, batch_s: float) -> None:
        """Choose how many batches the next tickets order, from what the last ones cost."""
        assert self._tickets is not None
        before = batch_s if self._batch_s is None else self._batch_s
        self._batch_s = before + SMOOTHING * (batch_s - before)
        self._tickets.size = max(1, min(self._most, int(TICKET_S / max(self._batch_s, 1e-9))))

    def _others(self, crew: WorkerCrew) -> WorkerCrew | None:
        """Start others on the rest of the epoch, if they are asked for."""
        if self._wanted is None:
            return None
        crew.finish()
        self._set(*self._wanted)
        # at this epoch's end all end, and the slots that the former ones had come back
        self.stay = False
        return self._crew()

    def _set(self, number: int, prefetch: int) -> None:
        self._wanted = None
        former, self._loader = self._loader, copy.copy(self._loader)
        fields = self._loader.__dict__
        # workers that would stay belong to an iterator
        former.__dict__["_iterator"] = fields["_iterator"] = None
        fields["num_workers"] = self.number = number
        fields["prefetch_factor"] = self.prefetch = prefetch
        if self._batch_bytes:
            self._most = min(self._most, self._several())

    def drop(self) -> None:
        """Let go of those that stay."""
        if self._line is not None:
            self._line.end()
            self._line = None
        self._loader.__dict__["_iterator"] = None  # which owns them

    # -- called from any thread ----------------------------------------------------------------------------

    @property
    def wanted(self) -> int:
        """Their number, once what was asked for has taken effect."""
        return self.number if self._wanted is None else self._wanted[0]

    @property
    def handing_over(self) -> bool:
        """Whether workers from before a change still hand in what they had."""
        return len(self._crews) > 1

    def change(self, number: int, prefetch: int | None = None, *, advised: bool = True) -> None:
        """Change their number, as `Workers.change`.

        The new ones begin while the old ones still hand in the batches that they work on. No batch is lost or given
        twice, the order stays, and with a seed every batch is the same bit for bit as with any other number of workers.
        """
        if why := self.why_fixed(number):
            raise ValueError(why)
        if not advised:
            self._loader.__dict__["check_worker_number_rationality"] = lambda: None  # torch's warning
        self._wanted = number, prefetch or self.prefetch or 2

    def why_fixed(self, number: int) -> str:
        """Return why there cannot be so many now; "" if there can."""
        if self.fixed:
            return self.fixed
        if self._tickets is None:
            return (
                "The number of workers cannot change: an IterableDataset divides its samples among its "
                "workers, so another number gives other batches. Stop the stream and serve it again "
                "with workers=."
            )
        if not self.number:
            return (
                "This stream was served without workers, in the serving process itself. Serve it with "
                "workers=1 or more."
            )
        return "" if number >= 1 else f"workers={number!r} is invalid. Pass a number of processes, 1 or more."

    def pids(self) -> tuple[int, ...]:
        """Return the processes that there are now."""
        workers = [w for loading in [*self._loading] for w in [*getattr(loading(), "_workers", ())]]
        return tuple(worker.pid for worker in workers if worker.pid)

    def wake(self) -> None:
        """Let those go on that were stopped: torch waits ten seconds for one before it gives up, and leaves it."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
