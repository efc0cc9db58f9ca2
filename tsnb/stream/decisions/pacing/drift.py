"""How far apart a stream's consumers are: the window's bounds, the batches to keep, the consumers waited for.

Pure, a part of `dispatch`. Positions are indices, counted over all batches the stream ever published.

A consumer *stops* while it is between two epochs, or in a step that takes far longer than its others: it validates,
saves a checkpoint or compiles. The others do not wait for it then. What they get ahead meanwhile is its *stood*, and
does not count as its lag; all of it is kept for it. So two bounds hold at once:

    lag - stood < window     consumers whose models differ steadily keep in step
    lag < widest             what is kept for one that stops fits into memory

As it catches up, its `stood` gets smaller, and never grows again but by stopping.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from tsnb.stream.decisions.epochs import Epoch, Epochs
from tsnb.stream.decisions.groups import waits_for_own
from tsnb.stream.decisions.members import Member
from tsnb.stream.decisions.pacing.contract import Policies
from tsnb.stream.decisions.pacing.positions import Positions
from tsnb.stream.decisions.phases import Phase

__all__ = ["Drift"]

STOPS_STEPS = 5.0
"""A consumer stops in a step that takes so many times as long as its steps do."""
STOPS_S = 0.05
"""And at least so long: shorter steps vary more."""


class Drift:
    """The distance between the newest batch and the slowest consumer that is waited for.

    Args:
        window: Batches that it may be at most, without those that were published while the consumer stopped.
        members: The stream's consumers.
        epochs: Its epochs.
        policies: How else they are paced: whom the loader waits for.

    Attributes:
        widest: Batches that it may be at most, with those.
        due_s: When one that holds the others counts as stopped (monotonic seconds); None: none may.
    """

    def __init__(
        self, window: int, members: Mapping[int, Member], epochs: Epochs, policies: Policies
    ) -> None:
        self.window = self.widest = window
        self.due_s: float | None = None
        self._members = members
        self._epochs = epochs
        self._policies = policies
        self._blocked_since: float | None = None
        self._blocked_s = 0.0
        self._settled = False
        self._remembered: Positions | None = None
        self._driver: Member | None = None  # the one waited for where all would rather skip
        self._at_work: Member | None = None  # filled the window at the last look, and did not stop

    def unsettled(self) -> None:
        """Look at all consumers at each question from now on: any of them may change."""
        self._settled, self._remembered, self._at_work = False, None, None

    def settled(self) -> None:
        """Remember where all consumers are from now on: until `unsettled`, only `moved` changes that."""
        self._settled = True
        for member in self._members.values():
            if member.stood:
                member.stood = max(0, min(member.stood, self._epochs.end - self.position(member)))

    def goes_straight_on(self, run: int) -> bool:
        """Whether one more batch of a pass does nothing but give its consumers more to take.

        Then nobody waits to be let in. Since `settled`, consumers only went on inside their epochs.
        """
        there = self._remembered if self._settled else None
        return there is not None and run in there.streaming and not there.asked

    def moved(self, member: Member, taken: int, cursor: int, *, took: bool = True) -> None:
        """Note that a consumer went on inside its epoch.

        Args:
            member: Which.
            taken: Its `taken` before.
            cursor: Its `cursor` before.
            took: Whether it took a batch.
        """
        stood, now_taken = member.stood, member.taken
        member.stood = min(stood, max(0, self._epochs.end - now_taken))
        driver = self._driver
        if self._remembered is not None and (not member.skips or member is driver):
            self._remembered.moved(member, taken, cursor, stood)
        elif driver is not None and now_taken > driver.taken:
            self._remembered = None  # another one drives
        if took:
            member.lag_then = max(
                0, ((self._remembered or self._found()).front or 0) - now_taken - member.stood
            )

    def let_in(self, member: Member) -> None:
        """Note that a consumer begins an epoch: whatever memory kept for it counts as published while it stopped.

        Or while the one did that it is a clone of. So nobody waits for it.
        """
        behind = max(0, self._epochs.end - member.cursor)
        member.stood = max(min(member.stood, behind), behind - self.window + 1)

    def _found(self) -> Positions:
        """Look at all consumers. Called where nothing is remembered, which is asked for several times a batch."""
        found = Positions(self._members.values(), self._awaited())
        if self._settled:
            self._remembered = found
        return found

    @property
    def ahead(self) -> int:
        """Batches between the newest one and the slowest consumer that is waited for."""
        positions, end = (self._remembered or self._found()), self._epochs.end
        lowest = end if positions.taken.lowest is None else positions.taken.lowest
        if not positions.others:
            return end - lowest
        places = self._expected(positions.others)
        if positions.taken.lowest is not None:
            places.append(lowest)
        return end - min(places, default=end)

    @property
    def fill(self) -> int:
        """Batches of the window that are in use: what was published while a consumer stopped does not count."""
        return min(self.window, self._epochs.end - self._slowest_counted())

    def note(self, streaming: bool, now: float) -> bool:
        """Keep the blocked clock: it runs while only the window keeps the loader from going on.

        Args:
            streaming: Whether a consumer takes the epoch that is being loaded.
            now: Monotonic seconds.

        Returns:
            Whether it does so now.
        """
        self.due_s = None
        blocked = streaming and self._is_full(now)
        if blocked and self._blocked_since is None:
            self._blocked_since = now
        elif not blocked and self._blocked_since is not None:
            self._blocked_s += now - self._blocked_since
            self._blocked_since = None
        return blocked

    def blocked_s(self, now: float) -> float:
        """Seconds, in all, that the loader stood still because the window was full."""
        return self._blocked_s + (now - self._blocked_since if self._blocked_since is not None else 0.0)

    def pace_setters(self) -> list[Member]:
        """Return the consumers that fill the window, but those that wait for their turn; empty while it is not full."""
        if self._blocked_since is None:
            return []
        return [m for m in self._filling() if m.times.queued_since_s is None]

    def held_by_line(self) -> bool:
        """Whether the window is full, and one of those that fill it waits for its turn (`turns`)."""
        return any(m.times.queued_since_s is not None for m in self._filling())

    def _is_full(self, now: float) -> bool:
        """Whether the loader has to wait; consumers that stop are let lag as far as memory goes, instead."""
        end, ahead = self._epochs.end, self.ahead
        if ahead < self.window or ahead >= self.widest:
            return ahead >= self.window
        if end - (slowest := self._slowest_counted()) < self.window:
            return False
        if (one := self._at_work) is None or self._counted(one) != slowest or self._stops_at(one, now) <= now:
            at_work = (m for m in reversed(self._filling()) if self._stops_at(m, now) > now)
            one = self._at_work = next(at_work, None)
        if one is not None:
            stops_s = self._stops_at(one, now)
            self.due_s = stops_s if stops_s < math.inf else None
            return True
        fronts = [m.taken for m in self._members.values() if self._wants_more(m, now)]
        if not fronts:
            return True  # all stop, or the others have enough to take
        for member in self._filling():
            behind = min(end - max(fronts) + member.lag_then, self.window - 1)
            member.stood = end - self.position(member) - behind
        self.unsettled()
        return self._is_full(now)

    def _wants_more(self, member: Member, now: float) -> bool:
        """Whether a consumer trains on, and less than a window of batches lies ready for it."""
        trains = member.phase is Phase.STREAMING and member.times.queued_since_s is None
        return trains and self._epochs.end - member.taken < self.window and self._stops_at(member, now) > now

    def _filling(self) -> list[Member]:
        """Return the consumers that fill the window: the slowest, those that stop only where memory has no room."""
        end, ahead = self._epochs.end, self.ahead
        if ahead < self.window:
            return []
        if ahead >= self.widest:
            return [m for m in self._awaited() if end - self.position(m) == ahead]
        slowest = self._slowest_counted()
        return (
            [m for m in self._awaited() if self._counted(m) == slowest]
            if end - slowest >= self.window
            else []
        )

    @staticmethod
    def _stops_at(member: Member, now: float) -> float:
        """Return from when on a consumer counts as stopped; infinite where it waits for another, or takes turns."""
        if member.skips or member.stands or member.turn is not None:
            return math.inf
        if member.resumed or (member.phase is Phase.BETWEEN and not member.last_step):
            return now
        if not member.last_step and (member.times.waiting_since_s is not None or not member.granted):
            return math.inf
        usual_s = member.times.computing_s / member.share.batches if member.share.batches else 0.0
        return member.times.moved_s + max(STOPS_S, STOPS_STEPS * usual_s)

    def standing_still(self, now: float) -> Iterator[tuple[Member, float, bool]]:
        """Yield the consumers that hold others up, for how many seconds each has done nothing, and if that is in vain.

        One by one: parking one may take others along. It is in vain to wait for those that take no batch before
        another consumer has got one.
        """
        for member in self.pace_setters():
            if member.phase is not Phase.STREAMING or not member.granted or member.skips:
                continue  # it is between epochs, or has nothing to take: not its fault
            own = (member, *member.mates)  # ranks that hold up their own group are its affair
            since_s = self._wanted_since(m for m in self._members.values() if m not in own)
            if since_s is not None:  # else it may take its time: it holds nobody up
                yield member, now - max(member.times.moved_s, member.times.offered_s, since_s), member.stands
        yield from self._holding_an_epoch(now)

    def _holding_an_epoch(self, now: float) -> Iterator[tuple[Member, float, bool]]:
        """Yield all consumers of the epoch that is being loaded, while each stands still and another waits for its end.

        Even if the window is not full: while none gets on in this epoch, none waits at the window's edge.
        """
        holders = self.holders
        own = {m for member in holders for m in (member, *member.mates)}
        since_s = self._wanted_since(m for m in self.awaiting_epoch() if m not in own)
        if (
            since_s is None
            or not holders
            or any(not m.granted and m.times.waiting_since_s is not None for m in holders)
        ):
            return  # a consumer there wants a batch: it is the loader's turn, or the one at the window's end holds it
        still_s, in_vain = min(now - since_s, self.stood_still_s(now)), all(m.stands for m in holders)
        for member in holders:
            if member.phase is Phase.STREAMING:
                yield member, still_s, in_vain

    def stood_still_s(self, now: float) -> float:
        """Return for how many seconds none of the holders has done anything."""
        # what has nothing to take is offered something anew in each round
        return now - max(max(m.times.moved_s, m.times.offered_s if m.granted else 0.0) for m in self.holders)

    @property
    def holders(self) -> list[Member]:
        """The consumers that take the epoch which is being loaded: no other one begins before they have had it."""
        loading = self._epochs.loading
        if loading is None:
            return []
        return [m for m in self._members.values() if m.phase is Phase.STREAMING and m.run == loading.run]

    def awaiting_epoch(self) -> list[Member]:
        """Return the consumers that wait for an epoch to begin, and not for ranks of their own group."""
        asked = (m for m in self._members.values() if m.phase is Phase.ASKED and not m.granted)
        return [m for m in asked if m.times.wants_since_s is not None and not waits_for_own(m)]

    def _wanted_since(self, members: Iterable[Member]) -> float | None:
        """Return since when any of these has waited for a batch, or for an epoch; None: none of them waits."""
        there = (m for m in members if not m.granted and m.phase in (Phase.STREAMING, Phase.ASKED))
        there = (m for m in there if m.times.queued_since_s is None)  # it waits for its turn
        wanting = (m for m in there if m.phase is Phase.STREAMING or not waits_for_own(m))
        return min(
            (m.times.wants_since_s for m in wanting if m.times.wants_since_s is not None), default=None
        )

    def needed_from(self) -> int:
        """Return the index from which batches are kept for consumers that have yet to be granted them."""
        positions, end = (self._remembered or self._found()), self._epochs.end
        place = positions.cursors.lowest
        lowest = end if place is None else min(place, end)
        if positions.others:
            lowest = min([lowest, *self._expected(positions.others)])
        if positions.keeping:
            kept = map(self._kept_from, positions.keeping)
            lowest = min([lowest, *(index for index in kept if index is not None)])
        return lowest

    def takes(self, run: int) -> bool:
        """Whether any consumer takes this pass."""
        return run in (self._remembered or self._found()).streaming

    def in_use(self) -> set[int]:
        """Return the passes that consumers take, go on in after a pause, or took last and are between epochs."""
        positions = self._remembered or self._found()
        if not positions.keeping:
            return positions.in_use
        kept = {epoch.run for m in positions.keeping if (epoch := self.kept_pass(m)) is not None}
        return positions.in_use | kept

    def kept_pass(self, member: Member) -> Epoch | None:
        """Return the pass in which a consumer that was paused can still go on; None: it wants none, or that has gone.

        What it lacks is kept as long as that is no more than one that stops may lack: memory is bounded as without it.
        """
        epoch = (
            self._epochs.giving(member.epoch, member.position, member.part) if member.keeps_place else None
        )
        if epoch is None:
            return None
        place, end = epoch.index(member.position), self._epochs.end
        if epoch.complete and place == epoch.end:
            return epoch  # it lacks the word that this was all
        return epoch if end - place <= self.widest and all(map(self._epochs.has, range(place, end))) else None

    def _kept_from(self, member: Member) -> int | None:
        """Return the index from which batches are kept for one that was paused; None: for it, none are."""
        epoch = self.kept_pass(member) if member.keeps_place else None
        if epoch is None:
            return None
        place = epoch.index(member.position)
        return self._epochs.end if epoch.complete and place == epoch.end else place

    def _expected(self, others: Iterable[Member]) -> list[int]:
        """Return where those that take no epoch are waited for."""
        return [self.position(m) for m in others if self._is_awaited(m)]

    def _is_awaited(self, member: Member) -> bool:
        if member.phase in (Phase.STREAMING, Phase.BETWEEN):
            return True
        return member.resumed and self._kept_from(member) is not None

    def _slowest_counted(self) -> int:
        positions, end = (self._remembered or self._found()), self._epochs.end
        lowest = end if positions.counted.lowest is None else min(end, positions.counted.lowest)
        return min([lowest, *(self._counted(m) for m in positions.others if self._is_awaited(m))])

    def _counted(self, member: Member) -> int:
        """Return the index of the next batch it will take, as if it had taken what was published while it stopped."""
        return min(self._epochs.end, self.position(member) + member.stood)

    def _awaited(self) -> list[Member]:
        """Return the consumers waited for."""
        there = list(filter(self._is_awaited, self._members.values()))
        for policy in self._policies.followed:
            there = policy.waited_for(there)
        self._driver = there[0] if there and there[0].skips else None
        return there

    def position(self, member: Member) -> int:
        """Return the index of the next batch this member will take; past the end while it expects none."""
        if member.phase is Phase.STREAMING:
            return member.taken
        if member.resumed and (kept := self._kept_from(member)) is not None:
            return kept
        expected = self._epochs.joinable_from(member.epoch + 1, member.next_part)
        return self._epochs.end if expected is None else expected.start

    def check(self) -> None:
        """Verify that what is remembered is what a look at all consumers gives (tests only).

        Raises:
            AssertionError: It is not.
        """
        kept, settled = self._remembered, self._settled
        at_work = self._at_work
        remembered = (self.ahead, self.fill, self.needed_from(), self.in_use())
        self.unsettled()
        assert remembered == (self.ahead, self.fill, self.needed_from(), self.in_use())
        self._remembered, self._settled, self._at_work = kept, settled, at_work
