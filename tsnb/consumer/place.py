"""Where a consumer stands in a stream, and how that is saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Place", "Progress"]

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
        if not all(isinstance(n, int) and n >= 0 for n in numbers) or numbers[0] != _VERSION:
            raise ValueError(
                f"this is not what Consumer.state_dict() of this version of tsnb returned: {dict(state)!r}"
            )
        _, epoch, batch, offset = numbers
        return cls(epoch, batch, offset, begun=bool(batch or offset))  # type: ignore[arg-type]


class Progress:
    """How far one loop over a consumer has come: all that the consumer keeps of the loop itself.

    It must not keep the loop: the end of a loop's last reference is how `break` is noticed.

    Attributes:
        place: The first sample that the user has not been given.
    """

    def __init__(self, place: Place) -> None:
        self.place = place

    def began(self, epoch: int, batch: int) -> None:
        """The producer says what comes first.

        It may say so again: before the first batch, with the number of a later epoch; or after a restart, when the
        loop has rows that it has not given yet, and its own place is the one that counts.
        """
        if not self.place.begun or not (batch or self.place.batch or self.place.offset):
            self.place = Place(epoch, batch, 0, begun=True)
