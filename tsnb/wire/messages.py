"""The messages between producer, consumers and observers. `wire.codec` turns them into bytes.

consumer -> producer   Hello  Ask  Take  Waiting  Release  Leave  Rest  Metrics  Bye
producer -> consumer   Welcome  Refused  LayoutTold  Batch  EpochStarted  EpochEnded  Failed  Parked
                       StopAsked  Stopping
observer -> producer   Hello  StopProducer  StopConsumer
producer -> observer   Welcome  Refused  Reading  Stopping
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "PROTOCOL",
    "Ask",
    "Batch",
    "Bye",
    "EpochEnded",
    "EpochStarted",
    "Failed",
    "Hello",
    "LayoutTold",
    "Leave",
    "Message",
    "Metrics",
    "Parked",
    "Reading",
    "Refused",
    "Release",
    "Rest",
    "StopAsked",
    "StopConsumer",
    "StopProducer",
    "Stopping",
    "Take",
    "Waiting",
    "Welcome",
]

PROTOCOL = 1
"""Raised whenever a message changes its meaning or its bytes; both sides must speak the same."""


class Hello(NamedTuple):
    """First message of every connection."""

    role: str
    """`consumer` or `observer`."""
    name: str
    """The consumer's name; free text for an observer."""
    origin: str
    """Where it runs, for messages ("script train.py")."""
    protocol: int = PROTOCOL


class Ask(NamedTuple):
    """The consumer wants its next epoch."""

    number: int
    """Counts this consumer's asks, so that the answer cannot be taken for that to an earlier one."""


class Take(NamedTuple):
    """The consumer took the next batch it was sent."""


class Waiting(NamedTuple):
    """The consumer has nothing left to take and waits."""


class Release(NamedTuple):
    """The last reference to a batch's views has gone (sent by a finalizer, from any thread)."""

    lease: int


class Leave(NamedTuple):
    """The consumer leaves its epoch before the end (`break`)."""


class Rest(NamedTuple):
    """Nobody should wait for this consumer's next epoch (its cell has ended)."""


class Metrics(NamedTuple):
    """The last numbers given to `tsnb.log`."""

    numbers: dict[str, float]


class Bye(NamedTuple):
    """The consumer detaches: its name is free, what it still holds stays readable until it closes."""


class StopProducer(NamedTuple):
    """An observer asks the producer to stop."""


class StopConsumer(NamedTuple):
    """An observer asks that a consumer's loop end."""

    name: str


class Welcome(NamedTuple):
    """The stream as a newcomer must know it; the packet carries the arena's descriptor for consumers."""

    name: str
    pid: int
    window: int
    hold: int
    batch_size: int | None
    """The loader's, where it has one."""
    epoch_batches: int | None
    """Loader batches in an epoch, where known."""
    epoch_samples: int | None
    """Samples in an epoch, where known."""
    protocol: int = PROTOCOL


class Refused(NamedTuple):
    """The producer does not take this connection."""

    code: str
    """`protocol`, `name-in-use`, `full` or `stopping`."""
    reason: str


class LayoutTold(NamedTuple):
    """From now on `number` stands for this layout."""

    number: int
    layout: bytes


class Batch(NamedTuple):
    """One batch lies in a slot; the consumer holds it until it releases the lease."""

    layout: int
    slot: int
    epoch: int
    seq: int
    rows: int
    """Samples in the batch; 0 where its leaves have no common first dimension."""
    lease: int
    values_offset: int
    """Where the values text starts in the slot."""
    values_bytes: int


class EpochStarted(NamedTuple):
    """The answer to an Ask: batches of this epoch follow. Whatever belongs to another is out of date."""

    ask: int
    epoch: int


class EpochEnded(NamedTuple):
    """Every batch of the epoch has been sent."""

    epoch: int
    batches: int


class Failed(NamedTuple):
    """The loader raised; the epoch ends here."""

    epoch: int
    message: str
    traceback: str


class Parked(NamedTuple):
    """The consumer stood still too long and has lost its place in the epoch."""

    epoch: int
    seq: int
    """The first batch it will not get."""
    stood_still_s: float


class StopAsked(NamedTuple):
    """Somebody asked this consumer to stop (the panel's button)."""


class Stopping(NamedTuple):
    """The producer stops in good order."""

    reason: str


class Reading(NamedTuple):
    """One `telemetry.StreamReading` as JSON, for observers."""

    text: str


Message = (
    Hello
    | Ask
    | Take
    | Waiting
    | Release
    | Leave
    | Rest
    | Metrics
    | Bye
    | StopProducer
    | StopConsumer
    | Welcome
    | Refused
    | LayoutTold
    | Batch
    | EpochStarted
    | EpochEnded
    | Failed
    | Parked
    | StopAsked
    | Stopping
    | Reading
)
