"""Re-batching as arithmetic: which rows of which loader batches make the next batch of another size.

Pure: rows are counted, no tensor is touched. The consumer turns a `Cut` into views, and copies only where a
batch straddles two loader batches.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

__all__ = ["Cut", "Cutter"]


class Cut(NamedTuple):
    """A run of rows inside one loader batch."""

    batch: int
    """Which loader batch, counted from the epoch's first."""
    start: int
    """First row."""
    stop: int
    """One past the last row."""


class Cutter:
    """Cuts a row of loader batches of any sizes into batches of `batch_size`.

    Args:
        batch_size: Samples in each batch that comes out (the last of an epoch may have fewer).
    """

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self._parts: deque[Cut] = deque()
        self._rows = 0
        self._fed = 0

    def feed(self, rows: int) -> None:
        """Add the next loader batch of `rows` samples."""
        if rows:
            self._parts.append(Cut(self._fed, 0, rows))
        self._fed += 1
        self._rows += rows

    def cut(self, *, last: bool = False) -> list[Cut]:
        """Return the parts of the next batch, or nothing while too few rows are there.

        Args:
            last: The epoch has ended: give what is left, however few rows.
        """
        want = min(self.batch_size, self._rows) if last else self.batch_size
        if not want or self._rows < want:
            return []
        parts: list[Cut] = []
        self._rows -= want
        while want:
            head = self._parts.popleft()
            stop = min(head.stop, head.start + want)
            parts.append(Cut(head.batch, head.start, stop))
            want -= stop - head.start
            if stop < head.stop:
                self._parts.appendleft(Cut(head.batch, stop, head.stop))
        return parts

    @property
    def oldest(self) -> int:
        """The first loader batch that still has rows to give; those before it can be let go."""
        return self._parts[0].batch if self._parts else self._fed
