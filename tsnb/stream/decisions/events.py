"""What can happen to a stream, and what follows from it: the vocabulary of `dispatch`.

What consumers say and are told are the messages of `tsnb.stream.protocol` themselves (`Heard`, `Tell`). Here stands
what comes from the loader and the clock, and what becomes of slots. Pure values. `member` is the key of one attached
consumer, given by the code that runs the connections.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tsnb.stream.protocol.messages import Message

__all__ = [
    "Abandon",
    "Announced",
    "Balanced",
    "BatchLoaded",
    "Contended",
    "Covered",
    "Event",
    "FreeSlot",
    "Granted",
    "Heard",
    "Instruction",
    "Left",
    "LoaderEnded",
    "LoaderRaised",
    "Paused",
    "Placed",
    "Renumbered",
    "RoundDue",
    "Tell",
    "Tick",
    "Wanted",
    "Withdrawn",
]


class Placed(NamedTuple):
    """One loader batch, lying in its slot."""

    slot: int
    layout: bytes
    """`protocol.layout.Layout`, encoded."""
    rows: int
    """Samples; 0 without a common first dimension."""
    values_offset: int
    values_bytes: int
    drawn: Sequence[Any] | None = None
    """What the sampler gave for its rows: indices of the dataset, where a source can tell."""
    weights: bytes = b""
    """The weight of each of them, as `protocol.messages.Drawn`; empty: all are 1."""


# -- events: from the connections ---------------------------------------------------------------------------


class Heard(NamedTuple):
    """A consumer said something: its Hello first, then Ask, Take, Waiting, Release, Leave, Rest, Bye."""

    member: int
    message: Message


class Announced(NamedTuple):
    """A consumer that stands for others, those of a machine or of a cluster, says which samples they take.

    Heard of before it asks, and whenever they have become others.
    """

    member: int
    part: int | None
    """With the epoch that it takes or asks for next, a bit each; None: all."""
    expects: int | None
    """With the epochs after that."""


class Paused(NamedTuple):
    """Somebody wants consumers to pause, each with all ranks of its group, or to go on."""

    members: tuple[int, ...]
    on: bool
    """Pause; else go on."""


class Left(NamedTuple):
    """A consumer's connection has ended: everything it held comes back. Without a Bye before it, it died."""

    member: int


# -- events: from the loader, and from the clock ------------------------------------------------------------


class Wanted(NamedTuple):
    """What the loader should give next: not an event, but the answer to them all."""

    run: int
    """One pass over the loader. An epoch that is begun again, at another batch, is another run."""
    epoch: int
    first: int
    """The loader batch of the epoch that the run begins with."""
    cover: int | None = None
    """The samples that are to be prepared, a bit each; None: all."""


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


class Covered(NamedTuple):
    """The batches of this run hold more samples than were wanted: of a loader that is a stream itself."""

    run: int
    cover: int | None
    """What they hold, a bit each, all that was wanted among them; None: all."""


class Withdrawn(NamedTuple):
    """No consumer takes this run, and the loader should not wait for one that might."""

    run: int


class Tick(NamedTuple):
    """Time has passed."""

    stopped_s: float = 0.0
    """Seconds since the last one in which the producer itself did not run (a laptop's lid, SIGSTOP of all):
    consumers are not to blame for them."""


class Balanced(NamedTuple):
    """Compute is divided in another way from now on. Batches yet to be taken stay, however many they are."""

    pacing: str
    """One of `config.PACINGS`."""
    weights: Mapping[str, float]
    """By consumer name; 1 for one that is not named."""
    window: int
    """Batches that the fastest consumer may be ahead of the slowest."""


class Contended(NamedTuple):
    """Whether the consumers compete for the machine has changed."""

    contended: bool


class RoundDue(NamedTuple):
    """Epochs are rounds, and so many may begin now, for consumers that wait for one."""

    rounds: int | None
    """0 or 1; None: epochs follow each other."""


Event = (
    Heard
    | Announced
    | Paused
    | Left
    | BatchLoaded
    | LoaderEnded
    | LoaderRaised
    | Renumbered
    | Covered
    | Withdrawn
    | Tick
    | Balanced
    | Contended
    | RoundDue
)

# -- instructions -------------------------------------------------------------------------------------------


class Granted(NamedTuple):
    """Send this batch to this consumer; it holds the slot until it releases the lease."""

    member: int
    lease: int
    epoch: int
    seq: int
    batch: Placed


class Tell(NamedTuple):
    """Send this to this consumer."""

    member: int
    message: Message


class FreeSlot(NamedTuple):
    """No consumer can read this slot any more."""

    slot: int


class Abandon(NamedTuple):
    """Stop loading this run: no consumer takes it or can join it, or it is begun again elsewhere."""

    run: int


Instruction = Granted | Tell | FreeSlot | Abandon
