"""The messages between producer, consumers and observers. `protocol.codec` turns them into bytes.

consumer -> producer   Hello  Wants  Ask  Take  Waiting  Release  Leave  Got  Rest  Progress  Device  Extended  Bye
producer -> consumer   Welcome  Refused  LayoutTold  Batch  Drawn  EpochStarted  NotJoined  EpochEnded
                       Parked  HeldUp  RankGone  Device  Steered  Extended  Stopping
observer -> producer   Hello  StopProducer  Steer  Extended
producer -> observer   Welcome  Refused  Extended  Stopping
"""

from __future__ import annotations

from typing import Literal

from tsnb.stream.protocol.fields import (
    MAX_LENGTH,
    Block,
    Count,
    Json,
    Large,
    Length,
    Line,
    Seconds,
    Sent,
    Short,
    Word,
    whole_words,
)

__all__ = [
    "ALL_ROWS",
    "MAX_LENGTH",
    "PROTOCOL",
    "WHOLE_EPOCH",
    "Ask",
    "Batch",
    "Bye",
    "Device",
    "Drawn",
    "EpochEnded",
    "EpochStarted",
    "Extended",
    "Got",
    "HeldUp",
    "Hello",
    "LayoutTold",
    "Leave",
    "Message",
    "NotJoined",
    "Parked",
    "Progress",
    "RankGone",
    "Refused",
    "Release",
    "Rest",
    "Steer",
    "Steered",
    "Steering",
    "StopProducer",
    "Stopping",
    "Take",
    "Waiting",
    "Wants",
    "Welcome",
]

PROTOCOL = 36
"""Raised whenever a message changes its meaning or its bytes; both sides must speak the same."""


Steering = Literal["pause", "go on", "stop"]
"""What a consumer may be asked to do."""
WHOLE_EPOCH = (1 << 32) - 1
"""In place of a number of batches: all that the epoch has."""
ALL_ROWS = (1 << 32) - 1
"""In place of a number of rows: all that the batch has."""


class Hello(Sent, frozen=True, tag=13):
    """First message of every connection."""

    role: Line
    """`consumer` or `observer`."""
    name: Line
    """The consumer's name, or its group's; free text for an observer."""
    origin: Line
    """Where it runs, for messages ("script train.py")."""
    protocol: Large = PROTOCOL
    """Stays the fourth field, so that a Hello of any version can be answered. New fields come last."""
    token: Line = ""
    """From the producer's entry in the registry: proof that this process can read it."""
    on_lag: Line = "wait"
    """`wait` or `skip`: whether the others wait for this consumer, or it gives up what it misses."""
    device: Line = ""
    """The device on which it would share batches with others: its kind, identity and the process's namespaces."""
    rank: Large = 0
    world_size: Large = 1
    """More than 1: it is one rank of a group, which takes the stream as one."""
    cut: Line = ""
    """How a rank cuts the stream's batches, in words: the same for all ranks of a group."""
    back: bool = False
    """Whether it comes from a producer that has gone: it may be in the middle of an epoch, and of a step."""
    paused: bool = False
    """Whether it was paused there, and still is."""
    part: Line = ""
    """Which samples it takes, in words: then it is told which samples each batch holds. Empty: it takes all."""
    rotation: Line = ""
    """With which others it takes turns: those that say the same. Empty: with none."""
    rotate: Large = 0
    """The batches of a turn."""
    at_once: Large = 0
    """How many have their turn at the same time."""

    @property
    def shown_name(self) -> str:
        """The name by which the consumer is known: that of a rank is like `bert[0]`."""
        return self.name if self.world_size < 2 else f"{self.name}[{self.rank}]"


class Ask(Sent, frozen=True, tag=6):
    """The consumer says where it stands, and wants to go on from there: its next epoch, or the rest of one."""

    number: Count
    """Counts this consumer's asks, so that the answer cannot be taken for that to an earlier one."""
    epoch: Count = 0
    """Any epoch from this number on will do, from its start."""
    seq: Count = 0
    """Where it is exact: the loader batch of that epoch it wants next."""
    exact: bool = False
    """It wants the rest of just that epoch."""
    now: bool = False
    """It would rather be refused than wait for another epoch to end."""
    held: tuple[Count, ...] = ()
    """Leases it still has. What else was sent to it before has got lost on its way, and is free."""
    patient: bool = False
    """It waits for its place as long as it takes: the stream gives it again once the others have ended their epoch."""
    here: bool = False
    """It would rather begin in the middle of an epoch than wait for another one to end."""


