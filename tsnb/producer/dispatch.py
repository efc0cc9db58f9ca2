"""Who may have which batch, and when the loader goes on: the decisions of a producer, without any I/O.

`step(event, now)` takes one event and returns the instructions that follow from it. No socket, clock, thread
or tensor: the same code runs under the real producer and under thousands of simulated streams in the tests,
where `check()` verifies the invariants after every step.

The rules:

- Batches are *granted* one by one, `LOOKAHEAD` ahead of what a consumer has taken. What is granted can be
  read until it is released; nothing is ever taken back from a live process, so nothing can change under it.
- The loader goes on while the fastest consumer is less than `window` batches ahead of the slowest one that is
  waited for. Waited for are those that stream, and those between epochs until `patience_s` has passed.
- A batch is kept while somebody reads it, somebody waited for has yet to take it, or the *rubber band* holds
  it: the first `band` batches of an epoch stay until the loader has gone past them, so that whoever asks by
  then still gets the whole epoch. Whoever comes later takes the next one.
- An epoch starts when somebody asks for one and none can be joined from its start. The stream's first epoch
  starts by itself: its first batch proves the loader, and is ready when the first consumer comes.
- A consumer that stands still for `patience_s` while others are held back by it is parked: it keeps what it
  was granted, the others go on, and it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tsnb.producer import events as ev
from tsnb.producer.epochs import Epoch, Epochs
from tsnb.producer.roster import Member, Phase

__all__ = ["LOOKAHEAD", "Dispatch"]

LOOKAHEAD = 2
"""Batches granted beyond what is taken: two hide the round trip of a grant; each costs one slot a consumer."""


class Dispatch:
    """One stream's decisions.

    Args:
        window: Batches that the fastest consumer may be ahead of the slowest.
        band: Batches from an epoch's start that the rubber band keeps for latecomers.
        patience_s: Seconds that a consumer which stands still, or is between epochs, is waited for.
    """

    def __init__(self, window: int, band: int, patience_s: float) -> None:
        self.window = window
        self.patience_s = patience_s
        self.members: dict[int, Member] = {}
        self.epochs = Epochs(band)
        self._leases = 0
        self._blocked_since: float | None = None
        self._blocked_s = 0.0
        self._out: list[ev.Instruction] = []
        self._now = 0.0
        self.epochs.start(primed=True)
        self._steps: dict[type[Any], Callable[[Any], None]] = {
            ev.Joined: self._joined,
            ev.Left: self._left,
            ev.Asked: self._asked,
            ev.Took: self._took,
            ev.WaitingForBatch: self._waiting,
            ev.Released: self._released,
            ev.LeftEpoch: self._left_epoch,
            ev.Rested: self._rested,
            ev.BatchLoaded: self._batch_loaded,
            ev.LoaderEnded: self._loader_ended,
            ev.LoaderRaised: self._loader_raised,
            ev.Tick: self._tick,
        }

    # -- what the loader should do -----------------------------------------------------------------------

    @property
    def wanted(self) -> int | None:
        """The epoch whose next batch should be loaded now; None while there is nothing to do."""
        loading = self.epochs.loading
        if loading is None:
            return None
        if loading.primed and not loading.count:
            return loading.number
        if not self._streaming_in(loading.number):
            return None
        return loading.number if self.ahead < self.window else None

    @property
    def ahead(self) -> int:
        """Batches between the newest one and the slowest consumer that is waited for."""
        return self.epochs.end - self._slowest_taken()

    def blocked_s(self, now: float) -> float:
        """Seconds, in all, that the loader stood still because the window was full."""
        return self._blocked_s + (now - self._blocked_since if self._blocked_since is not None else 0.0)

    def pace_setters(self) -> list[Member]:
        """Return the consumers that fill the window; empty while it is not full."""
        if self._blocked_since is None or self.ahead < self.window:
            return []
        slowest = self._slowest_taken()
        return [m for m in self._awaited() if self._position(m) == slowest]

    def step(self, event: ev.Event, now: float) -> list[ev.Instruction]:
        """Take one event.

        Args:
            event: What happened.
            now: Monotonic seconds; never earlier than at the step before.

        Returns:
            What to do, in this order.
        """
        self._now = now
        self._out = []
        self._steps[type(event)](event)
        self._settle()
        return self._out

    # -- events from consumers ---------------------------------------------------------------------------

    def _joined(self, event: ev.Joined) -> None:
        self.members[event.member] = Member(event.member, event.name, moved_s=self._now)

    def _left(self, event: ev.Left) -> None:
        member = self.members.pop(event.member, None)
        for index in member.leases.values() if member else ():
            self.epochs.unpin(index)

    def _asked(self, event: ev.Asked) -> None:
        member = self.members[event.member]
        if member.phase is Phase.STREAMING:
            self._end_epoch(member, Phase.ASKED)
        member.last_step = False
        member.phase = Phase.ASKED
        member.ask = event.ask
        member.parked = False
        member.moved_s = self._now

    def _took(self, event: ev.Took) -> None:
        member = self.members[event.member]
        if member.taken >= member.cursor:
            return  # it was never granted this: a confused peer, of no effect on the others
        member.took(self._now, self.blocked_s(self._now))
        member.taken += 1
        member.batches += 1
        member.samples += member.rows.popleft()
        if member.phase is Phase.STREAMING and member.told_end and member.taken == member.cursor:
            self._end_epoch(member, member.then)
            member.last_step = True

    def _waiting(self, event: ev.WaitingForBatch) -> None:
        member = self.members[event.member]
        if member.phase is Phase.STREAMING and member.taken == member.cursor:
            member.began_waiting(self._now, self.blocked_s(self._now))

    def _released(self, event: ev.Released) -> None:
        index = self.members[event.member].leases.pop(event.lease, None)
        if index is not None:
            self.epochs.unpin(index)

    def _left_epoch(self, event: ev.LeftEpoch) -> None:
        member = self.members[event.member]
        if member.phase is Phase.STREAMING:
            self._end_epoch(member, Phase.BETWEEN)
        elif member.phase is Phase.ASKED:
            member.phase = Phase.AWAY  # it waits no more: an epoch granted to it would hold the others
        elif member.last_step:
            member.computing_s += self._now - member.moved_s
            member.moved_s = self._now
        member.last_step = False

    def _rested(self, event: ev.Rested) -> None:
        member = self.members[event.member]
        if member.phase is Phase.BETWEEN:
            member.phase = Phase.AWAY

    def _end_epoch(self, member: Member, phase: Phase) -> None:
        """Take the member out of its epoch; what it was granted and did not take is its own to release."""
        if member.waiting_since_s is not None:
            member.stopped_waiting(self._now, self.blocked_s(self._now))
        elif phase is not Phase.AWAY:  # one that is parked stood still, it did not compute
            member.computing_s += self._now - member.moved_s
        member.phase = phase
        member.moved_s = self._now

    # -- events from the loader and the clock ------------------------------------------------------------

    def _batch_loaded(self, event: ev.BatchLoaded) -> None:
        if not self.epochs.publish(event.epoch, event.batch):
            self._out.append(ev.FreeSlot(event.batch.slot))  # of an epoch that was abandoned meanwhile

    def _loader_ended(self, event: ev.LoaderEnded) -> None:
        self.epochs.finish(event.epoch, None)

    def _loader_raised(self, event: ev.LoaderRaised) -> None:
        self.epochs.finish(event.epoch, (event.message, event.traceback))

    def _tick(self, _event: ev.Tick) -> None:
        for member in self.members.values():
            if member.phase is Phase.BETWEEN and self._now - member.moved_s >= self.patience_s:
                member.phase = Phase.AWAY
        for member in self.pace_setters():
            if member.phase is not Phase.STREAMING or member.cursor == member.taken:
                continue  # it is between epochs, or has nothing to take: not its fault
            empty = (m for m in self.members.values() if m is not member and m.cursor == m.taken)
            waiting = [m.waiting_since_s for m in empty if m.waiting_since_s is not None]
            if not waiting:
                continue  # it may take its time: nobody is held up by it
            stood_still_s = self._now - max(member.moved_s, member.offered_s, min(waiting))
            if stood_still_s >= self.patience_s:
                self._out.append(ev.SendParked(member.key, member.epoch, self._seq(member), stood_still_s))
                self._end_epoch(member, Phase.AWAY)
                member.parked = True

    # -- what follows from every event -------------------------------------------------------------------

    def _settle(self) -> None:
        """Start, join and abandon epochs, grant what can be granted, free what nobody needs."""
        self._join_those_who_asked()
        asked = any(m.phase is Phase.ASKED for m in self.members.values())
        self._abandon(asked)
        if asked and self.epochs.loading is None:
            self.epochs.start()
            self._join_those_who_asked()
        for member in self.members.values():
            if member.phase is Phase.STREAMING:
                self._grant(member)
        for slot in self.epochs.collect(self._needed_from()):
            self._out.append(ev.FreeSlot(slot))
        self._note_blocked()

    def _join_those_who_asked(self) -> None:
        """Let everybody in who asked and can have an epoch from its start."""
        for member in self.members.values():
            if member.phase is not Phase.ASKED:
                continue
            epoch = self.epochs.joinable_after(member.epoch)
            if epoch is None:
                continue
            member.phase = Phase.STREAMING
            member.epoch = epoch.number
            member.start = member.cursor = member.taken = epoch.start
            member.told_end = False
            member.rows.clear()
            member.moved_s = self._now
            self._out.append(ev.SendEpochStarted(member.key, member.ask, epoch.number))
            member.began_waiting(self._now, self.blocked_s(self._now))  # it asked because it wants a batch

    def _grant(self, member: Member) -> None:
        if member.told_end:
            return
        epoch = self.epochs.get(member.epoch)
        if member.cursor == member.taken:
            member.offered_s = self._now
        while member.cursor < epoch.end and member.cursor - member.taken < LOOKAHEAD:
            self._leases = (self._leases + 1) & 0xFFFFFFFF
            member.leases[self._leases] = member.cursor
            batch = self.epochs.pin(member.cursor)
            member.rows.append(batch.rows)
            seq = member.cursor - epoch.start
            self._out.append(ev.Granted(member.key, self._leases, epoch.number, seq, batch))
            member.cursor += 1
        if epoch.finished and member.cursor == epoch.end:
            self._tell_end(member, epoch)

    def _tell_end(self, member: Member, epoch: Epoch) -> None:
        member.told_end = True
        member.then = Phase.BETWEEN if epoch.failure is None else Phase.AWAY
        if epoch.failure is None:
            self._out.append(ev.SendEpochEnded(member.key, epoch.number, epoch.count))
        else:
            self._out.append(ev.SendFailed(member.key, epoch.number, *epoch.failure))
        if member.taken == member.cursor:
            self._end_epoch(member, member.then)

    def _abandon(self, asked: bool) -> None:
        """Give up an epoch that nobody takes, if nobody can join it or somebody waits for the next."""
        loading = self.epochs.loading
        if loading is None or self._streaming_in(loading.number) or (loading.joinable and not asked):
            return
        self.epochs.abandon()
        self._out.append(ev.Abandon(loading.number))

    def _note_blocked(self) -> None:
        """Keep the blocked clock: it runs while only the window keeps the loader from going on."""
        loading = self.epochs.loading
        blocked = loading is not None and self._streaming_in(loading.number) and self.ahead >= self.window
        if blocked and self._blocked_since is None:
            self._blocked_since = self._now
        elif not blocked and self._blocked_since is not None:
            self._blocked_s += self._now - self._blocked_since
            self._blocked_since = None

    # -- who is where ------------------------------------------------------------------------------------

    def _awaited(self) -> list[Member]:
        return [m for m in self.members.values() if m.phase in (Phase.STREAMING, Phase.BETWEEN)]

    def _position(self, member: Member) -> int:
        """Return the index of the next batch this member will take; past the end while it expects none."""
        if member.phase is Phase.STREAMING:
            return member.taken
        expected = self.epochs.joinable_after(member.epoch)
        return self.epochs.end if expected is None else expected.start

    def _slowest_taken(self) -> int:
        return min((self._position(m) for m in self._awaited()), default=self.epochs.end)

    def _needed_from(self) -> int:
        """Return the index from which batches are kept for those who have yet to be granted them."""
        return min(
            (m.cursor if m.phase is Phase.STREAMING else self._position(m) for m in self._awaited()),
            default=self.epochs.end,
        )

    def _streaming_in(self, epoch: int) -> bool:
        return any(m.phase is Phase.STREAMING and m.epoch == epoch for m in self.members.values())

    def _seq(self, member: Member) -> int:
        return member.cursor - member.start

    # -- invariants --------------------------------------------------------------------------------------

    def check(self) -> None:
        """Verify what must hold after every step (tests only).

        Raises:
            AssertionError: An invariant is broken.
        """
        pins: dict[int, int] = {}
        for member in self.members.values():
            assert member.taken <= member.cursor <= self.epochs.end, member
            assert member.cursor - member.taken <= LOOKAHEAD, member
            for index in member.leases.values():
                pins[index] = pins.get(index, 0) + 1
        self.epochs.check(pins, self._needed_from())
        bound = max(self.window, self.epochs.band) + 1 + sum(len(m.leases) for m in self.members.values())
        assert self.epochs.kept <= bound, f"{self.epochs.kept} batches kept, {bound} can be needed"
