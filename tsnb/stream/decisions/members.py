"""The consumers of a stream as the dispatch knows them: where each is, what it holds, what it has had.

Pure: the time is handed in. Positions are *indices*, counted over all batches the stream ever published, so
that distances across an epoch's end are plain differences.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import structs

from tsnb.stream.decisions.epochs import Epoch
from tsnb.stream.decisions.phases import Cause, Phase
from tsnb.stream.decisions.timekeeping import Outside, Times, TimeTaken
from tsnb.stream.protocol.messages import Ask

__all__ = ["Grant", "Group", "Member", "Rotation", "RotationTurn", "Share"]


class Grant(NamedTuple):
    """One batch that a consumer may take."""

    seq: int
    rows: int
    at: int
    """Its index."""


@dataclass(eq=False)
class Group:
    """The ranks of one training job, which take the stream as one; see `groups`."""

    name: str
    world_size: int
    cut: str
    """How its ranks cut batches, in words."""
    ranks: dict[int, Member] = field(default_factory=dict, repr=False)
    """Those that are attached."""
    together: bool = True
    """Whether none is let in before all have asked; else one may go on in the epoch that the others take."""
    steered: bool = False
    """Whether somebody has asked this producer that it pause, or go on; else ranks that come back know it."""
    closed: bool = False
    """Whether a rank has gone: no epoch begins for the others any more."""


@dataclass(eq=False)
class Rotation:
    """Consumers that take the stream by turns; see `turns`."""

    name: str
    batches: int = 1
    """A turn's."""
    at_once: int = 1
    """How many have their turn at the same time."""


@dataclass(eq=False)
class RotationTurn:
    """A consumer's turn in a rotation; `turns` writes it."""

    rotation: Rotation
    """Those with which it takes turns."""
    on: bool = False
    """Whether it is its turn."""
    end: int = 0
    """Index up to which it is granted batches then."""
    run: int = -1
    """The pass in which that is."""
    late: bool = False
    """Whether it stood still in its turn, and lost it: it may have batches left, and compute beside the others."""
    ticket: int = 0
    """Its place in the line: it got in there after those with a lower number."""


@dataclass(eq=False)
class Share:
    """What a consumer has had of the stream; `Member` writes it."""

    batches: int = 0
    passed: int = 0
    """Samples of those batches."""
    left_out: int = 0
    """Of them those that were not given to it: others' of its batches, and what it dropped."""
    skipped: int = 0
    """Loader batches it gave up so far."""


