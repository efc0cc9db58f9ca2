"""Where the consumers of a stream are, counted by index: the lowest place is known without a look at all of them.

Pure, a part of `dispatch`. Each consumer takes each batch, so whatever looks at all consumers at each take costs the
square of their number.
"""

from __future__ import annotations

from collections.abc import Iterable

from tsnb.stream.decisions.members import Member
from tsnb.stream.decisions.phases import Phase

__all__ = ["IndexCounts", "Positions"]


class IndexCounts:
    """How many consumers are at each index.

    Attributes:
        lowest: The lowest index at which one is; None without any.
    """

    def __init__(self) -> None:
        self.lowest: int | None = None
        self._counts: dict[int, int] = {}

    def add(self, index: int) -> None:
        """Count one more consumer at an index."""
        self._counts[index] = self._counts.get(index, 0) + 1
        if self.lowest is None or index < self.lowest:
            self.lowest = index

    def move(self, before: int, after: int) -> None:
        """Note that one consumer went on from one index to another one."""
        counts = self._counts  # several times a batch: without a call
        counts[after] = counts.get(after, 0) + 1
        if self.lowest is None or after < self.lowest:
            self.lowest = after
        counts[before] -= 1
        if not counts[before]:
            del counts[before]
            while self.lowest not in counts:
                self.lowest = before = before + 1


class Positions:
    """What the window's bounds follow from, while no consumer begins an epoch or leaves one.

    Args:
        members: All consumers.
        awaited: Those that are waited for, as far as that does not change with every batch.

    Attributes:
        taken: The next batch to be taken, of those that take an epoch.
        cursors: The next batch to be granted, of the same.
        front: The highest of `taken`; None without any.
        counted: `taken`, as if each had taken what was published while it stopped.
        others: Consumers that take no epoch now, and may be waited for. One stands for all that expect the same epoch.
        keeping: Consumers that were paused, and keep their places.
        streaming: The passes that consumers take.
        in_use: The same passes, and those that consumers took last who are between epochs.
        asked: Whether any consumer waits to be let into an epoch.
    """

    def __init__(self, members: Iterable[Member], awaited: Iterable[Member]) -> None:
        self.taken, self.cursors, self.counted = IndexCounts(), IndexCounts(), IndexCounts()
        self.front: int | None = None
        self.others: list[Member] = []
        self.keeping: list[Member] = []
        self.streaming: set[int] = set()
        self.in_use: set[int] = set()
        self.asked = False
        expected: set[tuple[int, int | None, int]] = set()
        for member in awaited:
            if member.phase is Phase.STREAMING:
                self.taken.add(member.taken)
                self.front = max(self.front or 0, member.taken)
                self.cursors.add(member.cursor)
                self.counted.add(member.taken + member.stood)
            elif member.resumed:
                self.others.append(member)
            elif (wants := (member.epoch, member.next_part, member.stood)) not in expected:
                expected.add(wants)
                self.others.append(member)
        for member in members:
            if member.phase is Phase.STREAMING:
                self.streaming.add(member.run)
            elif member.phase is Phase.BETWEEN:
                self.in_use.add(member.run)
            elif member.phase is Phase.ASKED:
                self.asked = True
            if member.keeps_place:
                self.keeping.append(member)
        self.in_use |= self.streaming

    def moved(self, member: Member, taken: int, cursor: int, stood: int) -> None:
        """Note that a consumer went on inside its epoch.

        Args:
            member: Which.
            taken: Its `taken` before.
            cursor: Its `cursor` before.
            stood: Its `stood` before.
        """
        now_taken, counted = member.taken, taken + stood
        if now_taken != taken:
            self.taken.move(taken, now_taken)
            self.front = max(self.front or 0, now_taken)
        if member.cursor != cursor:
            self.cursors.move(cursor, member.cursor)
        if (now_counted := now_taken + member.stood) != counted:
            self.counted.move(counted, now_counted)
