"""The loading thread: iterates the user's loader, one batch at a time, when the decisions want one.

It starts the loader's workers and must outlive them: they die with the thread that started them, and so with
the producer, SIGKILL included. That holds for whatever the user's loader forks, DataLoaders inside generators too.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, cast

from tsnb.errors import ArenaFull, LoaderFailed
from tsnb.stream.decisions import events as ev
from tsnb.stream.loader.packing import RowCounting, SlotWriter, batch_bytes
from tsnb.stream.loader.seams import AllGiven, Covering, EpochIs, Given, Ready, Skipped, StepFailed
from tsnb.stream.loader.sources import Source
from tsnb.stream.loader.workers import mind_own_workers, workers_are_forked_here
from tsnb.stream.producer.core import Core
from tsnb.stream.producer.failures import forget, kind_of, message_of, shortened, text_of, way_out_of
from tsnb.stream.producer.welcoming import tell_length
from tsnb.text.masks import masked_text
from tsnb.text.printable import block, one_line

__all__ = ["Feeder", "slots_for"]

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
        self._pass: Iterator[Given] | None = None
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
                self._begin(wanted)
            given = self._next_given()
            if isinstance(given, AllGiven):
                given = self._end_told()
            placed = self._prepared(given)
        except BaseException as error:  # noqa: BLE001  # whatever the user's loader raises, SystemExit too
            failure = self._describe(error)
            self._wake_workers()  # before the pass goes, which ends them
            forget(error)
        else:
            self._tell(wanted.run, given, placed)
            return
        # out here, where the error and the frames it holds have gone: the pass's workers end only with
        # its last reference, and their slots can be taken back only then
        self._failed(failure)

    def _begin(self, wanted: ev.Wanted) -> None:
        self._close()
        self._run, self._epoch, self._count = wanted.run, wanted.epoch, wanted.first
        self._pass = self._source.begin(wanted.epoch, wanted.first, wanted.cover)

    def _prepared(self, given: Given | None) -> ev.Placed | None:
        """Do what may fail with what was given: return where a batch lies, and let go of one that is skipped."""
        if given is None or isinstance(given, Ready):
            tell_length(self._core)
        if isinstance(given, Ready):
            return given.batch if isinstance(given.batch, ev.Placed) else self._copy(given.batch)
        if isinstance(given, Skipped):
            self._skip(given.batch)
        return None

    def _tell(self, run: int, given: Given | None, placed: ev.Placed | None) -> None:
        """Say what was given."""
        if given is None:
            self._ended()
        elif placed is not None and isinstance(given, Ready):
            self._loaded(placed, given.drawn, in_place=placed is given.batch)
        elif isinstance(given, EpochIs):
            self._epoch = given.number
            self._core.step(ev.Renumbered(run, given.number))
        elif isinstance(given, Covering):
            self._core.step(ev.Covered(run, given.cover))

    def _loaded(self, placed: ev.Placed, drawn: Sequence[Any] | None, *, in_place: bool) -> None:
        self._count += 1
        if drawn is not None:
            growth = self._core.growth
            weights = placed.weights if growth is None else growth.weights_of(drawn)
            placed = ev.Placed(*placed[:5], drawn, weights)
        self._core.publish(self._run, placed, slots_for(self._source) if in_place else None)
        if not self.proven.is_set():
            self.proven.set()

    def _end_told(self) -> Given | None:
        """Tell the epoch's end before its workers end, which takes them a while; return what comes after that.

        Nothing can be lost by it: each of its batches was published. What is raised from here on is shown, and the
        next epoch begins with new workers.
        """
        if self._count:  # else it is an error, which says why
            tell_length(self._core)
            self._core.step(ev.LoaderEnded(self._run))
        return self._next_given()

    def _ended(self) -> None:
        self._core.step(ev.LoaderEnded(self._run))
        self._let_go(keep_workers=self._source.stays)

    def _next_given(self) -> Given | None:
        """Return what the pass gives next; None at its end.

        Raises:
            LoaderFailed: The epoch has no batch at all.
        """
        if self._pass is None:
            raise LoaderFailed("The loader was asked for a batch after its end")
        began = time.monotonic()
        try:
            return next(self._pass)
        except StopIteration:
            if not self._count:
                when = f"in pass {self._epoch + 1}" if self.proven.is_set() else "at all"
                why = self._source.why_empty(self._epoch)
                raise LoaderFailed(f"The loader returned no batch {when}: {why}") from None
            return None
        finally:
            self._core.loading_s += time.monotonic() - began

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
        where = f"at batch {self._count} of pass {self._epoch + 1}"
        if issubclass(type(error), StepFailed):
            step = cast("StepFailed", error)
            return LoaderFailed(
                masked_text(block(step.said(where))), masked_text(block(step.loader_traceback))
            )
        if issubclass(type(error), LoaderFailed):  # isinstance would ask the error itself, too
            known = cast("LoaderFailed", error)
            return LoaderFailed(masked_text(block(known.summary)), masked_text(block(known.loader_traceback)))
        if issubclass(type(error), ArenaFull):  # not the loader's fault: it says itself what to do
            return LoaderFailed(masked_text(str(error)))
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
        """Let go of the pass and its workers, and take back the slots they had in hand."""
        if self._pass is None:
            return
        self._wake_workers()  # before the pass goes, which ends them
        with contextlib.suppress(BaseException):  # its `finally` raised; nobody takes this epoch any more
            close = getattr(self._pass, "close", None)  # a generator
            if close is not None:
                close()
        self._run = -1
        self._let_go(keep_workers=False)

    def _wake_workers(self) -> None:
        if (workers := self._source.workers) is not None:
            workers.wake()

    def _let_go(self, *, keep_workers: bool) -> None:
        """Drop the pass. Its workers end with it unless they are kept, and what they had in hand comes back.

        Without workers nothing is taken back: a slot that is missing then is one whose tensor the user's collate
        function keeps in this very process.
        """
        self._pass = None
        if keep_workers:
            return
        self._source.close()
        if (workers := self._source.workers) is not None and workers.number:
            with self._core.lock:
                self._core.slots.reclaim()


def slots_for(source: Source) -> int:
    """Return how many slots its workers may have.

    One for each batch that they prepare ahead; and a worker keeps one when a batch comes to nothing, another when the
    user's function keeps a tensor of its first.
    """
    workers = source.workers
    return 2 if workers is None else workers.ahead + 2 * workers.number + 2
