"""The epochs of a stream and the batches that are still kept; callers say which of them are pinned.

Pure. Indices count all batches the stream ever published; a run of the loader is a run of them. Mostly a run is
an epoch; one that is resumed, or begun again for a consumer that came back to it, is part of one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tsnb.stream.decisions.events import Placed

__all__ = ["Epoch", "Epochs"]


@dataclass
class Epoch:
    """One pass over the loader."""

    run: int
    """Counts the passes."""
    number: int
    """The epoch's."""
    first: int
    """The loader batch of the epoch that the pass begins with; 0 unless it is resumed."""
    start: int
    """Index of its first batch."""
    primed: bool = False
    """Whether it was started before anybody asked."""
    taken: bool = False
    """Whether anybody was let in."""
    count: int = 0
    """Batches published so far."""
    rows: int = 0
    """Samples in them, where they are known."""
    finished: bool = False
    """Whether no more of its batches will come."""
    complete: bool = False
    """Whether it came to the loader's own end."""
    joinable: bool = True
    """Whether every batch of the epoch is still kept, so that it can be taken from the start."""
    failure: tuple[str, str] | None = None
    """The loader's error: one line, and its traceback."""
    cover: int | None = None
    """The samples that its batches hold, a bit each; None: all."""

    @property
    def end(self) -> int:
        """Index after its last published batch."""
        return self.start + self.count

    def covers(self, part: int | None) -> bool:
        """Whether its batches hold all samples of a part."""
        return self.cover is None or (part is not None and not part & ~self.cover)

    def seq(self, index: int) -> int:
        """Return which loader batch of the epoch lies, or will lie, at an index."""
        return self.first + index - self.start

    def index(self, seq: int) -> int:
        """Return where a loader batch of the epoch lies, or will lie; before `start` if it never will."""
        return self.start + seq - self.first


@dataclass
class _Kept:
    batch: Placed
    pins: int = 0


