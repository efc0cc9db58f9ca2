"""Giving batches to consumers one by one, and taking a consumer out of its epoch.

Pure, a part of `dispatch`.
"""

from __future__ import annotations

from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.epochs import Epoch, Epochs
from tsnb.stream.decisions.members import Grant, Member
from tsnb.stream.decisions.pacing.contract import LOOKAHEAD, Policies
from tsnb.stream.decisions.pacing.drift import Drift
from tsnb.stream.decisions.phases import Cause, Phase
from tsnb.stream.protocol import messages as ms

__all__ = ["ALIGNED", "Granting"]

ALIGNED = 16
"""Ranks of a group that are parked are brought to one place, if none is further behind than this: with what it may
hold beside, it stays below what the producer's guard takes for a leak."""


class Granting:
    """Grants batches to consumers.

    Args:
        epochs: The stream's.
        drift: How far apart its consumers are.
        policies: How they are paced.

    Attributes:
        out: The instructions of this step.
        now: Monotonic seconds.
        places_changed: Whether a consumer left its epoch in this step.
    """

    def __init__(self, epochs: Epochs, drift: Drift, policies: Policies) -> None:
        self.out: list[ev.Instruction] = []
        self.now = 0.0
        self.places_changed = False
        self._epochs = epochs
        self._drift = drift
        self._policies = policies
        self._leases = 0

    @property
    def blocked_s(self) -> float:
        """The stream's blocked clock now."""
        return self._drift.blocked_s(self.now)

    def grant(self, member: Member) -> None:
        """Grant a consumer that streams what it may have now."""
        if member.end is not None:
            return
        epoch = self._epochs.get(member.run)
        if not member.granted:
            member.times.offer(self.now)
        for policy in self._policies.followed:
            policy.give_up(member, epoch)
        if member.first:
            self._give_first(member)
        end = epoch.end
        for policy in self._policies.followed:
            end = policy.limit(member, end, self.now)
        while member.cursor < end and len(member.granted) < LOOKAHEAD:
            self._grant(member, epoch, member.cursor)
        if epoch.finished and member.cursor >= epoch.end:
            self._come_to_end(member, epoch)

    def _grant(self, member: Member, epoch: Epoch, index: int, onwards: int = 1) -> None:
        self._leases = (self._leases + 1) & 0xFFFFFFFF
        batch = self._epochs.pin(index)
        seq = epoch.seq(index)
        member.give(self._leases, Grant(seq, batch.rows, index), onwards)
        self.out.append(ev.Granted(member.key, self._leases, epoch.number, seq, batch))

    def _give_first(self, member: Member) -> None:
        """Grant what lies before its pass, now: nobody else may keep it for long. Neither turn nor weight counts."""
        for index in member.first:
            self._grant(member, self._epochs.having(index), index, 0)
        member.first.clear()
        if member.turn is not None:
            member.turn.late = member.turn.late or not member.turn.on

    def _come_to_end(self, member: Member, epoch: Epoch) -> None:
        end = self._tell_end(member, epoch)
        if not member.granted:
            self.end_epoch(member, end)

    def _tell_end(self, member: Member, epoch: Epoch) -> Cause:
        end = Cause.ENDED if epoch.failure is None else Cause.FAILED
        member.tell_end(end)
        self.places_changed = self.places_changed or member.skips  # it drives the loader no more
        failure = () if epoch.failure is None else (True, *epoch.failure)
        self._tell(member, ms.EpochEnded(epoch.number, epoch.seq(epoch.end), *failure))
        return end

    def _tell(self, member: Member, message: ms.Message) -> None:
        self.out.append(ev.Tell(member.key, message))

    def end_epoch(self, member: Member, cause: Cause) -> None:
        """Take the member out of its epoch; it releases the batches that it was granted and did not take."""
        self.places_changed = True
        if cause.after is Phase.BETWEEN and member.group is not None and member.group.closed:
            cause = Cause.RANK_GONE  # it will not be let into another one
        member.leave_epoch(cause, self.now, self.blocked_s)
        for policy in self._policies.followed:
            policy.waits(member)

    def park(self, member: Member, stood_still_s: float | None, cause: Cause = Cause.STOOD_STILL) -> None:
        """Take a consumer that stands still, or is paused, off the window, and with it its whole group, at one place.

        Ranks wait for each other in every step. If they ran dry at different batches, one would ask for the next while
        another waits for it in a collective; so each is granted all that the furthest of them has been, first.

        Args:
            member: One that streams.
            stood_still_s: For how long it did; None: it is paused, and told so otherwise.
            cause: Why.
        """
        taking = [m for m in (member, *member.mates) if m.run == member.run]
        furthest = max(m.cursor for m in taking)
        streaming = [m for m in taking if m.phase is Phase.STREAMING]
        there = (
            furthest <= self._epochs.end
        )  # else one came back to a place that the loader has yet to come to
        aligned = there and furthest - min(m.cursor for m in streaming) <= ALIGNED
        for one in streaming:
            epoch = self._epochs.get(one.run)
            while aligned and one.cursor < furthest:
                self._grant(one, epoch, one.cursor)
            if epoch.finished and one.cursor >= epoch.end and one.end is None:
                self._tell_end(one, epoch)
            if one.end is None and stood_still_s is not None:
                seq = epoch.seq(one.cursor)  # the first that it was not granted
                self._tell(one, ms.Parked(one.epoch, seq, stood_still_s))
            self.end_epoch(one, cause)
            one.park()
            if one.group is not None:
                one.group.together = aligned
