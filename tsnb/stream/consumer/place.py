"""A place in a stream: the next sample of a consumer, how it is saved, and where a stream can go on from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tsnb.errors import JoinRefused
from tsnb.stream.protocol import messages as ms

__all__ = ["Loop", "Place", "require_same"]

_VERSION = 1


class Place(NamedTuple):
    """The first sample that is still to come."""

    epoch: int = 0
    """The epoch's number; the least one that will do, while it has not begun."""
    batch: int = 0
    """The loader batch of it."""
    offset: int = 0
    """Rows of that loader batch that lie behind: other than 0 only where batches are cut to another size."""
    begun: bool = False
    """Whether the consumer has begun with just this epoch."""

    def next_epoch(self) -> Place:
        """Return the place after this one's epoch, or this one if it has not begun."""
        return Place(self.epoch + 1) if self.begun else self

    def to_state(self, stream: str, order: str) -> dict[str, Any]:
        """Return it as plain values.

        Args:
            stream: The stream's name.
            order: What the producer says of the order in which epochs come.
        """
        saved = {"epoch": self.epoch, "batch": self.batch, "offset": self.offset}
        return {"tsnb": _VERSION, "stream": stream, "order": order, **saved}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Place:
        """Read what `to_state` returned.

        Raises:
            ValueError: It is something else.
        """
        numbers = [state.get(key) for key in ("tsnb", "epoch", "batch", "offset")]
        if not all(isinstance(n, int) and 0 <= n < 1 << 31 for n in numbers) or numbers[0] != _VERSION:
            raise ValueError(
                "This is not a state that Consumer.state_dict() of this version of tsnb returned: "
                f"{dict(state)!r}"
            )
        _, epoch, batch, offset = numbers
        return cls(epoch, batch, offset, begun=bool(batch or offset))  # type: ignore[arg-type]


class Loop:
    """How far one loop over a consumer has come: all that is kept of the loop itself.

    The iterator must not be kept: the end of its last reference is how `break` is noticed.

    Attributes:
        place: The first sample that the user has not been given.
        first: Where it was to begin.
        given: Batches that the user has been given, in the consumer's own size.
        whole: Whether it began with the epoch's first sample.
        over: Whether it was ended behind its last batch, though nobody has asked for one more.
    """

    def __init__(self, place: Place) -> None:
        self.place = self.first = place
        self.given = 0
        self.whole = not (place.batch or place.offset)
        self.over = False

    def began(self, epoch: int, batch: int) -> None:
        """The producer says what comes first.

        It may say so again: before the first batch, with the number of a later epoch; or after a restart, when the
        loop has rows that it has not given yet, and its own place is the one that counts.
        """
        if not self.place.begun:
            self.whole = not batch
        if not self.place.begun or not (batch or self.place.batch or self.place.offset):
            self.place = Place(epoch, batch, 0, begun=True)


def require_same(place: Place, state: Mapping[str, Any], stream: ms.Welcome, part: str) -> None:
    """Refuse to go on within an epoch of which the stream would give other samples, or in another order.

    Args:
        place: Where.
        state: What was saved with it.
        stream: The stream.
        part: The identity of the samples that the consumer takes; empty: all.

    Raises:
        JoinRefused: It would.
    """
    if not place.begun:
        return
    if not stream.order or state.get("order") != stream.order:
        why = (
            (
                "has another order than when this state was saved. Serve the same DataLoader with the same "
                "seed= again"
            )
            if stream.order
            else f"cannot repeat an epoch: {stream.unordered or 'its loader has no reproducible order'}"
        )
        raise JoinRefused(
            f"Pass {place.epoch + 1} cannot continue at batch {place.batch}: stream {stream.name!r} "
            f"{why}. Or leave the state out, to start with a whole epoch."
        )
    if state.get("part", "") != part:
        raise JoinRefused(
            f"Pass {place.epoch + 1} cannot continue at batch {place.batch}: this state was saved by a "
            "trial that took other samples. Attach with the same subset= or fold= again, or leave the "
            "state out, to start with a whole epoch."
        )
