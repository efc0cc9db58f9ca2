"""The loading thread: iterates the user's loader, one batch at a time, when the decisions want one.

It starts the loader's workers and must outlive them: they die with the thread that started them, and so with
the producer, SIGKILL included. That holds for whatever the user's loader forks, DataLoaders inside generators too.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any, cast

from tsnb.errors import ArenaFull, LoaderFailed
from tsnb.stream.decisions import events as ev
from tsnb.stream.loader.packing import RowCounting, SlotWriter, batch_bytes
from tsnb.stream.loader.repeating import AllGiven, Covering, EpochIs, Skipped
from tsnb.stream.loader.sources import Source
from tsnb.stream.loader.workers import mind_own_workers, workers_are_forked_here
from tsnb.stream.producer.core import Core
from tsnb.stream.producer.failures import forget, kind_of, message_of, shortened, text_of, way_out_of
from tsnb.stream.producer.welcoming import tell_length
from tsnb.text.masks import masked_text
from tsnb.text.printable import block, one_line

__all__ = ["Feeder", "slots_for"]

_END = object()
"""Stands for the end of an epoch; a batch may be anything else, None too."""
SLOT_WAIT_S = 60.0
"""How long the producer waits for a free slot of its own. There is one by construction; not a silent hang if
that construction is wrong."""


class Feeder(threading.Thread):
    """Loads batches until the producer stops.

    Attributes:
        proven: Set once the first batch lies in the arena, or could not be had (`failure` says why).
        failure: Why the very first batch could not be had.
    """

    def __init__(self, core: Core, source: Source) -> None:
        super().__init__(name=f"tsnb-load-{core.settings.name}", daemon=True)
        self._core = core
        self._source = source
        self._iterator: Iterator[Any] | None = None
        self._run = -1
        self._epoch = -1
        self._count = 0  # loader batches of the epoch so far
        self._counting = RowCounting()
        self.proven = threading.Event()
        self.failure: LoaderFailed | None = None

    def run(self) -> None:
        """Load while batches are wanted."""
        workers_are_forked_here()
        mind_own_workers()
        try:
            while (wanted := self._next_wanted()) is not None:
                self._load(wanted)
        except BaseException:
            self._core.crashed(traceback.format_exc())
            raise
        finally:
            self._close()
            self._let_go(keep_workers=False)  # those that stayed for the next epoch
            self.proven.set()

    def _next_wanted(self) -> ev.Wanted | None:
        """Wait until a batch is wanted; return of which run, None when the producer stops."""
        while True:
            wanted, abandoned = self._core.wait_until_wanted()
            if self._core.stopping:
                return None
            if abandoned and (wanted is None or wanted.run != self._run):
                self._close()
            if wanted is not None:
                return wanted

    def _load(self, wanted: ev.Wanted) -> None:
        """Load one batch, or find the epoch's end, and say so."""
        try:
            if wanted.run != self._run:
                self._close()
                self._run, self._epoch, self._count = wanted.run, wanted.epoch, wanted.first
                self._source.cover = wanted.cover
                self._iterator = self._source.epoch(wanted.epoch, wanted.first)
            batch = self._next_batch()
            if isinstance(batch, AllGiven):
                batch = self._end_told()
            if isinstance(batch, Skipped):
                self._skip(batch.batch)
                return
            if isinstance(batch, EpochIs):
                self._epoch = batch.number
                self._core.step(ev.Renumbered(wanted.run, batch.number))
                return
            if isinstance(batch, Covering):
                self._core.step(ev.Covered(wanted.run, batch.cover))
                return
            tell_length(self._core)
            in_place = batch is _END or isinstance(batch, ev.Placed)
            placed = batch if in_place else self._copy(batch)
        except BaseException as error:  # noqa: BLE001  # whatever the user's loader raises, SystemExit too
            failure = self._describe(error)
            self._source.wake_workers()  # before the iterator goes, which ends them
            forget(error)
        else:
            if batch is _END:
                self._ended()
            else:
                self._loaded(placed, in_place=in_place)
            return
        # out here, where the error and the frames it holds have gone: the iterator's workers end only with
        # its last reference, and their slots can be taken back only then
        self._failed(failure)

    def _loaded(self, placed: ev.Placed, *, in_place: bool) -> None:
        self._count += 1
        if (drawn := self._source.drawn) is not None:
            growth = self._core.growth
            weights = placed.weights if growth is None else growth.weights_of(drawn)
            placed = placed._replace(drawn=drawn, weights=weights)
        self._core.publish(self._run, placed, slots_for(self._source) if in_place else None)
        if not self.proven.is_set():
            self.proven.set()

    def _end_told(self) -> Any:
        """Tell the epoch's end before its workers end, which takes them a while; return what comes after that.

        Nothing can be lost by it: each of its batches was published. What is raised from here on is shown, and the
        next epoch begins with new workers.
        """
        if self._count:  # else it is an error, which says why
            tell_length(self._core)
            self._core.step(ev.LoaderEnded(self._run))
        return self._next_batch()

    def _ended(self) -> None:
        self._core.step(ev.LoaderEnded(self._run))
        self._let_go(keep_workers=self._source.persistent)

    def _next_batch(self) -> Any:
        """Return what the source gives next; `_END` at the epoch's end.

        Raises:
            LoaderFailed: The epoch has no batch at all.
        """
        if self._iterator is None:
            raise LoaderFailed("The loader was asked for a batch after its end")
        began = time.monotonic()
        try:
            return next(self._iterator)
        except StopIteration:
            if not self._count:
                when = f"in pass {self._epoch + 1}" if self.proven.is_set() else "at all"
                why = self._source.why_empty(self._epoch)
                raise LoaderFailed(f"The loader returned no batch {when}: {why}") from None
            return _END
        finally:
            self._core.count_loading(time.monotonic() - began)

    def _copy(self, batch: Any) -> ev.Placed:
        """Copy a batch that came the ordinary way into a slot."""
        core = self._core
        self._fit_arena(batch)
        slot = self._free_slot()
        try:
            return SlotWriter(core.arena, slot, self._counting).write(batch)
        except Exception:
            with core.lock:
                core.slots.free(slot)
            raise

    def _skip(self, batch: Any) -> None:
        """Let go of a batch that comes before those that are wanted."""
        if isinstance(batch, ev.Placed):
            with self._core.lock:
                self._core.slots.delivered(batch.slot)
                self._core.slots.free(batch.slot)
        else:
            self._fit_arena(batch)  # so that the workers need not go on in the ordinary way

    def _fit_arena(self, batch: Any) -> None:
        """Give the arena its geometry, from the first batch."""
        if not self._core.arena.slots:
            size = batch_bytes(batch)
            self._core.fit_arena(size, self._source.batches, self._source.most_ahead(size))

    def _free_slot(self) -> int:
        core = self._core
        deadline = time.monotonic() + SLOT_WAIT_S
        with core.lock:
            while (slot := core.slots.take()) is None:
                core.settle()
                if core.stopping or time.monotonic() > deadline:
                    raise ArenaFull(
                        f"No buffer of the shared memory became free in {SLOT_WAIT_S:.0f} s "
                        f"({core.dispatch.epochs.kept} of its {core.arena.slots} buffers hold a batch "
                        "that a trial may still read). Serve with a smaller window= or late_join=."
                    )
                core.changed.wait(0.05)
        return slot

    def _describe(self, error: BaseException) -> LoaderFailed:
        if issubclass(type(error), LoaderFailed):  # isinstance would ask the error itself, too
            known = cast("LoaderFailed", error)
            return LoaderFailed(masked_text(block(known.summary)), masked_text(block(known.loader_traceback)))
        if issubclass(type(error), ArenaFull):  # not the loader's fault: it says itself what to do
            return LoaderFailed(masked_text(str(error)))
        where = f"at batch {self._count} of pass {self._epoch + 1}"
        said = f"The loader raised {kind_of(error)} {where}: {one_line(message_of(error))}{way_out_of(error)}"
        return LoaderFailed(masked_text(said), masked_text(block(text_of(error))))

    def _failed(self, failure: LoaderFailed) -> None:
        message, text = failure.summary, failure.loader_traceback
        if not self.proven.is_set():
            self.failure = failure
            self.proven.set()
        self._core.note_failure(message, text)
        run = self._run
        self._close()
        # the packet has a size, and the end of a traceback is what tells
        self._core.step(ev.LoaderRaised(run, message[:1000], shortened(text)))

    def _close(self) -> None:
        """Let go of the epoch's iterator and its workers, and take back the slots they had in hand."""
        if self._iterator is None:
            return
        self._source.wake_workers()  # before the iterator goes, which ends them
        with contextlib.suppress(BaseException):  # its `finally` raised; nobody takes this epoch any more
            close = getattr(self._iterator, "close", None)  # a generator
            if close is not None:
                close()
        self._run = -1
        self._let_go(keep_workers=False)

    def _let_go(self, *, keep_workers: bool) -> None:
        """Drop the iterator. Its workers end with it unless they are kept, and what they had in hand comes back.

        Without workers nothing is taken back: a slot that is missing then is one whose tensor the user's collate
        function keeps in this very process.
        """
        self._iterator = None
        if keep_workers:
            return
        self._source.drop_workers()
        if self._source.workers:
            with self._core.lock:
                self._core.slots.reclaim()


def slots_for(source: Source) -> int:
    """Return how many slots its workers may have.

    One for each batch that they prepare ahead; and a worker keeps one when a batch comes to nothing, another when the
    user's function keeps a tensor of its first.
    """
    return source.ahead + 2 * source.workers + 2