class Epochs:
    """Epochs that consumers may still take, and the batches kept for them.

    Args:
        band: How many batches from an epoch's start the late-join window keeps.
    """

    def __init__(self, band: int) -> None:
        self.band = band
        self.least_band = 0
        """It keeps at least so many now: the loader goes on so far before the first to ask has taken anything."""
        self.end = 0
        """Index of the next batch to be published."""
        self.finite = False
        """Whether the loader has ever come to an end of its own."""
        self.loading: Epoch | None = None
        """The epoch that the loader works on."""
        self._runs = 0
        self._epochs: dict[int, Epoch] = {}
        self._kept: dict[int, _Kept] = {}
        self._swept = 0  # everything below has been looked at; the batches left there are pinned
        self._unpinned: list[int] = []  # below _swept, and let go since

    @property
    def kept(self) -> int:
        """How many batches are kept now."""
        return len(self._kept)

    @property
    def remembered(self) -> list[Epoch]:
        """The passes that may still matter to a consumer, the oldest first."""
        return [*self._epochs.values()]

    def slots(self, *, pinned: bool = False) -> set[int]:
        """Return the slots of the kept batches; with `pinned` only those that a consumer holds or has been granted."""
        return {kept.batch.slot for kept in self._kept.values() if kept.pins or not pinned}

    @property
    def newest(self) -> Epoch:
        """The pass that was started last."""
        return self._epochs[self._runs - 1]

    def get(self, run: int) -> Epoch:
        """Return a pass by its run's number."""
        return self._epochs[run]

    def start(self, number: int, first: int = 0, *, primed: bool = False, cover: int | None = None) -> Epoch:
        """Begin a pass; the one before can no longer be joined by latecomers through its band."""
        run = self._runs
        self.loading = Epoch(run, number, first, self.end, primed, joinable=not first, cover=cover)
        self._epochs[run] = self.loading
        self._runs += 1
        return self.loading

    def widen(self, run: int, cover: int | None) -> None:
        """Note that the batches of the pass being loaded hold more samples than were wanted."""
        if self.loading is not None and self.loading.run == run:
            self.loading.cover = cover

    def publish(self, run: int, batch: Placed) -> bool:
        """Append a batch to the pass being loaded; False if that one is not being loaded (any more)."""
        if self.loading is None or self.loading.run != run:
            return False
        self._kept[self.end] = _Kept(batch)
        self.end += 1
        self.loading.count += 1
        self.loading.rows += batch.rows
        return True

    def finish(self, run: int, failure: tuple[str, str] | None) -> None:
        """The loader has no more batches in this pass, or raised."""
        if self.loading is not None and self.loading.run == run:
            self.loading.finished = True
            self.loading.failure = failure
            self.loading.complete = failure is None
            self.finite = self.finite or failure is None
            # joining this epoch would only mean hearing that it failed: the next one is a new attempt
            self.loading.joinable = self.loading.joinable and failure is None
            self.loading = None

    def abandon(self) -> None:
        """Leave the epoch being loaded where it is: no consumer takes it."""
        if self.loading is not None:
            self.loading.finished = True
            self.loading.joinable = False
            self.loading = None

    def joinable_from(self, number: int, part: int | None = None, since: int = 0) -> Epoch | None:
        """Return the first epoch numbered `number` or more of which a part can still be taken from its start.

        Args:
            number: The least.
            part: The samples that its batches must hold.
            since: The least index of its first batch.
        """
        there = (e for e in self._epochs.values() if e.number >= number and e.start >= since)
        fit = (e for e in there if e.joinable and e.covers(part))
        return min(fit, key=lambda e: e.number, default=None)

    def giving(self, number: int, seq: int, part: int | None = None) -> Epoch | None:
        """Return the pass that has a part of a loader batch of an epoch and of all after it, or will come to it.

        One in which the loader failed only where it still has that very batch: a clone's parent was granted it, or has
        yet to be, and the clone hears of the failure where its parent does.
        """
        for epoch in reversed(self._epochs.values()):
            if epoch.number != number or seq < epoch.first or not epoch.covers(part):
                continue
            index = epoch.index(seq)
            failed_later = epoch.failure is not None and index < epoch.end
            if not (epoch is self.loading or epoch.complete or failed_later):
                continue
            ahead = index > epoch.end
            # those of later passes, too: it comes to them
            needed = range(index, self.end) if index < epoch.end else ()
            if not (ahead and epoch.complete) and all(i in self._kept for i in needed):
                return epoch
        return None

    def stretch(self, number: int, seq: int, part: int | None, most: int) -> tuple[list[int], Epoch] | None:
        """Return where an epoch's batches from one on lie that no pass gives all of; None: nowhere.

        A consumer that was moved over to a later pass still has to take what it was granted in the one before.

        Args:
            number: The epoch's.
            seq: The first batch of it.
            part: The samples that they must hold.
            most: Batches that may lie before the pass.

        Returns:
            The indices of those before the pass, and the pass that gives the rest.
        """
        before: list[int] = []
        for at in range(seq, seq + most):
            index = self._where(number, at, part)
            if index is None:
                return None
            before.append(index)
            epoch = self.giving(number, at + 1, part)
            # at the end of a pass, too: of what came after that, nothing may have gone
            if epoch is not None and all(map(self.has, range(epoch.index(at + 1), self.end))):
                return before, epoch
        return None

    def passing(self, number: int, seq: int, part: int | None, left: list[int]) -> Epoch | None:
        """Return the pass in which a consumer goes on that gives up what has gone; None: its epoch has ended.

        Args:
            number: The epoch's number.
            seq: The batch of it that would come next.
            part: The samples that its batches must hold.
            left: What `left_of` returned: with one of those in it, a pass may have ended.
        """
        for epoch in reversed(self._epochs.values()):
            if epoch.number != number or not epoch.covers(part):
                continue
            inside = any(epoch.start <= i < epoch.end for i in left)
            ended = epoch.complete or epoch.failure is not None
            if (ended and inside) or (epoch is self.loading and (left or seq >= epoch.first)):
                return epoch
        return None

    def left_of(self, number: int, seq: int, part: int | None, due: set[int]) -> list[int]:
        """Return the indices of an epoch's batches, from one on, that were granted, and are kept and to be taken.

        Args:
            number: The epoch's number.
            seq: The first batch of it.
            part: The samples that they must hold.
            due: Indices of all batches that were granted and are to be taken.
        """
        fit = [e for e in self._epochs.values() if e.number == number and e.covers(part)]
        due = due & self._kept.keys()
        there = {e.seq(i): i for e in fit for i in due if e.start <= i < e.end and e.seq(i) >= seq}
        return [there[at] for at in sorted(there)]

    def _where(self, number: int, seq: int, part: int | None) -> int | None:
        """Return the index at which an epoch's batch is kept, in whichever pass."""
        for epoch in reversed(self._epochs.values()):
            index = epoch.index(seq)
            fits = epoch.number == number and epoch.covers(part)
            if fits and epoch.start <= index < epoch.end and index in self._kept:
                return index
        return None

    def having(self, index: int) -> Epoch:
        """Return the pass in which a batch was published."""
        return next(e for e in self._epochs.values() if e.start <= index < e.end)

    def has(self, index: int) -> bool:
        """Whether this batch is kept."""
        return index in self._kept

    def pin(self, index: int) -> Placed:
        """Keep this batch for one more reader."""
        kept = self._kept[index]
        kept.pins += 1
        return kept.batch

    def unpin(self, index: int) -> None:
        """One reader less."""
        self._kept[index].pins -= 1
        if index < self._swept:
            self._unpinned.append(index)

    def collect(self, needed_from: int, in_use: Iterable[int]) -> list[int]:
        """Return the slots that no consumer can need any more, and forget their batches.

        Args:
            needed_from: Batches from this index on are kept for consumers that have yet to be granted them.
            in_use: The passes that consumers take.
        """
        limit = min(needed_from, self._band_start())
        # it may go back, with a consumer that was let in where only others' pins kept batches
        before, self._swept = self._swept, limit
        slots = self.collect_unpinned() if self._unpinned else []
        for index in range(before, limit):
            kept = self._kept.get(index)
            if kept is not None and not kept.pins:
                slots.append(self._kept.pop(index).batch.slot)
        self._close(limit, in_use)
        return slots

    def collect_unpinned(self) -> list[int]:
        """Return the slots of batches that only a reader had kept, which has let go since; and forget them."""
        slots = []
        while self._unpinned:
            index = self._unpinned.pop()
            kept = self._kept.get(index)
            if kept is not None and not kept.pins and index < self._swept:
                slots.append(self._kept.pop(index).batch.slot)
        return slots

    def _band_start(self) -> int:
        """Return the index from which the late-join window keeps batches: an epoch's start, or nothing."""
        newest = self._epochs[self._runs - 1]
        if newest.joinable and newest.count <= max(self.band, self.least_band):
            return newest.start
        return self.end

    def _close(self, limit: int, in_use: Iterable[int]) -> None:
        """Epochs that have lost a batch cannot be joined; those that are over and done are forgotten."""
        for epoch in self._epochs.values():
            if epoch.start < limit and epoch.count:
                epoch.joinable = False
        if len(self._epochs) > 1:
            used = {*in_use, self._runs - 1}
            over = [e for e in self._epochs.values() if e.finished and not e.joinable and e.end <= limit]
            for epoch in over:
                # while one is read, somebody may have been granted it and not taken it
                if epoch.run not in used and not any(epoch.start <= i < epoch.end for i in self._kept):
                    del self._epochs[epoch.run]

    def span(self, needed_from: int) -> int:
        """Return how many batches there are from the first one on that is kept though nobody might hold it.

        Args:
            needed_from: As `collect`.
        """
        return self.end - min(needed_from, self._band_start())

    def check(self, pins: dict[int, int], needed_from: int) -> None:
        """Verify the invariants (tests only).

        Raises:
            AssertionError: One is broken.
        """
        assert {i: k.pins for i, k in self._kept.items() if k.pins} == pins
        for index in range(needed_from, self.end):
            assert index in self._kept, f"batch {index} is needed and gone"
        for epoch in self._epochs.values():
            if epoch.joinable:
                assert all(i in self._kept for i in range(epoch.start, epoch.end)), epoch
        for index, kept in self._kept.items():
            useful = kept.pins or index >= needed_from or index >= self._band_start()
            assert useful, f"batch {index} is kept for nobody"
