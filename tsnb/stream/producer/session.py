"""One connection to a producer: a consumer or an observer, and what has been told to it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tsnb.errors import LocalProtocolError
from tsnb.stream.decisions import events as ev
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.codec import encode
from tsnb.stream.protocol.table import LayoutWriter
from tsnb.stream.transport.channel import Channel, ChannelClosed, Outbox

__all__ = ["Session", "indices_of"]

MAX_DRAWN = 30_000
"""Rows of a batch that can tell which samples they are: as many indices as go into a packet."""
WORD_BYTES = 4
"""Of an index, and of a weight."""


@dataclass
class Session:
    """One connection. Used under the producer's lock.

    A channel that turns out closed while sending is noted in `broken`; the serving thread sees the end of file
    at its next look and drops the session there, in one place.
    """

    key: int
    channel: Channel
    role: str = ""
    """`consumer` or `observer`; empty until its Hello came; `leaving` once a consumer said Bye."""
    name: str = ""
    origin: str = ""
    broken: bool = False
    knows_news: int = 0
    """How many news of the stream an observer has been told of."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What extensions keep of it, each by its own name."""
    planned: int = 0
    """Epochs that a consumer takes in all; 0: it has not said."""
    run: int = 0
    """Which run of its trial's name a consumer belongs to; 0: it has not said."""
    before: tuple[int, int] = (0, 0)
    """Epochs and loader batches that lay behind a consumer when it came."""
    late: set[int] = field(default_factory=set)
    """Keys of the connections to which something waits to be sent, or that have gone: one set for all."""
    part: str = ""
    """Which samples a consumer takes, in words. Empty: all."""
    tells_rows: bool = False
    """Whether a consumer is told which samples each batch holds: it takes a part, or the data set grows."""
    number: int = field(default_factory=itertools.count().__next__)
    """Tells it from another one that has the same key, or name, later."""

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.channel)
        self._layouts = LayoutWriter()

    @property
    def pid(self) -> int:
        """Its process."""
        return self.channel.peer.pid

    def tell(self, extension: str, payload: bytes) -> None:
        """Send an extension's payload, or keep it until there is room."""
        self.send(ms.Extended(extension, payload))

    def send(self, message: ms.Message) -> None:
        """Send a message, or keep it until there is room."""
        if self.broken:
            return
        try:
            if not self.outbox.post(encode(message)):
                self.late.add(self.key)
        except (ChannelClosed, LocalProtocolError):  # too large for a packet: this one connection ends
            self.broken = True
            self.late.add(self.key)

    def flush(self) -> bool:
        """Send the waiting packets; return whether none is left, or the other end has gone."""
        try:
            return self.outbox.flush()
        except ChannelClosed:
            return True

    def grant(self, granted: ev.Granted, place: int | None = None) -> None:
        """Send a batch, and its layout before it where the consumer does not know it yet.

        Args:
            granted: The batch.
            place: Where it lies on the consumer's device; None: nowhere there.
        """
        placed = granted.batch
        number, new = self._layouts.intern(placed.layout)
        if new:
            self.send(ms.LayoutTold(number, placed.layout))
        if self.tells_rows:
            indices, weights = indices_of(placed.drawn), placed.weights
            apart = len(indices) + len(weights) > MAX_DRAWN * WORD_BYTES
            self.send(ms.Drawn(granted.lease, indices, b"" if apart else weights))
            if apart:
                self.send(ms.Drawn(granted.lease, b"", weights))
        self.send(
            ms.Batch(
                number,
                placed.slot,
                granted.epoch,
                granted.seq,
                placed.rows,
                granted.lease,
                placed.values_offset,
                placed.values_bytes,
                place,
            )
        )

    def forget_layouts(self) -> None:
        """Tell layouts afresh: one of them may have got lost in the consumer, by an interrupt."""
        self._layouts = LayoutWriter()

    def note(self, told: ms.Progress) -> None:
        """Keep what a consumer says of itself."""
        self.planned, self.run = told.epochs, told.run
        self.before = told.epochs_before, told.batches_before


def indices_of(drawn: Sequence[Any] | None) -> bytes:
    """Return indices as `protocol.messages.Drawn` has them; empty if unknown, or too many for a packet."""
    try:
        numbers = np.array([] if drawn is None or len(drawn) > MAX_DRAWN else drawn)
        if numbers.dtype.kind not in "iu" or numbers.ndim != 1 or numbers.min(initial=0) < 0:
            return b""
        return numbers.astype("<u4").tobytes()
    except (TypeError, ValueError, RuntimeError):  # a sampler of the user's may give anything
        return b""
