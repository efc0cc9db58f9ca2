"""Which consumer may have which batch, and when the loader goes on: a producer's decisions, without any I/O.

`step(event, now)` takes one event and returns the instructions that follow from it. No socket, clock, thread
or tensor: the same code runs under the real producer and under thousands of simulated streams in the tests,
where `check()` verifies the invariants after every step.

The rules:

- Batches are *granted* one by one, `LOOKAHEAD` ahead of what a consumer has taken (`granting`). What is
  granted can be read until it is released; nothing is ever taken back from a live process, so nothing can change
  under it.
- The loader goes on while the fastest consumer is less than `window` batches ahead of the slowest one that is
  waited for (`drift`). Those that stream are waited for, and those between epochs until `stall_timeout_s` has passed.
- A consumer that stops, between two epochs or in one long step, holds no other back before it is `widest` batches
  behind: what was published meanwhile is kept for it and does not count as its lag.
- A batch is kept while a consumer reads it, one that is waited for has yet to take it, or the *late-join window* holds
  it: the first `band` batches of an epoch stay until the loader has gone past them, so that a consumer that asks by
  then still gets the whole epoch. One that comes later takes the next epoch.
- An epoch starts when a consumer asks for one and none can be joined from its start. The stream's first epoch
  starts unasked: its first batch proves the loader, and is ready when the first consumer comes. A consumer that comes
  back to the middle of an epoch is let in there where that is possible (`admission`).
- A consumer that stands still for `stall_timeout_s` while it holds others back is parked: it keeps the batches that it
  was granted, the others go on, and it is told. Consumers are also held back while they wait for the end of an epoch
  that no other goes on with; one that waits long for an epoch is told which consumers take the one before.
- One whose thread waits for another consumer is parked as soon as it holds others back: it cannot go on before.
- A consumer that is paused is taken off the window at once, as if it had been parked, and gets nothing until it goes
  on. The others do not wait for it; while they are no more than `widest` batches ahead, what it lacks is kept. When it
  goes on, it waits for its place as long as it takes where the loader can give it again.
- Who is let in further behind than the window has stopped, or is the clone of one that has: it holds no other back.
- No consumer waits for one that would rather skip: it gives up the batches that have gone by the time it comes.
- The ranks of one training job go on together, or not at all (`groups`).
- A pass prepares the samples that somebody takes who is attached when it begins. A consumer that comes later, and takes
  others, waits for the next epoch.
- Consumers that take turns are granted batches in their turn only, a window of batches each (`turns`).
- By weight, a consumer that has computed more than its share gets its next batch later (`balance`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.admission import Admission
from tsnb.stream.decisions.epochs import Epochs
from tsnb.stream.decisions.granting import Granting
from tsnb.stream.decisions.groups import Groups, enumerated
from tsnb.stream.decisions.members import Member
from tsnb.stream.decisions.pacing.balance import FairShares
from tsnb.stream.decisions.pacing.contract import LOOKAHEAD, Policies
from tsnb.stream.decisions.pacing.drift import Drift
from tsnb.stream.decisions.pacing.skipping import Skipping
from tsnb.stream.decisions.pacing.turns import Turns
from tsnb.stream.decisions.phases import Cause, Phase
from tsnb.stream.decisions.timekeeping import Times
from tsnb.stream.protocol import messages as ms

__all__ = ["HELD_S", "Dispatch"]

HELD_S = 3.0
"""A consumer that waits so long for an epoch is told which ones hold it: the end of any epoch may take less."""

_QUIET = (ms.Take, ms.Waiting, ms.Release, ms.Got)
"""What a consumer says in the middle of its epoch: three messages for each batch and consumer, so these steps look no
further than they must. `check` after each of them, in the tests, proves that nothing else follows."""


class Dispatch:
    """One stream's decisions.

    Args:
        window: Batches that the fastest consumer may be ahead of the slowest.
        band: Batches from an epoch's start that the late-join window keeps for latecomers.
        stall_timeout_s: Seconds that a consumer which stands still, or is between epochs, is waited for.
        first_epoch: The number of the first epoch.

    Attributes:
        drift: How far apart they are.
        groups: Those that are ranks of one job.
        policies: How they are paced beside that (`pacing`).
        balance: That of them which divides compute.
        wanted: What the loader should give next; None while there is nothing to do.
        due_s: When to step by a Tick at the latest (monotonic seconds); None: nothing is due. It changes once a step at
            most, from one truth to the next: other threads may read it.
    """

    def __init__(self, window: int, band: int, stall_timeout_s: float, first_epoch: int = 0) -> None:
        self.window = window
        self._widest = 0  # as `widen` said
        self.stall_timeout_s = stall_timeout_s
        self.members: dict[int, Member] = {}
        self.epochs = Epochs(band)
        self.policies = Policies()
        self.drift = Drift(window, self.members, self.epochs, self.policies)
        self.balance = FairShares(self.members)
        self.policies.all = (
            Skipping(self.epochs, self.drift),
            Turns(self.members, self.epochs, self.drift, stall_timeout_s),
            self.balance,
        )
        self.granting = Granting(self.epochs, self.drift, self.policies)
        self.groups = Groups()
        self.admission = Admission(
            self.epochs, self.members, self.drift, window, stall_timeout_s, first_epoch
        )
        self.due_s: float | None = None
        self._wider = 0  # the window that was, while they are still further apart than the new one
        self._kept = 0  # by `check`: batches kept after the step before
        self._lost: list[tuple[Member, int]] = []
        self._out: list[ev.Instruction] = []
        self._now = 0.0
        self.wanted: ev.Wanted | None = None
        self._note_wanted()
        self._steps: dict[type[Any], Callable[[Any], None]] = {
            ev.Left: self._left,
            ev.Announced: self._announced,
            ev.Paused: self._paused,
            ev.BatchLoaded: self._batch_loaded,
            ev.LoaderEnded: lambda event: self.epochs.finish(event.run, None),
            ev.LoaderRaised: lambda event: self.epochs.finish(event.run, (event.message, event.traceback)),
            ev.Renumbered: self._renumbered,
            ev.Covered: lambda event: self.epochs.widen(event.run, event.cover),
            ev.Withdrawn: self._withdrawn,
            ev.Tick: self._tick,
            ev.Balanced: self._balanced,
            ev.RoundDue: self._round_due,
            ev.Contended: lambda event: self.balance.note_contended(event.contended),
        }
        self._heard: dict[type[Any], Callable[[int, Any], None]] = {
            ms.Hello: self._joined,
            ms.Wants: self._wants,
            ms.Ask: self._asked,
            ms.Take: self._took,
            ms.Waiting: self._waiting,
            ms.Release: self._released,
            ms.Leave: self._left_epoch,
            ms.Got: self._got,
            ms.Rest: self._rested,
            ms.Bye: self._detached,
        }

    @property
    def idle(self) -> bool:
        """Whether no consumer takes an epoch, waits for one, or is expected back for the next."""
        return all(m.phase in (Phase.JOINING, Phase.AWAY) for m in self.members.values())

    def step(self, event: ev.Event, now: float) -> list[ev.Instruction]:
        """Take one event.

        Args:
            event: What happened.
            now: Monotonic seconds; never earlier than at the step before.

        Returns:
            What to do, in this order.
        """
        granting = self.granting
        self._now = granting.now = now
        self._out = granting.out = []
        granting.places_changed = False
        kind: type[Any] = type(event.message) if isinstance(event, ev.Heard) else type(event)
        quiet = kind in _QUIET or self._is_next(event)
        if not quiet:
            self.drift.unsettled()
        if isinstance(event, ev.Heard):
            self._heard[kind](*event)
        else:
            self._steps[kind](event)
        if granting.places_changed or not quiet:
            self._settle()
            if isinstance(event, ev.Tick):
                self._tell_held()
        elif kind is ev.BatchLoaded:
            self._grant_next()
        elif self.policies.followed and isinstance(event, ev.Heard):
            self._grant_withheld(event.member)
        due_s = self.drift.due_s
        for policy in self.policies.followed:
            if (next_s := policy.due_s) is not None:
                due_s = next_s if due_s is None else min(due_s, next_s)
        self.due_s = due_s
        return self._out

    # -- what consumers say ------------------------------------------------------------------------------

    def _joined(self, key: int, hello: ms.Hello) -> None:
        skips = hello.on_lag == "skip"
        paused = hello.paused and hello.world_size == 1
        times = Times(self._now, joined_s=self._now)
        if paused:
            times.pause(self._now)
        part = 0 if hello.part else None
        member = Member(key, hello.shown_name, skips, part, hello.rank, hello.back, paused, times)
        self.members[key] = member
        for policy in self.policies.all:
            policy.joined(member, hello)
        self._keep_reach()
        if hello.world_size == 1:
            return
        self.groups.join(member, hello)
        group = member.group
        assert group is not None
        on = any(mate.paused for mate in member.mates) or (hello.paused and not group.steered)
        if on:  # the one that comes back first knows it, or one that comes later does
            self._pause(member, ev.Paused((key,), True))
        elif hello.paused:
            self._out.append(ev.Tell(key, ms.Steered("go on")))

    def _wants(self, key: int, wants: ms.Wants) -> None:
        self.members[key].add_part(wants.mask, wants.offset)

    def _announced(self, event: ev.Announced) -> None:
        self.members[event.member].stand_for(event.part, event.expects)

    def _left(self, event: ev.Left) -> None:
        member = self.members.pop(event.member, None)
        if member is None:
            return
        for policy in self.policies.followed:
            policy.left(event.member)
        for index in member.leases.values():
            self.epochs.unpin(index)
        if member.group is not None:
            for mate in self.groups.leave(member, self._out, died=True):
                self._stop(mate)

    def _detached(self, key: int, _bye: ms.Bye) -> None:
        member = self.members[key]
        self._leave_epoch(member)
        self._rest(member)
        if member.group is not None:
            self.groups.leave(member, self._out, died=False)

    def _stop(self, member: Member) -> None:
        """Stop waiting for a consumer: a rank of its group died."""
        if member.phase is Phase.STREAMING:
            self.granting.end_epoch(member, Cause.RANK_GONE)
        elif member.phase is Phase.ASKED:
            member.give_up(Cause.RANK_GONE, self._now, self.granting.blocked_s)

    def _asked(self, key: int, ask: ms.Ask) -> None:
        member = self.members[key]
        if member.phase is Phase.STREAMING:
            self.granting.end_epoch(member, Cause.ASKS)
        else:  # paused: it has yet to hear of it, or, as a rank, asks on: it is let in when its group goes on
            member.enter(Cause.ASKS_PAUSED if member.paused else Cause.ASKS)
        for policy in self.policies.followed:
            policy.asked(member)
        member.ask(ask, self._now)
        self._lost = [(member, lease) for lease in member.leases if lease not in ask.held]

    def _took(self, key: int, take: ms.Take) -> None:
        member = self.members[key]
        if not member.granted:
            return  # it was never granted this: a confused peer, of no effect on the others
        member.times.took(self._now, self.drift.blocked_s(self._now))
        for policy in self.policies.followed:
            policy.took(member, self._now)
        before = member.taken, member.cursor
        member.take(take.rows)
        if member.phase is not Phase.STREAMING:
            if member.keeps_place:
                self._collect()  # its place has moved on
            return
        if member.end is not None and not member.granted:
            self.granting.end_epoch(member, member.end)
            member.compute_last()
            return
        self.granting.grant(member)
        self.drift.moved(member, *before)
        if member.cursor != before[1]:
            self._collect()
        self._note_wanted()

    def _waiting(self, key: int, _waiting: ms.Waiting) -> None:
        member = self.members[key]
        if not member.wait(self._now, self.drift.blocked_s(self._now)):
            return
        for policy in self.policies.followed:
            if policy.waits(member):
                self.granting.places_changed = True

    def _released(self, key: int, release: ms.Release) -> None:
        self._let_go(self.members[key], release.lease)
        self._out += map(ev.FreeSlot, self.epochs.collect_unpinned())

    def _let_go(self, member: Member, lease: int) -> None:
        index = member.leases.pop(lease, None)
        if index is not None:
            self.epochs.unpin(index)

    def _got(self, key: int, got: ms.Got) -> None:
        self.members[key].settle(got.rows)

    def _left_epoch(self, key: int, _leave: ms.Leave) -> None:
        self._leave_epoch(self.members[key])
        self.members[key].withdraw()

    def _leave_epoch(self, member: Member) -> None:
        if member.phase is Phase.STREAMING:
            self.granting.end_epoch(member, Cause.LEFT)
        elif member.phase is Phase.ASKED:
            member.give_up(Cause.GAVE_UP, self._now, self.granting.blocked_s)
        else:
            member.leave_loop(self._now)

    def _rested(self, key: int, rest: ms.Rest) -> None:
        member = self.members[key]
        member.stand(rest.stands)
        if not rest.stands:
            self._rest(member)
        elif member.stands:  # whoever waits for it waits in vain from now on, and not from the next tick
            self._park(math.inf)

    def _rest(self, member: Member) -> None:
        if member.phase is Phase.BETWEEN:
            member.enter(Cause.RESTS)

    def _paused(self, event: ev.Paused) -> None:
        for key in event.members:
            member = self.members[key]
            if member.group is not None:
                member.group.steered = True
            self._pause(member, event)

    def _pause(self, member: Member, event: ev.Paused) -> None:
        ranks = [m for m in (member, *member.mates) if m.paused != event.on]
        streaming = next((m for m in ranks if m.phase is Phase.STREAMING), None)
        inside = [
            m for m in ranks if m.phase in (Phase.STREAMING, Phase.BETWEEN)
        ]  # it may not have heard of the end
        if event.on and streaming is not None:
            # ranks are told that they are parked, after the batch that the furthest of them has been granted
            self.granting.park(streaming, None if member.group is None else 0.0, Cause.PAUSED)
        for one in ranks:
            if event.on:
                one.pause(one in inside, self._now, self.granting.blocked_s)
            else:
                one.go_on(self._now)
            if one.group is not None:
                one.group.together = False  # one may have asked, and the others have a batch of that step
            self._out.append(ev.Tell(one.key, ms.Steered("pause" if event.on else "go on")))

    # -- events from the loader and the clock ------------------------------------------------------------

    def _batch_loaded(self, event: ev.BatchLoaded) -> None:
        if not self.epochs.publish(event.run, event.batch):
            self._out.append(ev.FreeSlot(event.batch.slot))  # of an epoch that was abandoned meanwhile

    def _is_next(self, event: ev.Event) -> bool:
        """Whether it is one more batch of an epoch that is taken, and nothing else has to be looked at."""
        if not isinstance(event, ev.BatchLoaded) or self.policies.followed:
            return False
        loading = self.epochs.loading
        return loading is not None and loading.run == event.run and self.drift.goes_straight_on(event.run)

    def _grant_next(self) -> None:
        """Grant the batch that has come to those that may have it now."""
        for member in self.members.values():
            if member.phase is Phase.STREAMING:
                self._grant_more(member)
        self._collect()
        self._note_wanted()

    def _grant_more(self, member: Member) -> bool:
        """Grant one that took nothing just now what it may have; return whether that was any."""
        taken, cursor = member.taken, member.cursor
        self.granting.grant(member)
        self.drift.moved(member, taken, cursor, took=False)
        return member.cursor != cursor

    def _renumbered(self, event: ev.Renumbered) -> None:
        self._out += self.admission.renumber(event.run, event.epoch)

    def _withdrawn(self, event: ev.Withdrawn) -> None:
        self._out += self.admission.withdraw(event.run)

    def _tick(self, event: ev.Tick) -> None:
        for member in self.members.values():
            if event.stopped_s:
                member.times.forgive(event.stopped_s, self._now)
            if member.phase is Phase.BETWEEN and self._now - member.times.moved_s >= self.stall_timeout_s:
                member.enter(Cause.OVERDUE)
            if member.resumed and self._now - member.times.moved_s >= self.stall_timeout_s:
                member.lose_place()  # its step takes long: the others do not wait for it
        for policy in self.policies.followed:
            policy.tick(self._now)
        self._park(self.stall_timeout_s)

    def _park(self, stall_timeout_s: float) -> None:
        """Let nobody wait for consumers that have stood still for so long, or for which one waits in vain."""
        for member, stood_still_s, in_vain in self.drift.standing_still(self._now):
            if in_vain or stood_still_s >= stall_timeout_s:
                self.granting.park(member, stood_still_s)

    def _tell_held(self) -> None:
        """Tell consumers that have waited long for an epoch which ones hold it; again when those stand still."""
        loading, holders, now = self.epochs.loading, self.drift.holders, self._now
        if loading is None or not holders:
            return
        still_s = self.drift.stood_still_s(now)
        stage = 1 + (still_s >= max(HELD_S, self.stall_timeout_s / 2))
        names = enumerated([m.name for m in holders])
        published = loading.seq(loading.end)
        for member in self.drift.awaiting_epoch():
            since_s = member.times.wants_since_s
            if since_s is not None and now - since_s >= HELD_S and member.told_held < stage:
                member.tell_held(stage)
                told = ms.HeldUp(
                    member.asked.number, loading.number, published, names, still_s, self.stall_timeout_s
                )
                self._out.append(ev.Tell(member.key, told))

    def _balanced(self, event: ev.Balanced) -> None:
        self._keep_within(event.window)
        self.balance.change(event.pacing, event.weights, self._now)
        self.policies.note()

    def note_repeatable(self, repeatable: bool) -> None:
        """Whether the loader can give an epoch again in the same order."""
        self.admission.repeatable = repeatable

    def note_dataset(self, samples: int | None) -> None:
        """Note the samples of a dataset whose epochs have no length; None: they have one, or there is no dataset."""
        self.admission.samples = samples

    def never_load_in_vain(self) -> None:
        """Begin a pass exactly at the place that a consumer came back to, as over a cluster: see `Admission.window`."""
        self.admission.window = 0

    def keep_band(self, band: int) -> None:
        """Keep so many batches from an epoch's start for latecomers from now on."""
        self.epochs.band = band

    @property
    def lagging(self) -> int:
        """Batches that are kept for the one furthest behind, also one that was paused."""
        return self.epochs.end - self.drift.needed_from()

    def widen(self, widest: int) -> None:
        """Let one that stops be so many batches behind from now on, and never less than the window."""
        self._widest = widest
        self._keep_within(self.window)

    def _keep_within(self, window: int) -> None:
        self._wider = max(self._wider, self.drift.widest)
        self.window = window
        self.epochs.least_band = self.policies.reach
        self.drift.window = max(window, self.epochs.least_band)
        self.drift.widest = max(self._widest, self.drift.window)

    def _keep_reach(self) -> None:
        """Go by the policies that are followed now, with a window as wide as they need it."""
        self.policies.note()
        if self.epochs.least_band != self.policies.reach:
            self._keep_within(self.window)

    # -- what follows from every event -------------------------------------------------------------------

    def _round_due(self, event: ev.RoundDue) -> None:
        self.admission.rounds = event.rounds

    def _settle(self) -> None:
        """Let in consumers that asked, grant all batches that can be granted, free those that are no longer needed."""
        self.drift.unsettled()
        lost = [m.leases[lease] for m, lease in self._lost if lease in m.leases]
        self._out += self.admission.admit(self._now, self.drift.blocked_s(self._now), lost)
        while self._lost:  # not before a consumer that comes back for that very batch was let in
            self._let_go(*self._lost.pop())
        for _ in range(max([policy.rounds for policy in self.policies.followed], default=1)):
            for policy in self.policies.followed:
                policy.settle(self._now)
            self._keep_reach()
            for member in self.members.values():
                if member.phase is Phase.STREAMING:
                    self.granting.grant(member)
        self.drift.settled()
        self._collect()
        self._note_wanted()

    def _grant_withheld(self, actor: int) -> None:
        """Grant the batches that are withheld no longer, since a consumer took one or waits for one."""
        for policy in self.policies.followed:
            for key in policy.to_look_at(actor, self._now):
                if self._grant_more(self.members[key]):
                    self._collect()
                    self._note_wanted()

    def _collect(self) -> None:
        """Free the batches that are no longer needed."""
        self._out += map(ev.FreeSlot, self.epochs.collect(self.drift.needed_from(), self.drift.in_use()))

    def _note_wanted(self) -> None:
        """Tell the loader what to do."""
        loading = self.epochs.loading
        streaming = loading is not None and self.drift.takes(loading.run)
        full = self.drift.note(streaming, self._now)
        proof = loading is not None and loading.primed and not loading.count
        goes_on = proof or (streaming and not full)
        if loading is None or not goes_on:
            self.wanted = None
            return
        wanted = loading.run, loading.number, loading.first, loading.cover
        if self.wanted != wanted:
            self.wanted = ev.Wanted(*wanted)

    # -- invariants --------------------------------------------------------------------------------------

    def check(self) -> None:
        """Verify what must hold after every step (tests only).

        Raises:
            AssertionError: An invariant is broken.
        """
        pins: dict[int, int] = {}
        for member in self.members.values():
            assert member.parked or len(member.granted) <= LOOKAHEAD, member
            assert not member.paused or member.phase in (Phase.JOINING, Phase.AWAY), member
            seqs = [grant.seq for grant in member.granted]
            assert member.skips or seqs == list(range(member.position, member.position + len(seqs))), member
            for index in member.leases.values():
                pins[index] = pins.get(index, 0) + 1
        self.epochs.check(pins, self.drift.needed_from())
        self.drift.check()
        for policy in self.policies.all:
            policy.check()
        far = self.drift.ahead > self.drift.widest
        self._wider = self._wider if far else 0
        # the sum in docs/architecture.md: beside what consumers hold, what is kept for those that are to have it
        span = self.epochs.span(self.drift.needed_from())
        most = max(self.drift.widest, self._wider, self.epochs.band) + 1
        assert span <= most or far, f"{span} batches kept for those that are to have them, and not {most}"
        # one that came back is let in where only others' leases kept batches, which may go before it: less is kept then
        bound = max(most + len(pins), self._kept if far else 0)
        assert self.epochs.kept <= bound, f"{self.epochs.kept} batches kept, and not {bound}"
        self._kept = self.epochs.kept
