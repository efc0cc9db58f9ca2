"""The consumers of a stream as the dispatch knows them: where each is, what it holds, where its time goes.

Pure: the time is handed in. Positions are *indices*, counted over all batches the stream ever published, so
that distances across an epoch's end are plain differences.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from tsnb.stream.decisions.phases import Cause, Phase
from tsnb.stream.protocol.messages import Ask

__all__ = ["Grant", "Group", "Member", "Rotation"]


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
class Member:
    """One attached consumer."""

    key: int
    name: str
    skips: bool = False
    """Whether it gives up batches rather than hold the others up."""
    group: Group | None = None
    """The group to which it belongs as a rank."""
    rank: int = 0
    back: bool = False
    """Whether it was attached to a producer before this one."""
    rotation: Rotation | None = None
    """Those with which it takes turns."""
    has_turn: bool = False
    """Whether it is its turn."""
    turn_end: int = 0
    """Index up to which it is granted batches then."""
    turn_run: int = -1
    """The pass in which that is."""
    late: bool = False
    """Whether it stood still in its turn, and lost it: it may have batches left, and compute beside the others."""
    queued_since_s: float | None = None
    """Since when it waits for its turn."""
    queued_s: float = 0.0
    """Seconds that it has waited for its turn, in all."""
    queued_then_s: float = 0.0
    """The same when it began to wait for a batch."""
    ticket: int = 0
    """Its place in the line: it got in there after those with a lower number."""
    phase: Phase = Phase.JOINING
    part: int | None = None
    """The samples that it takes, a bit each; None: all."""
    stands_for_others: bool = False
    """Whether it is a machine of a cluster, or all others: what it takes may be other samples with each epoch."""
    expects: int | None = 0
    """The samples that one which stands for others takes with its next epoch, as far as it knows; as `part`."""
    asked: Ask = field(default_factory=lambda: Ask(0))
    """Where it said it stands, at its last ask."""
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
    skipped: int = 0
    """Loader batches it gave up so far."""
    stood: int = 0
    """Batches of its lag that were published while it stopped: see `drift`."""
    lag_then: int = 0
    """The rest of its lag, behind the consumer in front, when it last took a batch."""
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
    paused: bool = False
    """Whether it was asked to pause, and not yet to go on. Nobody waits for it, and it gets nothing."""
    paused_at_s: float = 0.0
    """When it was."""
    resumed: bool = False
    """Whether it goes on after a pause or a crash, and has not been let in since: it waits for its place as long as it
    takes."""
    asked_paused: bool = False
    """Whether, a rank of a group, it has asked since it was paused: it is let in when it goes on."""
    keeps_place: bool = False
    """Whether it was paused in its epoch, and has neither asked again nor left it since."""
    leases: dict[int, int] = field(default_factory=dict)
    """What it may still read: lease to batch index."""
    moved_s: float = 0.0
    """When it last asked, took or joined."""
    offered_s: float = 0.0
    """When it was last granted a batch while it had none to take."""
    waiting_since_s: float | None = None
    """Since when it waits for a batch."""
    wants_since_s: float | None = None
    """Since when it has had nothing, though it wants a batch: the wait for an epoch counts too."""
    told_held: int = 0
    """What it has been told since it asked: 0, nothing; 1, which consumers take the epoch; 2, that they stand still."""
    blocked_then_s: float = 0.0
    """The stream's blocked clock at that moment."""
    batches: int = 0
    passed: int = 0
    """Samples of those batches."""
    left_out: int = 0
    """Of them those that were not given to it: others' of its batches, and what it dropped."""
    computing_s: float = 0.0
    waiting_s: float = 0.0
    held_s: float = 0.0
    withheld_since_s: float | None = None
    """Since when a batch lies ready that it is not granted, because others have had less than their share."""
    withheld_s: float = 0.0
    """Seconds that it waited for that reason: a part of `held_s`."""
    withheld_then_s: float = 0.0
    """The same when it began to wait."""

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

    def count(self, rows: int, own: int) -> None:
        """It took a batch of so many rows; so many of them are its own."""
        self.passed += rows
        self.left_out += max(0, rows - own)

    def settle(self, given: int) -> None:
        """Its loops have got so many rows since it attached, whatever its takes came to."""
        self.left_out = max(0, self.passed - given)

    def forgive(self, seconds: float, now: float) -> None:
        """Do as if some of the time had not been."""
        self.moved_s = min(now, self.moved_s + seconds)
        self.offered_s = min(now, self.offered_s + seconds)
        if self.waiting_since_s is not None:
            self.waiting_since_s = min(now, self.waiting_since_s + seconds)
        if self.wants_since_s is not None:
            self.wants_since_s = min(now, self.wants_since_s + seconds)

    def began_waiting(self, now: float, blocked_s: float) -> None:
        """It has nothing left to take."""
        if self.waiting_since_s is None:
            self.computing_s += now - self.moved_s
            self.waiting_since_s = now
            self.wants_since_s = now if self.wants_since_s is None else self.wants_since_s
            self.blocked_then_s = blocked_s
            self.withheld_then_s = self.withheld_s
            self.queued_then_s = self.queued_s

    def withhold(self, now: float) -> None:
        """A batch lies ready, and it is not granted."""
        if self.withheld_since_s is None:
            self.withheld_since_s = now

    def let_go(self, now: float) -> None:
        """Let it have its next batch: that is no longer withheld."""
        self.withheld_s = self._withheld(now)
        self.withheld_since_s = None

    def _withheld(self, now: float) -> float:
        """Return `withheld_s` up to now: only what it waited counts."""
        if self.withheld_since_s is None or self.waiting_since_s is None:
            return self.withheld_s
        return self.withheld_s + now - max(self.withheld_since_s, self.waiting_since_s)

    def _held(self, now: float, blocked_s: float) -> float:
        """Return how much of its present wait was for the others: the slowest, those with less use, its turn."""
        assert self.waiting_since_s is not None
        others = blocked_s - self.blocked_then_s + self._withheld(now) - self.withheld_then_s
        queued_s = self.queued_s + (now - self.queued_since_s if self.queued_since_s is not None else 0.0)
        return min(now - self.waiting_since_s, others + queued_s - self.queued_then_s)

    def took(self, now: float, blocked_s: float) -> None:
        """It took a batch: the time since the last one was spent waiting, held, or computing."""
        if self.waiting_since_s is None:
            self.computing_s += now - self.moved_s
        else:
            self.stopped_waiting(now, blocked_s)
        self.moved_s = now
        self.wants_since_s = None

    def stopped_waiting(self, now: float, blocked_s: float) -> None:
        """Split the time it waited by the stream's blocked clock: window-bound or loader-bound."""
        if self.waiting_since_s is None:
            return
        if self.withheld_since_s is not None:
            self.let_go(now)
        waited, held = now - self.waiting_since_s, self._held(now, blocked_s)
        self.held_s += held
        self.waiting_s += waited - held
        self.waiting_since_s = None
        self.moved_s = now

    def left_epoch(self, cause: Cause, now: float, blocked_s: float) -> None:
        """It takes its epoch no more, and does something else from now on."""
        self.let_go(now)
        if self.waiting_since_s is not None:
            self.stopped_waiting(now, blocked_s)
        elif cause.after is not Phase.AWAY:  # one that is parked stood still, it did not compute
            self.computing_s += now - self.moved_s
        self.enter(cause)
        self.moved_s = now

    def times(self, now: float, blocked_s: float) -> tuple[float, float, float]:
        """Return (computing_s, waiting_s, held_s) up to now, the running interval included."""
        if self.waiting_since_s is not None:
            waited = now - self.waiting_since_s
            held = self._held(now, blocked_s)
            return self.computing_s, self.waiting_s + waited - held, self.held_s + held
        running = now - self.moved_s if self.phase is Phase.STREAMING or self.last_step else 0.0
        return self.computing_s + running, self.waiting_s, self.held_s
