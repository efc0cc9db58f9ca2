"""Which pass over the loader each consumer that asked takes, and which passes are begun.

Pure, a part of `dispatch`.

- A consumer that wants a whole epoch is let into one that is still kept from its start, else waits for the next.
- Where there may be no next one, or a consumer would not wait for it, it begins at the batch that the slowest other one
  takes now. There may be none where an epoch of unknown length has more samples than the dataset, and none has ended.
- One that comes back to the middle of an epoch (after a restart of the producer, with a saved position, or after it
  was parked) is let in wherever the batches it lacks are still kept or yet to come. Where they are not, and the
  loader can give an epoch again, the pass is begun anew at its position: if no other consumer takes one, or while the
  producer is young, when all come back one by one; the others' places move over to the new pass.
- The ranks of a group are let in together, or refused together (`groups`).
- The lowest position goes first, so that all that come back meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.epochs import Epoch, Epochs
from tsnb.stream.decisions.groups import disagreement, lets_in
from tsnb.stream.decisions.members import Member
from tsnb.stream.decisions.pacing.contract import LOOKAHEAD
from tsnb.stream.decisions.pacing.drift import Drift
from tsnb.stream.decisions.phases import Cause, Phase
from tsnb.stream.protocol import messages as ms

__all__ = ["Admission"]


class Admission:
    """Lets consumers in.

    Args:
        epochs: The stream's.
        members: Its consumers.
        drift: How far apart they are.
        window: Batches that the loader may give in vain so that others can join from the start.
        stall_timeout_s: How long a returning consumer may wait for its place; and how long a producer is young.
        first_epoch: The number of the stream's first epoch, which is begun at once.

    Attributes:
        repeatable: Whether the loader can give an epoch again.
        samples: Of the dataset, where epochs have no length and could be endless; None: they are not.
        rounds: Rounds that may begin, where epochs are rounds; None: any number. One that has begun before always may.
        window: As given; may get smaller. 0 over a cluster: if a pass began before the place that a consumer came
            back to, the next machine would only know that it is any epoch from that number on.
    """

    def __init__(
        self,
        epochs: Epochs,
        members: Mapping[int, Member],
        drift: Drift,
        window: int,
        stall_timeout_s: float,
        first_epoch: int,
    ) -> None:
        self.repeatable = False
        self.samples: int | None = None
        self._epochs = epochs
        self._members = members
        self._drift = drift
        self.window = window
        self._stall_timeout_s = stall_timeout_s
        self._young_until_s: float | None = None
        self._next = self._fresh = first_epoch + 1  # `_fresh`: no pass of it has begun, nor of those after it
        self.rounds: int | None = None
        self._out: list[ev.Instruction] = []
        self._lost: Iterable[int] = ()
        self._now = 0.0
        self._blocked_s = 0.0
        epochs.start(first_epoch, primed=True)

    def admit(self, now: float, blocked_s: float, lost: Iterable[int] = ()) -> list[ev.Instruction]:
        """Let in all consumers that can be let in; begin and abandon passes.

        Args:
            now: Monotonic seconds.
            blocked_s: The stream's blocked clock.
            lost: Indices of batches that one which asks again was granted, and has not been given.
        """
        self._now, self._blocked_s, self._lost = now, blocked_s, lost
        self._out = []
        if self._young_until_s is None:
            self._young_until_s = now + self._stall_timeout_s
        self._turn_away()
        waiting = self._admit_all()
        if waiting:
            self._make_way(waiting)
        self._abandon(bool(waiting))
        if waiting and self._epochs.loading is None and self._begin(waiting):
            waiting = self._admit_all()
        for member in waiting:
            if member.phase is Phase.ASKED and self._cannot_wait(member):
                self._refuse(member)
        return self._out

    @property
    def next_epoch(self) -> int:
        """The number of the epoch that begins next, unless one is asked for."""
        return self._next

    def renumber(self, run: int, number: int) -> list[ev.Instruction]:
        """Note that the pass being loaded, still without a batch, is of another epoch than was wanted.

        Consumers that take any epoch are told the number again; those that wanted just that one cannot have it.
        """
        epoch = self._epochs.loading
        if epoch is None or epoch.run != run or epoch.number == number:
            return []
        self._out = []
        epoch.number = number
        self._next = number + 1
        for member in self._streaming_in(epoch):
            if member.phase is Phase.AWAY:
                continue  # refused with a rank of its group
            if member.asked.exact:
                self._refuse(member)
            else:
                member.renumber(number)
                self._tell(member, ms.EpochStarted(member.asked.number, number, 0))
        return self._out

    def withdraw(self, run: int) -> list[ev.Instruction]:
        """Give up the pass being loaded if no consumer takes it; if none did, the next one begins with it again."""
        epoch = self._epochs.loading
        if epoch is None or epoch.run != run or self._streaming_in(epoch):
            return []
        if not epoch.taken:
            self._next = epoch.number
            if epoch.number + 1 == self._fresh:
                self._fresh = epoch.number
        self._epochs.abandon()
        return [ev.Abandon(epoch.run)]

    def _turn_away(self) -> None:
        """Refuse groups whose ranks do not agree on where to begin."""
        for member in self._members.values():
            if member.phase is Phase.ASKED and (why := disagreement(member)):
                for one in (member, *member.mates):
                    one.enter(Cause.REFUSED)
                    one.times.turn_to(None, self._now)
                    self._tell(one, ms.Refused("group", why))

    def _admit_all(self) -> list[Member]:
        """Let in all consumers that can be let in; return those that still wait."""
        asked = [m for m in self._members.values() if m.phase is Phase.ASKED and lets_in(m)]
        return [member for member in asked if not self._admit(member)]

    def _admit(self, member: Member) -> bool:
        ask = member.asked
        first: list[int] = []
        if ask.exact:
            epoch, seq = self._giving(member), ask.seq
            if member.skips:
                first = self._left_of(member)
                epoch = epoch or self._epochs.passing(ask.epoch, seq, member.part, first)
            elif epoch is None and (apart := self._apart(member)) is not None:
                first, epoch = apart
        else:
            epoch, seq = self._whole(member), 0
            if epoch is None and (place := self._midway(member)) is not None:
                epoch, seq = place
        if epoch is None:
            return False
        epoch.taken = True
        if member.group is not None:
            member.group.together = False
        member.let_in(epoch, seq, first, self._now)
        self._drift.let_in(member)
        self._tell(member, ms.EpochStarted(ask.number, epoch.number, seq))
        if not member.granted:
            member.times.began_waiting(self._now, self._blocked_s)  # it asked because it wants a batch
        return True

    def _whole(self, member: Member) -> Epoch | None:
        """Return the pass that gives a consumer a whole epoch; None: it waits for the next one.

        One that has just come begins no further behind than the window and the late-join window reach. Others take
        their own next epoch while all of it is kept, if only since somebody reads it: a clone gets what its parent got.
        """
        ask, reach = member.asked, max(self._drift.window, self._epochs.band)
        if not ask.epoch and not member.begun:
            return self._epochs.joinable_from(0, member.part, self._epochs.end - reach)
        own = self._epochs.giving(ask.epoch, 0, member.part)
        if own is not None and own.failure is None:
            return own
        return self._epochs.joinable_from(ask.epoch, member.part)

    def _midway(self, member: Member) -> tuple[Epoch, int] | None:
        """Return the pass, and the batch of it, with which one begins that waits for no whole epoch; None: it waits.

        One that has left this very pass waits for the patience: the others may do so, too.
        """
        ask, epoch = member.asked, self._epochs.loading
        if epoch is None or ask.now or not (ask.here or self._may_be_endless(epoch)):
            return None
        there, since_s = self._streaming_in(epoch), member.times.wants_since_s
        if not there or not epoch.covers(member.part):
            return None
        if epoch.number < ask.epoch and (since_s is None or self._now - since_s < self._stall_timeout_s):
            return None
        at = max(epoch.start, min(m.taken for m in there))
        kept = all(map(self._epochs.has, range(at, epoch.end)))
        return epoch, epoch.seq(at if kept else epoch.end)

    def _may_be_endless(self, epoch: Epoch) -> bool:
        return self.samples is not None and epoch.rows > self.samples and not self._epochs.finite

    def _giving(self, member: Member) -> Epoch | None:
        """Return a pass that reaches a member's place, unless it would load many batches in vain on the way."""
        seq = member.asked.seq
        epoch = self._epochs.giving(member.asked.epoch, seq, member.part)
        if epoch is None:
            return None
        in_vain = epoch.index(seq) - epoch.end > self.window and not self._streaming_in(epoch)
        return None if in_vain and self.repeatable else epoch

    def _left_of(self, member: Member) -> list[int]:
        """Return what one that skips is granted first: what it was granted before, or the one that it is a clone of."""
        due = {g.at for m in self._members.values() for g in m.granted} | {*self._lost}
        return self._epochs.left_of(member.asked.epoch, member.asked.seq, member.part, due)

    def _apart(self, member: Member) -> tuple[list[int], Epoch] | None:
        """Return the pass that gives the rest of its epoch, and the indices of what it is granted before that.

        What it was granted, or the one that it is a clone of, may lie in a pass that was given up.
        """
        if not self.repeatable:
            return None  # another pass over the epoch has other batches
        ask = member.asked
        return self._epochs.stretch(ask.epoch, ask.seq, member.part, LOOKAHEAD - len(member.granted))

    def _make_way(self, waiting: list[Member]) -> None:
        """Take the streaming consumers out of the pass being loaded, if another comes back to a place before theirs."""
        loading = self._epochs.loading
        if loading is None or not self.repeatable or not self._young():
            return
        streaming = self._streaming_in(loading)
        asked = [
            (m.asked.epoch, m.asked.seq) for m in waiting if m.asked.exact and not m.skips and not m.resumed
        ]
        if not asked or not streaming:
            return
        # or what they take does not hold its samples
        others = any(m.asked.exact and not (m.skips or m.resumed or loading.covers(m.part)) for m in waiting)
        if others or min(asked) < min((loading.number, loading.seq(m.cursor)) for m in streaming):
            for member in streaming:
                member.move_over(loading)
                waiting.append(member)

    def _abandon(self, asked: bool) -> None:
        """Give up a pass that no consumer takes, if none can join it or one waits for another pass."""
        loading = self._epochs.loading
        if loading is None or self._streaming_in(loading) or (loading.joinable and not asked):
            return
        if self._is_kept(loading, asked):
            return
        self._epochs.abandon()
        self._out.append(ev.Abandon(loading.run))

    def _is_kept(self, epoch: Epoch, asked: bool) -> bool:
        """Whether a pass is kept for one that was paused in it: others wait for it only when it is to go on."""
        there = [m for m in self._members.values() if m.keeps_place]
        if asked:
            there = [m for m in there if m.resumed]
        return any(self._drift.kept_pass(m) is epoch for m in there)

    def _begin(self, waiting: list[Member]) -> bool:
        """Begin the pass that the lowest position needs; return whether there is one."""
        exact = [(m.asked.epoch, m.asked.seq) for m in waiting if m.asked.exact and self.repeatable]
        whole = [(max(self._next, m.asked.epoch), 0) for m in waiting if not m.asked.exact]
        places = [place for place in exact + whole if self.rounds != 0 or place[0] < self._fresh]
        if not places:
            return False
        number, seq = min(places)
        if number >= self._fresh:
            self._fresh = number + 1
            self.rounds = None if self.rounds is None else self.rounds - 1
        # within the window from an epoch's start: loaded from there, so that others can take all of it too
        self._epochs.start(number, seq if seq > self.window else 0, cover=self.wanted())
        resumed = any(m.resumed and (m.asked.epoch, m.asked.seq) == (number, seq) for m in waiting)
        # the others do not go back with one that was paused
        self._next = max(self._next, number + 1) if resumed else number + 1
        return True

    def wanted(self) -> int | None:
        """Return the samples that somebody takes who is attached, a bit each; None: all."""
        cover = 0
        for member in self._members.values():
            part = member.wanted
            if part is None:
                return None
            cover |= part
        return cover

    def _cannot_wait(self, member: Member) -> bool:
        """Whether what it wants will not come."""
        ask, loading = member.asked, self._epochs.loading
        if member.moved_over or not ask.exact:
            return ask.now
        if self.repeatable and loading is not None and ask.epoch == loading.number + 1:
            return False  # the others come to it
        if self.rounds is not None and not ask.seq and ask.epoch >= self._fresh:
            return False  # its round will come
        if self.repeatable and member.resumed:
            return False  # its place is given again when the others have come to the end of theirs
        waited_s = self._now - member.times.moved_s
        return not (self.repeatable and self._young()) or waited_s >= self._stall_timeout_s

    def _refuse(self, member: Member) -> None:
        """Tell it, and the ranks of its group that would go on without it."""
        newest = self._epochs.newest
        for one in (member, *member.mates):
            begun = one.phase is Phase.STREAMING and one.end is None
            if one is not member and not begun and not (one.phase is Phase.ASKED and one.asked.exact):
                continue  # it waits for the next epoch, or is between two
            if one.phase is Phase.STREAMING:
                one.leave_epoch(Cause.REFUSED, self._now, self._blocked_s)
            else:
                one.give_up(Cause.REFUSED, self._now, self._blocked_s)
            one.park(one.asked.exact or one is not member)
            published = newest.seq(newest.end)
            self._tell(one, ms.NotJoined(one.asked.number, newest.number, published, self._epochs.band))
        if member.group is not None:
            member.group.together = False

    def _tell(self, member: Member, message: ms.Message) -> None:
        self._out.append(ev.Tell(member.key, message))

    def _young(self) -> bool:
        return self._young_until_s is not None and self._now < self._young_until_s

    def _streaming_in(self, epoch: Epoch) -> list[Member]:
        return [m for m in self._members.values() if m.phase is Phase.STREAMING and m.run == epoch.run]
