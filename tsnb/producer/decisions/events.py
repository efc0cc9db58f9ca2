"""What can happen to a stream, and what it can be told to do: the vocabulary of `dispatch`.

Pure values. `member` is the key of one attached consumer, given by whoever runs the connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = [
    "Abandon",
    "Asked",
    "Balanced",
    "BatchLoaded",
    "Contended",
    "Detached",
    "Event",
    "FreeSlot",
    "Granted",
    "Instruction",
    "Joined",
    "Left",
    "LeftEpoch",
    "LoaderEnded",
    "LoaderRaised",
    "Placed",
    "Released",
    "Renumbered",
    "Rested",
    "SendEpochEnded",
    "SendEpochStarted",
    "SendFailed",
    "SendHeldUp",
    "SendNotJoined",
    "SendParked",
    "SendRankGone",
    "SendRefused",
    "Tick",
    "Took",
    "WaitingForBatch",
    "Wanted",
    "Withdrawn",
]


class Placed(NamedTuple):
    """One loader batch, lying in its slot."""

    slot: int
    layout: bytes
    """`wire.layout.Layout`, encoded."""
    rows: int
    """Samples; 0 where there is no common first dimension."""
    values_offset: int
    values_bytes: int


# -- events: from the connections ---------------------------------------------------------------------------


class Joined(NamedTuple):
    """A consumer attached."""

    member: int
    name: str
    skips: bool = False
    """It gives up batches rather than hold the others up (`on_lag="skip"`)."""
    group: str = ""
    """The group whose rank it is; empty: none."""
    rank: int = 0
    world_size: int = 1
    cut: str = ""
    """How a rank cuts batches; the same for all of a group."""
    back: bool = False
    """It was attached to a producer before this one, and may be in the middle of a step."""


class Left(NamedTuple):
    """A consumer's connection has ended: everything it held comes back. Without `Detached` before it, it died."""

    member: int


class Detached(NamedTuple):
    """A consumer says that it will not ask again. What it still holds stays its own."""

    member: int


class Asked(NamedTuple):
    """A consumer says where it stands and wants to go on from there.

    Unless it is `exact`, any epoch from number `epoch` on will do, from its start.
    """

    member: int
    ask: int = 0
    """The consumer's number for this ask."""
    epoch: int = 0
    seq: int = 0
    """Only where it is exact: the loader batch of that epoch it wants next."""
    exact: bool = False
    now: bool = False
    """It would rather be refused than wait for an epoch that it can take from the start (`join="now"`)."""
    held: frozenset[int] | None = None
    """The leases it still has: whatever else it was granted has got lost on its way, and comes back. None: all."""


class Took(NamedTuple):
    """A consumer took the next batch it had been granted."""

    member: int


class WaitingForBatch(NamedTuple):
    """A consumer has taken all it was granted and waits."""

    member: int


class Released(NamedTuple):
    """A consumer's last reference to one batch has gone."""

    member: int
    lease: int


class LeftEpoch(NamedTuple):
    """A consumer left its epoch before the end."""

    member: int


class Rested(NamedTuple):
    """Nobody should wait for this consumer's next epoch."""

    member: int


# -- events: from the loader, and from the clock ------------------------------------------------------------


class Wanted(NamedTuple):
    """What the loader should give next: not an event, but the answer to them all."""

    run: int
    """One pass over the loader. An epoch that is begun again, at another batch, is another run."""
    epoch: int
    first: int
    """The loader batch of the epoch that the run begins with."""


class BatchLoaded(NamedTuple):
    """The loader's next batch lies in a slot."""

    run: int
    batch: Placed


class LoaderEnded(NamedTuple):
    """The loader has no more batches in this run."""

    run: int


class LoaderRaised(NamedTuple):
    """The loader raised; the run ends here."""

    run: int
    message: str
    traceback: str


class Renumbered(NamedTuple):
    """The loader gives another epoch in this run than was wanted, from its start: it has gone on elsewhere.

    Comes before the run's first batch, from loaders that are streams themselves (`tsnb.engines`).
    """

    run: int
    epoch: int


class Withdrawn(NamedTuple):
    """Nobody takes this run, and the loader should not be kept waiting for somebody who might."""

    run: int


class Tick(NamedTuple):
    """Time has passed."""

    stopped_s: float = 0.0
    """Seconds since the last one in which the producer itself did not run (a laptop's lid, SIGSTOP of all): for
    them nobody else can be blamed."""


class Balanced(NamedTuple):
    """Compute is divided in another way from now on. What somebody has yet to take stays, however much that is."""

    mode: str
    """One of `config.MODES`."""
    weights: Mapping[str, float]
    """By consumer name; 1 for who is not named."""
    window: int
    """Batches that the fastest consumer may be ahead of the slowest."""


class Contended(NamedTuple):
    """Whether the consumers compete for the machine has changed."""

    contended: bool


Event = (
    Balanced
    | Contended
    | Detached
    | Joined
    | Left
    | Asked
    | Took
    | WaitingForBatch
    | Released
    | LeftEpoch
    | Rested
    | BatchLoaded
    | LoaderEnded
    | LoaderRaised
    | Renumbered
    | Withdrawn
    | Tick
)

# -- instructions -------------------------------------------------------------------------------------------


class Granted(NamedTuple):
    """Send this batch to this consumer; it holds the slot until it releases the lease."""

    member: int
    lease: int
    epoch: int
    seq: int
    batch: Placed


class SendEpochStarted(NamedTuple):
    """Answer the consumer's ask: its batches are of this epoch from now on."""

    member: int
    ask: int
    epoch: int
    seq: int
    """The first batch it gets."""


class SendNotJoined(NamedTuple):
    """Answer the consumer's ask: what it wants cannot be had."""

    member: int
    ask: int
    epoch: int
    """The epoch being given."""
    published: int
    """Batches of it that were given so far."""
    band: int
    """Batches from an epoch's start that are kept for latecomers."""


class SendEpochEnded(NamedTuple):
    """Tell the consumer that it has been sent the whole epoch."""

    member: int
    epoch: int
    batches: int


class SendFailed(NamedTuple):
    """Tell the consumer that the loader raised."""

    member: int
    epoch: int
    message: str
    traceback: str


class SendParked(NamedTuple):
    """Tell the consumer that it lost its place in the epoch."""

    member: int
    epoch: int
    seq: int
    stood_still_s: float


class SendHeldUp(NamedTuple):
    """Tell a consumer that has waited for an epoch for long who takes the one being loaded."""

    member: int
    ask: int
    epoch: int
    published: int
    holders: str
    still_s: float
    patience_s: float
    """As in `wire.messages.HeldUp`."""


class SendRankGone(NamedTuple):
    """Tell a rank that another one of its group has gone."""

    member: int
    rank: int
    epoch: int
    seq: int
    """As in `wire.messages.RankGone`."""


class SendRefused(NamedTuple):
    """Answer a rank's ask: its group cannot begin like that."""

    member: int
    code: str
    reason: str
    """As in `wire.messages.Refused`."""


class FreeSlot(NamedTuple):
    """Nobody can read this slot any more."""

    slot: int


class Abandon(NamedTuple):
    """Stop loading this run: nobody takes it and nobody can join it, or it is begun again elsewhere."""

    run: int


Instruction = (
    Granted
    | SendEpochStarted
    | SendEpochEnded
    | SendFailed
    | SendHeldUp
    | SendParked
    | SendRankGone
    | SendRefused
    | SendNotJoined
    | FreeSlot
    | Abandon
)
