"""The layout table of one connection: a layout travels once, then its id stands for it.

Pure state, one table on each side of a connection. Messages keep their order, so both sides agree without
asking. A table that is full starts again from nothing, with id 0: streams whose every batch has a new shape stay
bounded, in bytes, since the layout of a detection batch of 160 tensors takes 50 times as many as a classifier's.
"""

from __future__ import annotations

from tsnb.errors import RemoteProtocolError
from tsnb.stream.protocol.layout import Layout

__all__ = ["LayoutReader", "LayoutWriter"]

CAPACITY = 4096
"""Layouts one connection remembers at most."""
CAPACITY_BYTES = 1 << 20
"""What their encoded forms may take together. Read by a consumer, a layout takes up to six times as much."""


class LayoutWriter:
    """The sending side: turns layouts into ids."""

    def __init__(self) -> None:
        self._ids: dict[bytes, int] = {}
        self._bytes = 0

    def intern(self, layout: bytes) -> tuple[int, bool]:
        """Return the layout's id, and whether the other side must be told it first."""
        known = self._ids.get(layout)
        if known is not None:
            return known, False
        if len(self._ids) >= CAPACITY or self._bytes + len(layout) > CAPACITY_BYTES:
            self._ids.clear()
            self._bytes = 0
        self._bytes += len(layout)
        number = self._ids[layout] = len(self._ids)
        return number, True


class LayoutReader:
    """The receiving side: turns ids into layouts."""

    def __init__(self) -> None:
        self._layouts: dict[int, Layout] = {}

    def learn(self, number: int, layout: Layout) -> None:
        """Remember a layout under the id the other side gave it; 0 begins a new table."""
        if number == 0:
            self._layouts.clear()
        self._layouts[number] = layout

    def lookup(self, number: int) -> Layout:
        """Return the layout of an id.

        Raises:
            RemoteProtocolError: The other side never told it.
        """
        try:
            return self._layouts[number]
        except KeyError:
            raise RemoteProtocolError(f"batch with unknown layout {number}") from None