@dataclass(eq=False)
class Member:
    """One attached consumer."""

    key: int
    name: str
    skips: bool = False
    """Whether it gives up batches rather than hold the others up."""
    part: int | None = None
    """The samples that it takes, a bit each; None: all."""
    rank: int = 0
    back: bool = False
    """Whether it, a rank, was attached to a producer before this one."""
    paused: bool = False
    """Whether it was asked to pause, and not yet to go on. Nobody waits for it, and it gets nothing."""
    times: Times = field(default_factory=Times)
    """Where its time goes."""
    share: Share = field(default_factory=Share)
    """What it has had."""
    group: Group | None = None
    """The group to which it belongs as a rank; `groups` writes it."""
    turn: RotationTurn | None = None
    """Its turn, where it takes the stream by turns."""
    stood: int = 0
    """Batches of its lag that were published while it stopped; `drift` writes it."""
    lag_then: int = 0
    """The rest of its lag, behind the consumer in front, when it last took a batch; `drift` writes it."""
    phase: Phase = Phase.JOINING
    stands_for_others: bool = False
    """Whether it is a machine of a cluster, or all others: what it takes may be other samples with each epoch."""
    expects: int | None = 0
    """The samples that one which stands for others takes with its next epoch, as far as it knows; as `part`."""
    asked: Ask = field(default_factory=lambda: Ask(0))
    """Where it said it stands, at its last ask; `groups` makes it fit those of other ranks."""
    moved_over: bool = False
    """Whether it streamed, and waits for a pass to reach its place again, since another came back before it."""
    epoch: int = -1
    """The number of the epoch it takes now or took last."""
    begun: int = 0
    """Epochs that it has begun."""
    run: int = -1
    """Which pass over the loader that is."""
    cursor: int = 0
    """Index of the next batch to grant it; ahead of what was published where it was resumed past it."""
    granted: deque[Grant] = field(default_factory=deque)
    """What it was granted and has not taken."""
    position: int = 0
    """Loader batches of its epoch that lie behind it: taken, or given up."""
    first: list[int] = field(default_factory=list)
    """Indices of batches that it is granted before those at `cursor`: it was let in at a place that lies before what
    its pass gives it."""
    skipping: bool = False
    """Whether the batch it will take next does not follow on the one before."""
    end: Cause | None = None
    """How its epoch ends, once it has been sent that: all batches came, or the loader failed."""
    last_step: bool = False
    """Whether it still computes on the epoch's last batch."""
    parked: bool = False
    """Whether it lost its place; cleared when it asks again."""
    stands: bool = False
    """Whether it has said so: it takes no batch before another consumer has got one."""
    resumed: bool = False
    """Whether it goes on after a pause or a crash, and has not been let in since: it waits for its place as long as it
    takes."""
    asked_paused: bool = False
    """Whether, a rank of a group, it has asked since it was paused: it is let in when it goes on."""
    keeps_place: bool = False
    """Whether it was paused in its epoch, and has neither asked again nor left it since."""
    leases: dict[int, int] = field(default_factory=dict)
    """What it may still read: lease to batch index."""
    told_held: int = 0
    """What it has been told since it asked: 0, nothing; 1, which consumers take the epoch; 2, that they stand still."""

    def enter(self, cause: Cause) -> None:
        """Change the phase; nothing else does.

        Raises:
            RuntimeError: This cannot happen in its phase, so tsnb has lost track of it. The stream ends and says so.
        """
        if self.phase not in cause.before:
            raise RuntimeError(f"{self.name} is {self.phase.value}, where this cannot be: {cause.words}")
        self.phase = cause.after

    @property
    def mates(self) -> list[Member]:
        """The other ranks of its group that are attached."""
        return [] if self.group is None else [m for m in self.group.ranks.values() if m is not self]

    @property
    def next_part(self) -> int | None:
        """The samples that it takes with its next epoch, as `part`."""
        return self.expects if self.stands_for_others else self.part

    @property
    def wanted(self) -> int | None:
        """The samples that a pass which begins now has to hold for it, as `part`."""
        if not self.stands_for_others or self.phase is not Phase.ASKED:
            return self.next_part
        return None if self.part is None or self.expects is None else self.part | self.expects

    @property
    def taken(self) -> int:
        """Index of the next batch it will take."""
        return self.cursor - len(self.granted)

    @property
    def computes(self) -> bool:
        """Whether it is in the user's code now, as far as is known: it took a batch and has not asked for more."""
        return (self.phase is Phase.STREAMING and self.times.waiting_since_s is None) or self.last_step

    # -- which samples it takes --------------------------------------------------------------------------

    def add_part(self, mask: bytes, offset: int) -> None:
        """It says, piece by piece, which samples it takes."""
        before = self.part if offset else 0
        self.part = (before or 0) | int.from_bytes(mask, "little") << 8 * offset

    def stand_for(self, part: int | None, expects: int | None) -> None:
        """It says which samples the others take for which it stands, now and with their next epoch."""
        self.stands_for_others = True
        self.part, self.expects = part, expects

    # -- its way through an epoch ------------------------------------------------------------------------

    def ask(self, ask: Ask, now: float) -> None:
        """It says where it stands: what it was granted before counts no more."""
        self.last_step = self.parked = self.moved_over = self.stands = False
        self.asked_paused = self.paused and self.group is not None
        self.asked, self.told_held = ask, 0
        self.resumed = self.resumed or ask.patient
        self.keeps_place = False
        if self.paused and ask.exact:
            self.keep_place(ask.epoch, ask.seq)
        self.granted.clear()
        self.first.clear()
        self.times.ask(now)

    def keep_place(self, epoch: int, seq: int) -> None:
        """It goes on at this place after a pause."""
        self.keeps_place, self.epoch, self.position = True, epoch, seq

    def let_in(self, epoch: Epoch, seq: int, first: list[int], now: float) -> None:
        """It takes a pass from a loader batch of the epoch on, after some batches that lie in other passes."""
        self.enter(Cause.LET_IN)
        self.resumed = self.keeps_place = False
        self.begun += epoch.run != self.run
        self.run, self.epoch = epoch.run, epoch.number
        onwards = max(seq, epoch.first) if self.skips else seq + len(first)
        self.share.skipped += onwards - seq if self.skips else 0
        self.first, self.cursor = first, epoch.index(onwards)
        self.position = seq - len(self.granted)
        self.end = None
        self.times.turn_to(None, now)
        if not self.moved_over:
            self.times.move(now)
        self.moved_over = False

    def move_over(self, epoch: Epoch) -> None:
        """It waits for another pass to come to its place in this one."""
        self.enter(Cause.MOVED_OVER)
        self.moved_over = True
        seq = epoch.seq(self.cursor)
        self.asked = structs.replace(self.asked, epoch=epoch.number, seq=seq, exact=True, now=False)

    def renumber(self, number: int) -> None:
        """Its pass turns out to be of another epoch."""
        self.epoch = number

    def give(self, lease: int, grant: Grant, onwards: int) -> None:
        """It may take a batch, and goes on by so many in its pass: by none with one of `first`."""
        self.leases[lease] = grant.at
        self.granted.append(grant)
        self.cursor += onwards

    def skip_to(self, index: int, first: list[int]) -> None:
        """It gives up the batches before an index, but those that it is granted first."""
        self.share.skipped += index - self.cursor - len(first)
        self.first, self.cursor = first, index

    def take(self, own: int) -> None:
        """It takes what it was granted next; so many rows of it are its own."""
        taken, share = self.granted.popleft(), self.share
        self.stands = False
        self.skipping = taken.seq > self.position
        self.position = taken.seq + 1
        share.batches += 1
        share.passed += taken.rows
        share.left_out += max(0, taken.rows - own)

    def settle(self, given: int) -> None:
        """Its loops have got so many rows since it attached, whatever its takes came to."""
        self.share.left_out = max(0, self.share.passed - given)

    def tell_end(self, end: Cause) -> None:
        """It is told how its epoch ends."""
        self.end = end

    def leave_epoch(self, cause: Cause, now: float, blocked_s: float) -> None:
        """It takes its epoch no more, and does something else from now on."""
        self.enter(cause)
        # one that is parked stood still, it did not compute
        timed_out_since_s = now if self.times.waiting_since_s is not None else self.times.moved_s
        self.times.left_epoch(now, blocked_s, computed=self.phase is not Phase.AWAY)
        if cause is Cause.STOOD_STILL:
            self.times.turn_to(Outside.TIMED_OUT, timed_out_since_s)

    def compute_last(self) -> None:
        """It computes on the epoch's last batch."""
        self.last_step = True

    def give_up(self, cause: Cause, now: float, blocked_s: float) -> None:
        """It no longer waits for an epoch: one granted to it would hold the others."""
        self.enter(cause)
        self.moved_over = False
        self.times.turn_to(None, now)
        self.times.stopped_waiting(now, blocked_s)

    def leave_loop(self, now: float) -> None:
        """It has left a loop that takes nothing now."""
        if self.last_step:
            self.times.computed(now)
        elif self.end is not None and not self.granted:
            self.parked = False  # it has had its epoch after all
            self.times.turn_to(Outside.PAUSED if self.paused else None, now)
        self.last_step = False

    def wait(self, now: float, blocked_s: float) -> bool:
        """It says that it wants a batch; return whether it can have one of the epoch that it takes."""
        self.stands = False
        waits = (self.phase is Phase.STREAMING or self.moved_over) and not self.granted
        if waits:
            self.times.began_waiting(now, blocked_s)
        return waits

    def stand(self, stands: bool) -> None:
        """It says whether it takes no batch before another consumer has got one; a rank's word does not count."""
        self.stands = stands and self.group is None

    # -- pauses, and places that are lost ----------------------------------------------------------------

    def pause(self, inside: bool, now: float, blocked_s: float) -> None:
        """It is asked to pause; `inside`: in an epoch, or so it may believe."""
        self.keeps_place = self.keeps_place or inside
        if self.phase is Phase.ASKED:
            self.give_up(Cause.PAUSED, now, blocked_s)
            self.asked_paused = self.group is not None
            if self.asked_paused and self.asked.exact:
                self.keep_place(self.asked.epoch, self.asked.seq)
        elif self.phase is Phase.BETWEEN:
            self.enter(Cause.PAUSED)
        self.paused, self.resumed = True, False
        self.times.pause(now)

    def go_on(self, now: float) -> None:
        """It is asked to go on after a pause."""
        self.paused, self.resumed = False, True
        self.times.move(now)
        self.times.turn_to(Outside.JOINING if self.asked_paused else None, now)
        if self.asked_paused:
            self.enter(Cause.GOES_ON)
            self.asked_paused = False
            self.times.want(now)

    def lose_place(self) -> None:
        """The place at which it was paused is kept no more."""
        self.keeps_place = False

    def withdraw(self) -> None:
        """It left its epoch itself: it wants no place after a pause."""
        self.keeps_place = self.asked_paused = False

    def park(self, lost: bool = True) -> None:
        """It was taken off the window; `lost`: before the end of what it wanted."""
        self.parked = lost

    def tell_held(self, stage: int) -> None:
        """It is told which consumers hold the epoch that it waits for."""
        self.told_held = stage

    def read(self, now: float, blocked_s: float) -> TimeTaken:
        """Return where its time went up to now, the running interval included."""
        return self.times.read(now, blocked_s, computes=self.computes)
