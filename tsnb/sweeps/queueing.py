"""Which trials of a sweep start now: as many as there are places, together where possible.

Trials that start together share the first batch of an epoch and are compared with each other. So while trials are
being stopped no other starts: their places are filled together, once all of them are free.

Pure: events in, names to start out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

__all__ = ["Places"]


class Places:
    """The places of a sweep, and the trials that wait for one.

    Attributes:
        refused: Trials that were not started, and why, by name.

    Args:
        at_once: How many there are.
    """

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.refused: dict[str, str] = {}
        self._waiting: deque[str] = deque()
        self._taken: set[str] = set()
        self._leaving: set[str] = set()

    @property
    def waiting(self) -> tuple[str, ...]:
        """Trials that have not started, in order."""
        return tuple(self._waiting)

    @property
    def late(self) -> Mapping[str, str]:
        """Trials that wait and would be done too late, as far as is known now: when, by name; none without a plan."""
        return {}

    @property
    def over(self) -> bool:
        """Whether no trial runs or waits."""
        return not self._waiting and not self._taken

    @property
    def free(self) -> int:
        """Places that trials may take now; none while trials are being stopped."""
        return 0 if self._leaving else self.at_once - len(self._taken)

    def add(self, names: Iterable[str]) -> None:
        """Let trials wait, in their order."""
        self._waiting.extend(names)

    def start(self) -> list[str]:
        """Return the trials that start now, together; they have their places from here on."""
        starting = [self._waiting.popleft() for _ in range(min(self.free, len(self._waiting)))]
        self._taken.update(starting)
        return starting

    def join(self, name: str) -> None:
        """Take in a trial that runs already, in the place of one that is being stopped."""
        self._taken.add(name)

    def leave(self, names: Iterable[str]) -> None:
        """Note that trials are being stopped."""
        self._leaving |= self._taken & set(names)

    def end(self, name: str) -> None:
        """Note that a trial has ended; its place is free."""
        self._taken.discard(name)
        self._leaving.discard(name)

    def changed(self) -> None:
        """Note that something beside the sweep may let a trial start, or keep it from that."""

    def clear(self) -> list[str]:
        """Empty the queue; return the trials that waited."""
        sent = list(self._waiting)
        self._waiting.clear()
        return sent

    def check(self) -> None:
        """Check what always holds. Called by tests after every event.

        Raises:
            AssertionError: It does not.
        """
        assert len(self._taken - self._leaving) <= self.at_once
        assert self._leaving <= self._taken
        assert not self._taken & set(self._waiting)