class Wants(Sent, frozen=True, tag=22):
    """Which samples a consumer takes that takes a part of them: said before it asks, in pieces where there are many."""

    offset: Count
    """Bytes of the mask that were said before; 0 begins anew."""
    mask: bytes
    """A bit for each sample of the loader's dataset, the first in the lowest bit of the first byte."""


class Take(Sent, frozen=True, tag=2):
    """The consumer took the next batch it was sent."""

    rows: Count = ALL_ROWS
    """Those of it that are its own; fewer where it takes a part of the samples, or is a rank."""


class Waiting(Sent, frozen=True, tag=4):
    """The consumer has nothing left to take and waits."""


class Release(Sent, frozen=True, tag=3):
    """The last reference to a batch's views has gone (sent by a finalizer, from any thread)."""

    lease: Count


class Leave(Sent, frozen=True, tag=18):
    """The consumer leaves its epoch before the end (`break`)."""


class Got(Sent, frozen=True, tag=5):
    """How many rows the consumer's loops have got since it attached, where that is not what its Takes come to."""

    rows: Large


class Rest(Sent, frozen=True, tag=19):
    """The others should not wait for this consumer's next epoch (its cell has ended)."""

    stands: bool = False
    """It stands in the middle of an epoch: the thread that takes it waits for another consumer's batch."""


class Progress(Sent, frozen=True, tag=21):
    """What a consumer has before it and behind it, and whose run it is: said when it attaches and when that changes."""

    epochs: Length = 0
    """A loop's epochs in all; 0: that is not known, or not any more."""
    run: Count = 0
    """Of its trial's name, from 1; 0: it is not a trial's."""
    epochs_before: Count = 0
    """Whole ones that were taken before it came: by the trial that it is a clone of, or by a process before its own."""
    batches_before: Count = 0
    """The same, of the loader."""


class Bye(Sent, frozen=True, tag=20):
    """The consumer detaches: its name is free, what it still holds stays readable until it closes."""


class StopProducer(Sent, frozen=True, tag=29):
    """An observer asks the producer to stop."""

    reconnect_s: Seconds = 0.0
    """How long consumers should wait for a successor."""


class Steer(Sent, frozen=True, tag=28):
    """An observer asks that consumers pause at their next batch, go on or stop: all of them at once."""

    consumers: dict[Line, Steering]
    """By name."""


class Welcome(Sent, frozen=True, tag=14):
    """The stream as a newcomer must know it; the packet carries the arena's descriptor for consumers.

    Consumers are told it again, without a descriptor, when samples have entered: an epoch has another length then.
    """

    name: Line
    pid: Large
    window: Large
    hold: Large
    batch_size: Large | None
    """The loader's, where it has one."""
    epoch_batches: Length | None
    """Loader batches in an epoch, where known."""
    epoch_samples: Length | None
    """Samples in an epoch, where known."""
    order: Line = ""
    """Says in which order epochs come: equal for equal batches; empty where an epoch cannot be given again."""
    reconnect_s: Seconds = 0.0
    """How long to wait for a successor if the producer dies; 0: there will be none."""
    unordered: Line = ""
    """Why an epoch cannot be given again, and what would change that; empty where it can."""
    guard: bool = False
    """Whether every consumer looks for changes in place by checksums, asked for or not."""
    indexed: Length | None = None
    """Samples of the loader's dataset, where batches can tell which of them they hold."""
    each_once: bool = False
    """Whether an epoch has each of them exactly once."""
    unindexed: Line = ""
    """Why batches cannot tell; empty where they can."""
    grows: bool = False
    """Whether its data set grows: then a Drawn comes before each Batch, and losses are heard."""
    dataset: Json = ""
    """What is told of the loader's dataset, as `stream.loader.facts` has it; empty where it has none."""
    first_seeds: Large = 0
    """How many seeds the plain loader's first `iter` draws from torch's global generator."""
    later_seeds: Large = 0
    """How many each `iter` after it draws."""
    draws: bool = False
    """Whether what the producer's process runs of the loader draws from that process's global generators."""
    stall_timeout_s: Seconds = 30.0
    """How long a consumer that stands still is waited for."""
    inputs: bool = False
    """Whether batches hold the inputs of the stream's frozen part, too (`protocol.forms`)."""
    protocol: Large = PROTOCOL


class Refused(Sent, frozen=True, tag=15):
    """The producer does not take this connection, or does not do what an observer asked for."""

    code: Line
    """`protocol`, `token`, `name-in-use`, `full`, `group`, `rotate` or `stopping`. The connection goes on after
    `in-step` and `unknown`, and after `group` in answer to an Ask."""
    reason: Line


class LayoutTold(Sent, frozen=True, tag=9):
    """From now on `number` stands for this layout."""

    number: Short
    layout: bytes


