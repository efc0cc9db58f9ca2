"""Turns: more consumers than are to compute at once take the stream by turns, side by side in one pass.

Pure, a part of `dispatch`. Such consumers (`Rotation`) all take the epoch, each is granted batches in its turn only:

- a turn is a window of the epoch's batches: it ends before the next multiple of `Rotation.batches`, or with the epoch.
  It is over when its consumer has computed on the last of them and wants more, or leaves the epoch: one that validates
  between two epochs keeps its turn until it asks for the next, while it is expected back;
- `Rotation.at_once` have their turn at the same time;
- the next turn goes to the one that is furthest behind; of several in one place, to the one that has waited longest.
  So all take the first window, one after the other, then the second. The stream's own window is at least as wide
  meanwhile: a window of batches is prepared once, and kept until the last has had it, and the loader goes on with the
  next one as the last ones take it;
- where one that waits for its turn is so far behind that the loader has to stand still (a clone, one that was paused),
  those that have come to the end of what there is give up their turn to it;
- one that waits for its turn does not stand still, holds nobody up and sets no pace. One that stands still in its turn
  for `stall_timeout_s` loses the turn, not its place in the epoch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from tsnb.stream.decisions.drift import Drift
from tsnb.stream.decisions.epochs import Epochs
from tsnb.stream.decisions.members import Member, Rotation
from tsnb.stream.decisions.phases import Phase
from tsnb.stream.protocol.messages import Hello

__all__ = ["Turns"]


class Turns:
    """Whose turn it is, in all rotations of a stream.

    Args:
        members: The stream's consumers.
        epochs: Its epochs.
        drift: How far apart they are.
        stall_timeout_s: Seconds that one may stand still in its turn.

    Attributes:
        on: Whether any consumer takes turns.
    """

    def __init__(
        self, members: Mapping[int, Member], epochs: Epochs, drift: Drift, stall_timeout_s: float
    ) -> None:
        self.on = False
        self._members = members
        self._epochs = epochs
        self._drift = drift
        self._stall_timeout_s = stall_timeout_s
        self._tickets = itertools.count()

    @property
    def reach(self) -> int:
        """Batches of the widest window that is taken by turns; 0: none is."""
        return max((m.rotation.batches for m in self._members.values() if m.rotation is not None), default=0)

    def join(self, member: Member, hello: Hello) -> None:
        """A consumer attached that takes turns. The numbers of the newest hold for all of its rotation."""
        there = (m.rotation for m in self._members.values())
        rotation = next((r for r in there if r is not None and r.name == hello.rotation), None)
        if rotation is None:
            rotation = Rotation(hello.rotation)
        rotation.batches, rotation.at_once = hello.rotate, hello.at_once
        member.rotation = rotation
        self.on = True

    def asked(self, member: Member) -> None:
        """A consumer asks for an epoch: its turn is over."""
        member.has_turn = False

    def is_over(self, member: Member) -> bool:
        """Whether a consumer that wants a batch gives up its turn, or gets in line for one."""
        if not member.has_turn:
            return member.queued_since_s is None
        return self._has_had_it(member)

    def settle(self, now: float) -> None:
        """End the turns that are over, and give those that are free to the next."""
        taking: dict[str, list[Member]] = {}
        for member in self._members.values():
            if member.rotation is not None:
                taking.setdefault(member.rotation.name, []).append(member)
        self.on = bool(taking)
        for some in taking.values():
            for member in some:
                self._look_at(member, now)
            rotation = some[0].rotation
            assert rotation is not None
            free = rotation.at_once - sum(m.has_turn for m in some)
            if free > 0:
                waiting = sorted((m for m in some if m.queued_since_s is not None), key=_order)
                for member in waiting[:free]:
                    self._begin(member, now)

    def _look_at(self, member: Member, now: float) -> None:
        """End its turn if that is over; have it wait for one if it wants a batch."""
        streaming = member.phase is Phase.STREAMING
        if member.has_turn and streaming and member.run != member.turn_run:
            self._mark(member)  # it was moved over to another pass
        if member.has_turn and (self._has_gone(member) or (streaming and self._has_had_it(member))):
            member.has_turn = False
        wants = streaming and not member.has_turn and not member.granted and member.end is None
        if not wants or member.waiting_since_s is None:
            self._leave_line(member, now)
        elif member.queued_since_s is None:
            member.queued_since_s, member.ticket, member.late = now, next(self._tickets), False

    @staticmethod
    def _has_gone(member: Member) -> bool:
        """Whether it takes no epoch any more, and is not expected back."""
        if member.phase is Phase.ASKED:
            return not member.granted  # else it was moved over, and has some left
        return member.phase in (Phase.AWAY, Phase.JOINING)

    def _has_had_it(self, member: Member) -> bool:
        """Whether one that streams has nothing left of its turn, or has to let one go first that is far behind."""
        if member.granted or member.waiting_since_s is None:
            return False
        return member.cursor >= member.turn_end or (
            member.cursor >= self._epochs.end and self._drift.held_by_line()
        )

    def _begin(self, member: Member, now: float) -> None:
        self._leave_line(member, now)
        member.has_turn = True
        self._mark(member)

    def _mark(self, member: Member) -> None:
        """Note up to where its turn goes."""
        assert member.rotation is not None
        epoch, batches = self._epochs.get(member.run), member.rotation.batches
        member.turn_run = member.run
        member.turn_end = epoch.index((epoch.seq(member.cursor) // batches + 1) * batches)

    @staticmethod
    def _leave_line(member: Member, now: float) -> None:
        if member.queued_since_s is not None:
            member.queued_s += now - member.queued_since_s
            member.queued_since_s = None

    def pass_on(self, now: float) -> None:
        """Take the turn from those that have stood still in it while others wait for theirs."""
        for rotation, since_s in self._lines():
            for member in self._members.values():
                still_s = now - max(member.moved_s, since_s)
                if (
                    member.rotation is rotation
                    and member.has_turn
                    and member.waiting_since_s is None
                    and member.batches  # else its loop has yet to begin: a sweep's trials wait for each other there
                    and still_s >= self._stall_timeout_s
                ):
                    member.has_turn, member.late = False, True

    def _lines(self) -> Iterator[tuple[Rotation, float]]:
        """Yield the rotations in which some wait for their turn, and since when the first of them has."""
        since_s: dict[int, tuple[Rotation, float]] = {}
        for member in self._members.values():
            if member.rotation is not None and member.queued_since_s is not None:
                before = since_s.get(id(member.rotation), (member.rotation, member.queued_since_s))[1]
                since_s[id(member.rotation)] = (member.rotation, min(before, member.queued_since_s))
        yield from since_s.values()

    def check(self) -> None:
        """Verify what must hold after every step (tests only).

        Raises:
            AssertionError: More have their turn than may, one is granted batches out of its turn, or a turn is free
                while one waits for it.
        """
        taking = [m for m in self._members.values() if m.rotation is not None]
        assert self.on or not taking
        for rotation in {id(m.rotation): m.rotation for m in taking}.values():
            some = [m for m in taking if m.rotation is rotation]
            assert rotation is not None
            having = [m for m in some if m.has_turn]
            line = [m for m in some if m.queued_since_s is not None]
            assert len(having) <= rotation.at_once, having
            assert not line or len(having) == rotation.at_once, (having, line)
        for member in taking:
            assert not (member.has_turn and member.queued_since_s is not None), member
            if member.has_turn and member.phase is Phase.STREAMING:
                assert member.cursor <= max(member.turn_end, member.taken), member
            wants = member.phase is Phase.STREAMING and not member.granted and member.end is None
            if wants and member.waiting_since_s is not None and not member.has_turn:
                assert member.queued_since_s is not None, f"it waits, and not for its turn: {member}"
            computes = member.phase is Phase.STREAMING and member.waiting_since_s is None
            assert member.has_turn or member.late or not computes, f"it computes out of its turn: {member}"


def _order(member: Member) -> tuple[int, int]:
    """Who has the next turn: the one furthest behind, of several the one that has waited longest."""
    return member.cursor, member.ticket
