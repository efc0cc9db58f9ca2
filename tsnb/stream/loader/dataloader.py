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
from tsnb.stream.loader.generators import draw_apart, stream_generator
from tsnb.stream.loader.queues import PacketQueue, QueueContext, has_packets, why_ordinary
from tsnb.stream.loader.repeating import length, loader_order, replayed, sampler_chain
from tsnb.stream.loader.seams import OrderedBatches, OwnOrder, SampleStore
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


def _no_advice() -> None:
    """Stand in for torch's warning of more workers than cores."""


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
        mine = self._loader = copy.copy(loader)
        self._dataset = loader.dataset
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
        self._sampler = fields[name] if seed is None else _own(fields[name], self._generators[0])
        if self._growing is not None:
            self._sampler = self._growing
        self._tickets = None if iterable else Tickets(self._sampler, 1 if mine.num_workers else 0)
        self._prepare_workers(
            loader,
            SlotCollate(
                arena, pipe, travelling(loader.collate_fn, mine), batched=loader.batch_sampler is not None
            ),
        )
        if self._tickets is not None:
            fields[name] = self._tickets
        self.prefetch: int = mine.prefetch_factor or 0
        self._in_order: bool | None = getattr(loader, "in_order", None)
        self._costs: SampleCosts | None = None
        self._pace = BatchPace()
        self._line: PacketQueue | None = None  # of workers that stay
        self._batch_s: float | None = None
        self._most = 1
        self._loading: list[Callable[[], Any]] = []  # the iterators of the epoch being loaded
        self._wanted: tuple[int, int] | None = (
            None  # workers and their prefetch factor, where others were asked for
        )
        self._crews: list[WorkerCrew] = []
        self._batch_bytes = 0
        self.order = loader_order(loader, mine.num_workers, seed) if growth is None else growth.order
        self.workers: int = mine.num_workers
        self.persistent: bool = mine.persistent_workers
        self.batch_size = loader.batch_size
        self.batches = length(loader)
        self.samples = epoch_samples(loader)
        self.indices = indices_of(loader) if growth is None else GROWS
        self.ordinary = why_ordinary(mine.multiprocessing_context) if mine.num_workers else ""
        self.cover: int | None = None
        self.drawn: Sequence[Any] | None = None

    def _prepare_workers(self, loader: DataLoader[Any], collate: SlotCollate) -> None:
        mine = self._loader
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
    def ahead(self) -> int:
        """Batches that the workers prepare ahead now."""
        several = max(1, self._tickets.size) if self._tickets is not None else 1
        return self._orders * several

    def most_ahead(self, batch_bytes: int) -> int:
        """Return how many batches will ever be prepared ahead, if they are of this size."""
        self._batch_bytes = max(1, batch_bytes)
        if self._tickets is not None and self._orders:
            self._most = self._several()
        return self._orders * self._most

    def _several(self) -> int:
        """Return how many batches a ticket may order at most."""
        return max(1, min(MAX_TICKET, AHEAD_BYTES // (self._orders * self._batch_bytes)))

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """Begin an epoch. Indices before `start` are passed over, unless the dataset is an IterableDataset."""
        if self._wanted is not None:
            self._set_workers(*self._wanted)
        loader = self._loader
        # each of them may want to know, and telling one twice does no harm
        for part in (loader, *sampler_chain(self._sampler), self._dataset):
            if hasattr(part, "set_epoch"):
                part.set_epoch(number)
        if self._seed is not None:
            for index, generator in enumerate(self._generators):
                generator.manual_seed(mix(self._seed, number, index))
        if self._tickets is not None:
            self._tickets.cover = self._covered()
            self._tickets.begin(number, start, None if self._seed is None else mix(self._seed, number, 2))
        self._loading = []
        self.persistent = self._loader.persistent_workers
        if self._tickets is None:
            return replayed(self._begun(), number, start)
        unpacked = self._unpacked(start) if self.workers else self._one_by_one(self._begun(), start)
        if self._growing is not None:
            unpacked = self._measured_anew(unpacked, self._growing)
        return unpacked if self._keeper is None else self._to_its_end(unpacked, self._keeper, start)

    def _measured_anew(self, batches: Iterator[Any], growing: OrderedBatches) -> Iterator[Any]:
        """Give an epoch's batches, and know how long it is as samples enter."""
        while True:
            batch = next(batches, growing)
            if growing.order is not None:
                self.batches, self.samples = growing.order.batches, growing.order.samples
            if batch is growing:
                return
            yield batch

    def _to_its_end(self, batches: Iterator[Any], keeper: SampleStore, start: int) -> Iterator[Any]:
        """Give an epoch's batches, and note that it is over."""
        yield from batches
        keeper.epoch_over(whole=not start)

    def _one_by_one(self, batches: Iterator[Any], start: int) -> Iterator[Any]:
        """Give what is loaded without workers."""
        number = start
        for batch in batches:
            number = yield from self._unwanted(number)
            self._note_drawn(number)
            number += 1
            yield batch
        yield from self._unwanted(number)

    def _unwanted(self, number: int) -> Generator[Any, None, int]:
        """Give the batches from a number on of which nothing is wanted; return the number of the next one."""
        assert self._tickets is not None
        while self._tickets.ordered.get(number, ()) is None:
            self._note_drawn(number)
            number += 1
            yield ()
        return number

    def _covered(self) -> npt.NDArray[np.bool_] | None:
        """Return which samples are wanted: bool [samples]; None: all."""
        samples = self.indices.samples
        if self.cover is None or samples is None:
            return None
        packed = np.frombuffer(self.cover.to_bytes((samples + 7) // 8, "little"), np.uint8)
        return np.unpackbits(packed, count=samples, bitorder="little").astype(np.bool_)

    def _note_drawn(self, number: int) -> None:
        assert self._tickets is not None
        keys = self._tickets.ordered.pop(number, None)
        told = self.indices.samples is not None or self._growing is not None
        self.drawn = keys if told else None

    def _begun(self) -> Iterator[Any]:
        """Have the loader's workers start; return its iterator."""
        fields, own = self._loader.__dict__, self._loader.multiprocessing_context
        if self.workers and not self.ordinary:
            fields[_CONTEXT] = QueueContext(own)
        try:
            with starting_workers():
                batches = iter(self._loader)
        finally:
            fields[_CONTEXT] = own  # the queues belong to the iterator, and end with it
        self._loading.append(weakref.ref(batches))
        return batches

    def _crew(self) -> WorkerCrew:
        """Have the loader's workers start, or begin another epoch, and get their tickets."""
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
        return WorkerCrew(self._begun(), self._tickets, line, self._orders, self._costs)

    def _by_line(self) -> bool:
        """Whether workers take tickets from a line, so that slow batches can be begun earlier.

        What a batch draws must not depend on the worker that prepares it, nor what is in it on when it is ordered; and
        the DataLoader must let answers through as they come (torch 2.6).
        """
        return (
            self._seed is not None
            and self.workers > 1
            and self._in_order is not None
            and self._growing is None
            and has_packets()
        )

    @property
    def _orders(self) -> int:
        """Return how many tickets are open at a time."""
        return self.workers * self.prefetch

    @property
    def wanted_workers(self) -> int:
        """Their number, once what was asked for has taken effect."""
        return self.workers if self._wanted is None else self._wanted[0]

    @property
    def handing_over(self) -> bool:
        """Whether workers from before a change still hand in what they had. From any thread."""
        return len(self._crews) > 1

    def change_workers(self, workers: int, prefetch: int | None = None, *, advised: bool = True) -> None:
        """Change the number of workers, from the next batch that has not been handed out yet. From any thread.

        The new ones begin while the old ones still hand in the batches that they work on. No batch is lost or given
        twice, the order stays, and with a seed every batch is the same bit for bit as with any other number of workers.

        Args:
            workers: Processes, 1 or more; as many as now are replaced by new ones.
            prefetch: Batches that each prepares ahead, 1 or more; None: as many as now.
            advised: Whether torch may warn of more than there are cores: not where that was measured to help.

        Raises:
            ValueError: The loader cannot change them; says why.
        """
        if why := self.why_fixed(workers):
            raise ValueError(why)
        if not advised:
            self._loader.__dict__["check_worker_number_rationality"] = _no_advice
        self._wanted = workers, prefetch or self.prefetch or 2

    def why_fixed(self, workers: int) -> str:
        """Return why there cannot be so many workers now; "" if there can."""
        if self._tickets is None:
            return (
                "The number of workers cannot change: an IterableDataset divides its samples among its "
                "workers, so another number gives other batches. Stop the stream and serve it again "
                "with workers=."
            )
        if not self.workers:
            return (
                "This stream was served without workers, in the serving process itself. Serve it with "
                "workers=1 or more."
            )
        return (
            "" if workers >= 1 else f"workers={workers!r} is invalid. Pass a number of processes, 1 or more."
        )

    def _set_workers(self, workers: int, prefetch: int) -> None:
        self._wanted = None
        former, self._loader = self._loader, copy.copy(self._loader)
        fields = self._loader.__dict__
        former.__dict__["_iterator"] = fields["_iterator"] = (
            None  # workers that would stay belong to an iterator
        )
        fields["num_workers"] = self.workers = workers
        fields["prefetch_factor"] = self.prefetch = prefetch
        if self._batch_bytes:
            self._most = min(self._most, self._several())

    def _others(self, crew: WorkerCrew) -> WorkerCrew | None:
        """Start other workers on the rest of the epoch, if they are asked for."""
        if self._wanted is None:
            return None
        crew.finish()
        self._set_workers(*self._wanted)
        # at this epoch's end all end, and the slots that the former ones had come back
        self.persistent = False
        return self._crew()

    def _unpacked(self, start: int) -> Iterator[Any]:
        """Give the batches of each ticket, in the order of the epoch, and its error at its place."""
        assert self._tickets is not None
        crews, whole = [self._crew()], False
        self._crews = crews
        try:
            yield from in_order(crews, start, self._pace, self._measured, self._note_drawn, self._others)
            whole = True
        finally:
            self._crews = []
            if not whole:
                self.wake_workers()  # before they are ended
            # an error's traceback holds this frame, and workers that a collector of cycles lets go take ten seconds
            for crew in crews:
                if not whole or crew.line is not self._line:
                    crew.end()
            if not whole:
                self.drop_workers()
        if self._tickets.error is not None:
            raise self._tickets.error

    def _measured(self, batch_s: float) -> None:
        """Choose how many batches the next tickets order, from what the last ones cost."""
        assert self._tickets is not None
        before = batch_s if self._batch_s is None else self._batch_s
        self._batch_s = before + SMOOTHING * (batch_s - before)
        self._tickets.size = max(1, min(self._most, int(TICKET_S / max(self._batch_s, 1e-9))))

    def worker_pids(self) -> tuple[int, ...]:
        """Return the processes of the workers that it has now."""
        workers = [w for loading in [*self._loading] for w in [*getattr(loading(), "_workers", ())]]
        return tuple(worker.pid for worker in workers if worker.pid)

    def wake_workers(self) -> None:
        """Let workers go on that were stopped: torch waits ten seconds for one before it gives up, and leaves it."""
        for pid in self.worker_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def drop_workers(self) -> None:
        """Let go of persistent workers."""
        if self._line is not None:
            self._line.end()
            self._line = None
        self._loader.__dict__["_iterator"] = None  # persistent workers: the iterator owns them

    def why_empty(self, _number: int) -> str:
        """Say what may be the reason for an epoch without a batch."""
        loader = self._loader
        if self._tickets is None:
            return "its IterableDataset returned no sample. Let its __iter__ start again for each epoch."
        if loader.drop_last and loader.batch_size and length(self._dataset):
            return (
                f"its dataset has {length(self._dataset)} samples, fewer than one batch of "
                f"{loader.batch_size}, and drop_last=True drops incomplete batches. Use a smaller "
                "batch_size or drop_last=False."
            )
        return (
            "its dataset is empty, or its sampler can be iterated only once. Give the DataLoader a "
            "sampler that starts again for each epoch."
        )


def _own(sampler: Any, generator: torch.Generator) -> Any:
    """Return a copy of a sampler, and of those it draws from, that draws from this generator."""
    try:
        mine = copy.copy(sampler)
    except TypeError:  # an iterator: it can be used once, by us
        return sampler
    if getattr(mine, "sampler", None) is not None:
        mine.sampler = _own(mine.sampler, generator)
    if hasattr(mine, "generator"):
        mine.generator = generator
    return mine
