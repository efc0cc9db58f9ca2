"""The epochs of a stream and the batches that are still kept: who pins them is told from outside.

Pure. Indices count all batches the stream ever published; an epoch is a run of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tsnb.producer.events import Placed

__all__ = ["Epoch", "Epochs"]


@dataclass
class Epoch:
    """One pass over the loader."""

    number: int
    start: int
    """Index of its first batch."""
    primed: bool = False
    """Whether it was started before anybody asked."""
    count: int = 0
    """Batches published so far."""
    finished: bool = False
    joinable: bool = True
    """Whether every batch of it is still kept, so that it can be taken from the start."""
    failure: tuple[str, str] | None = None
    """The loader's error: one line, and its traceback."""

    @property
    def end(self) -> int:
        """Index after its last published batch."""
        return self.start + self.count


@dataclass
class _Kept:
    batch: Placed
    pins: int = 0


class Epochs:
    """Epochs that somebody may still take, and the batches kept for them.

    Args:
        band: How many batches from an epoch's start the rubber band keeps.
    """

    def __init__(self, band: int) -> None:
        self.band = band
        self.next_number = 0
        self.end = 0
        """Index of the next batch to be published."""
        self.loading: Epoch | None = None
        """The epoch that the loader works on."""
        self._epochs: dict[int, Epoch] = {}
        self._kept: dict[int, _Kept] = {}
        self._swept = 0  # everything below has been looked at; what is left there is pinned
        self._unpinned: list[int] = []  # below _swept, and let go since

    @property
    def kept(self) -> int:
        """How many batches are kept now."""
        return len(self._kept)

    @property
    def newest(self) -> Epoch:
        """The epoch that was started last."""
        return self._epochs[self.next_number - 1]

    def get(self, number: int) -> Epoch:
        """Return an epoch that somebody takes."""
        return self._epochs[number]

    def start(self, *, primed: bool = False) -> Epoch:
        """Begin the next epoch; the one before can no longer be joined by latecomers through its band."""
        self.loading = Epoch(self.next_number, self.end, primed)
        self._epochs[self.next_number] = self.loading
        self.next_number += 1
        return self.loading

    def publish(self, number: int, batch: Placed) -> bool:
        """Append a batch to the epoch being loaded; False if that epoch is not being loaded (any more)."""
        if self.loading is None or self.loading.number != number:
            return False
        self._kept[self.end] = _Kept(batch)
        self.end += 1
        self.loading.count += 1
        return True

    def finish(self, number: int, failure: tuple[str, str] | None) -> None:
        """The loader has no more batches in this epoch, or raised."""
        if self.loading is not None and self.loading.number == number:
            self.loading.finished = True
            self.loading.failure = failure
            # nobody should join an epoch to be told that it failed: the next one is a new attempt
            self.loading.joinable = self.loading.joinable and failure is None
            self.loading = None

    def abandon(self) -> None:
        """Nobody takes the epoch being loaded: leave it where it is."""
        if self.loading is not None:
            self.loading.finished = True
            self.loading.joinable = False
            self.loading = None

    def joinable_after(self, number: int) -> Epoch | None:
        """Return the first epoch after `number` that can still be taken from its start."""
        later = (e for n, e in sorted(self._epochs.items()) if n > number and e.joinable)
        return next(later, None)

    def pin(self, index: int) -> Placed:
        """Somebody may read this batch from now on."""
        kept = self._kept[index]
        kept.pins += 1
        return kept.batch

    def unpin(self, index: int) -> None:
        """One reader less."""
        self._kept[index].pins -= 1
        if index < self._swept:
            self._unpinned.append(index)

    def collect(self, needed_from: int) -> list[int]:
        """Return the slots that nobody can need any more, and forget their batches.

        Args:
            needed_from: Batches from this index on are kept for those who have yet to be granted them.
        """
        limit = min(needed_from, self._band_start())
        candidates = [*self._unpinned, *range(self._swept, limit)]
        self._unpinned.clear()
        self._swept = max(self._swept, limit)
        freed = [i for i in candidates if (kept := self._kept.get(i)) is not None and not kept.pins]
        slots = [self._kept.pop(index).batch.slot for index in freed]
        self._close(limit)
        return slots

    def _band_start(self) -> int:
        """Return the index from which the rubber band keeps batches: an epoch's start, or nothing."""
        newest = self.newest
        if newest.joinable and newest.count <= self.band:
            return newest.start
        return self.end

    def _close(self, limit: int) -> None:
        """Epochs that have lost a batch cannot be joined; those that are over and done are forgotten."""
        for number, epoch in list(self._epochs.items()):
            if epoch.start < limit and epoch.count:
                epoch.joinable = False
            if epoch.finished and not epoch.joinable and epoch.end <= limit and number < self.next_number - 1:
                del self._epochs[number]

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
