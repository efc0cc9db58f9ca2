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

from tsnb.stream.decisions.epochs import Epochs
from tsnb.stream.decisions.members import Member, Rotation, RotationTurn
from tsnb.stream.decisions.pacing.contract import Policy
from tsnb.stream.decisions.pacing.drift import Drift
from tsnb.stream.decisions.phases import Phase
from tsnb.stream.protocol.messages import Hello

__all__ = ["Turns"]


class Turns(Policy):
    """Whose turn it is, in all rotations of a stream.

    Args:
        members: The stream's consumers.
        epochs: Its epochs.
        drift: How far apart they are.
        stall_timeout_s: Seconds that one may stand still in its turn.
    """

    def __init__(
        self, members: Mapping[int, Member], epochs: Epochs, drift: Drift, stall_timeout_s: float
    ) -> None:
        self._members = members
        self._epochs = epochs
        self._drift = drift
        self._stall_timeout_s = stall_timeout_s
        self._tickets = itertools.count()

    @property
    def reach(self) -> int:
        """Batches of the widest window that is taken by turns; 0: none is."""
        return max((turn.rotation.batches for _, turn in self._taking()), default=0)

    def _taking(self) -> list[tuple[Member, RotationTurn]]:
        """Return those that take turns."""
        return [(m, m.turn) for m in self._members.values() if m.turn is not None]

    def joined(self, member: Member, hello: Hello) -> None:
        """A consumer has attached; where it takes turns, its numbers hold for all of its rotation."""
        if not hello.rotation or hello.world_size > 1:
            return
        there = (turn.rotation for _, turn in self._taking() if turn.rotation.name == hello.rotation)
        rotation = next(there, None) or Rotation(hello.rotation)
        rotation.batches, rotation.at_once = hello.rotate, hello.at_once
        member.turn = RotationTurn(rotation)
        self.followed = True

    def asked(self, member: Member) -> None:
        """A consumer asks for an epoch: its turn is over."""
        if member.turn is not None:
            member.turn.on = False

    def waits(self, member: Member) -> bool:
        """Return whether a consumer that wants a batch gives up its turn, or gets in line for one."""
        turn = member.turn
        if turn is None:
            return False
        return self._has_had_it(member, turn) if turn.on else member.times.queued_since_s is None

    def limit(self, member: Member, end: int, _now: float) -> int:
        """Return the end of its turn; out of it, nothing is granted."""
        turn = member.turn
        if turn is None:
            return end
        return min(end, turn.end) if turn.on else 0

    def settle(self, now: float) -> None:
        """End the turns that are over, and give those that are free to the next."""
        taking: dict[str, list[tuple[Member, RotationTurn]]] = {}
        for member, turn in self._taking():
            taking.setdefault(turn.rotation.name, []).append((member, turn))
        self.followed = bool(taking)
        for some in taking.values():
            for member, turn in some:
                self._look_at(member, turn, now)
            free = some[0][1].rotation.at_once - sum(turn.on for _, turn in some)
            if free > 0:
                line = sorted((one for one in some if one[0].times.queued_since_s is not None), key=_order)
                for member, turn in line[:free]:
                    member.times.leave_queue(now)
                    turn.on = True
                    self._mark(member, turn)

    def _look_at(self, member: Member, turn: RotationTurn, now: float) -> None:
        """End its turn if that is over; have it wait for one if it wants a batch."""
        streaming, times = member.phase is Phase.STREAMING, member.times
        if turn.on and streaming and member.run != turn.run:
            self._mark(member, turn)  # it was moved over to another pass
        if turn.on and (self._has_gone(member) or (streaming and self._has_had_it(member, turn))):
            turn.on = False
        wants = streaming and not turn.on and not member.granted and member.end is None
        if not wants or times.waiting_since_s is None:
            times.leave_queue(now)
        elif times.queued_since_s is None:
            times.queue(now)
            turn.ticket, turn.late = next(self._tickets), False

    @staticmethod
    def _has_gone(member: Member) -> bool:
        """Whether it takes no epoch any more, and is not expected back."""
        if member.phase is Phase.ASKED:
            return not member.granted  # else it was moved over, and has some left
        return member.phase in (Phase.AWAY, Phase.JOINING)

    def _has_had_it(self, member: Member, turn: RotationTurn) -> bool:
        """Whether one that streams has nothing left of its turn, or has to let one go first that is far behind."""
        if member.granted or member.times.waiting_since_s is None:
            return False
        return member.cursor >= turn.end or (member.cursor >= self._epochs.end and self._drift.held_by_line())

    def _mark(self, member: Member, turn: RotationTurn) -> None:
        """Note up to where its turn goes."""
        epoch, batches = self._epochs.get(member.run), turn.rotation.batches
        turn.run = member.run
        turn.end = epoch.index((epoch.seq(member.cursor) // batches + 1) * batches)

    def tick(self, now: float) -> None:
        """Take the turn from those that have stood still in it while others wait for theirs."""
        for rotation, since_s in self._lines():
            for member, turn in self._taking():
                still_s = now - max(member.times.moved_s, since_s)
                if (
                    turn.rotation is rotation
                    and turn.on
                    and member.times.waiting_since_s is None
                    and member.share.batches  # else its loop has yet to begin, and a sweep's trials wait for each other
                    and still_s >= self._stall_timeout_s
                ):
                    turn.on, turn.late = False, True

    def _lines(self) -> Iterator[tuple[Rotation, float]]:
        """Yield the rotations in which some wait for their turn, and since when the first of them has."""
        since_s: dict[int, tuple[Rotation, float]] = {}
        for member, turn in self._taking():
            rotation, queued_since_s = turn.rotation, member.times.queued_since_s
            if queued_since_s is not None:
                before = since_s.get(id(rotation), (rotation, queued_since_s))[1]
                since_s[id(rotation)] = (rotation, min(before, queued_since_s))
        yield from since_s.values()

    def check(self) -> None:
        """Verify what must hold after every step (tests only).

        Raises:
            AssertionError: More have their turn than may, one is granted batches out of its turn, or a turn is free
                while one waits for it.
        """
        taking = self._taking()
        assert self.followed or not taking
        for rotation in {id(turn.rotation): turn.rotation for _, turn in taking}.values():
            some = [(m, turn) for m, turn in taking if turn.rotation is rotation]
            having = [m for m, turn in some if turn.on]
            line = [m for m, _ in some if m.times.queued_since_s is not None]
            assert len(having) <= rotation.at_once, having
            assert not line or len(having) == rotation.at_once, (having, line)
        for member, turn in taking:
            times = member.times
            assert not (turn.on and times.queued_since_s is not None), member
            if turn.on and member.phase is Phase.STREAMING:
                assert member.cursor <= max(turn.end, member.taken), member
            wants = member.phase is Phase.STREAMING and not member.granted and member.end is None
            if wants and times.waiting_since_s is not None and not turn.on:
                assert times.queued_since_s is not None, f"it waits, and not for its turn: {member}"
            computes = member.phase is Phase.STREAMING and times.waiting_since_s is None
            assert turn.on or turn.late or not computes, f"it computes out of its turn: {member}"


def _order(one: tuple[Member, RotationTurn]) -> tuple[int, int]:
    """Who has the next turn: the one furthest behind, of several the one that has waited longest."""
    return one[0].cursor, one[1].ticket