class Batch(Sent, frozen=True, tag=1):
    """One batch lies in a slot; the consumer holds it until it releases the lease."""

    layout: Short
    slot: Count
    epoch: Count
    seq: Count
    rows: Count
    """Samples in the batch; 0 where its leaves have no common first dimension."""
    lease: Count
    values_offset: Large
    """Where the values text starts in the slot."""
    values_bytes: Large
    place: Count | None = None
    """Where it lies on the consumer's device as well; None: nowhere there."""


class Device(Sent, frozen=True, tag=30):
    """Whether batches are shared on the device that was asked for. A consumer says it only to refuse."""

    handles: Json = ""
    """JSON: how its memory and its events are opened. From now on batches may lie there, too."""
    refusal: Line = ""
    """Why they are not: the consumer copies them there itself. Empty: they are."""


class Drawn(Sent, frozen=True, tag=10):
    """Comes before a Batch, for a consumer that takes a part of the samples, and of a data set that grows.

    It comes in two where the weights do not fit into one packet with the indices: those second.
    """

    lease: Count
    """The batch's."""
    indices: bytes
    """For each row the index of its sample in the loader's dataset, as little-endian uint32; empty: it is not known."""
    weights: bytes = b""
    """For each row its weight, as little-endian float32, of a round in which some samples were likelier than others;
    empty: all are 1."""

    def __post_init__(self) -> None:
        whole_words(self.indices)
        whole_words(self.weights)


class EpochStarted(Sent, frozen=True, tag=7):
    """The answer to an Ask: batches of this epoch follow. Whatever belongs to another is out of date."""

    ask: Count
    epoch: Count
    seq: Count
    """The loader batch of it that comes first."""


class NotJoined(Sent, frozen=True, tag=23):
    """The answer to an Ask that cannot be granted (any more)."""

    ask: Count
    epoch: Count
    """The epoch being given."""
    published: Count
    """Loader batches of it given so far."""
    band: Count
    """Loader batches from an epoch's start that are kept for latecomers."""


class EpochEnded(Sent, frozen=True, tag=8):
    """Every batch of the epoch has been sent; or it ends here, because the loader raised."""

    epoch: Count
    batches: Count
    failed: bool = False
    """Whether the loader raised."""
    message: Block = ""
    """What it raised."""
    traceback: Block = ""
    """And where."""


class Parked(Sent, frozen=True, tag=24):
    """The consumer stood still too long and has lost its place in the epoch."""

    epoch: Count
    seq: Count
    """The first batch it will not get."""
    stood_still_s: Seconds


class HeldUp(Sent, frozen=True, tag=25):
    """The consumer has waited for an epoch for long: others take one that it came too late for."""

    ask: Count
    epoch: Count
    """The one they take."""
    published: Count
    """Loader batches of it given so far."""
    holders: Line
    """The consumers that take it, in words: "a, b and c"."""
    still_s: Seconds
    """For how many seconds none of them has taken a batch."""
    stall_timeout_s: Seconds
    """After how many they lose their place."""


class RankGone(Sent, frozen=True, tag=26):
    """A rank of the consumer's group has gone, and will not come back."""

    rank: Count
    epoch: Count
    """The epoch that it took last."""
    seq: Count
    """The loader batches of that epoch that it took; 0: none of them counts, it died in the middle; `WHOLE_EPOCH`: all.

    The others may go as far as it went, and no further.
    """


class Steered(Sent, frozen=True, tag=27):
    """Somebody asked this consumer to pause at its next batch, to go on, or to stop. Nobody waits for a paused one.

    It has lost its place in the epoch as one that is parked has, and asks for it again when it goes on.
    """

    to: Steering

    @property
    def on(self) -> bool:
        """Whether it pauses."""
        return self.to == "pause"


class Stopping(Sent, frozen=True, tag=16):
    """The producer stops in good order."""

    reason: Line
    reconnect_s: Seconds = 0.0
    """How long to wait for a successor; 0: there will be none."""


class Extended(Sent, frozen=True, tag=12):
    """Something for an extension of the stream, or for that of a consumer (`protocol.extension`)."""

    name: Word
    """The extension's, an identifier of 32 letters at most."""
    payload: bytes
    """In the extension's own words."""


Message = (
    Hello
    | Wants
    | Ask
    | Take
    | Waiting
    | Release
    | Leave
    | Got
    | Rest
    | Progress
    | Bye
    | StopProducer
    | Steer
    | Welcome
    | Refused
    | LayoutTold
    | Batch
    | Device
    | Drawn
    | EpochStarted
    | NotJoined
    | EpochEnded
    | Extended
    | HeldUp
    | Parked
    | RankGone
    | Steered
    | Stopping
)
