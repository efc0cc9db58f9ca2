"""Batches on devices, as the producer sees them: by itself it has none. `tsnb.serving` hands in those that share."""

from __future__ import annotations

from tsnb.stream.decisions import events as ev

__all__ = ["StreamDevices"]


class StreamDevices:
    """The devices of one producer: none. All is called under the producer's lock.

    Attributes:
        copied_bytes: Bytes copied to devices so far.
    """

    copied_bytes = 0

    @property
    def busy(self) -> bool:
        """Whether there is anything to do here."""
        return False

    def wish(self, member: int, word: str) -> None:
        """Note that a new consumer would have its batches on a device; an empty word: on none."""

    def place(self, granted: ev.Granted) -> int | None:
        """Return where a batch lies on its consumer's device; None: nowhere."""

    def note(self, event: ev.Event) -> None:
        """Take in the events by which consumers let go of places."""

    def leave(self, member: int) -> None:
        """Note that a consumer has gone, or wants nothing on a device any more."""

    def keeps(self, slot: int) -> bool:
        """The host's slot is free for another batch: return whether a copy from it is under way, so that it is not."""
        return False

    def settled(self) -> list[int]:
        """Return the slots that were kept and need be no longer."""
        return []

    def close(self) -> None:
        """Give back all memory that is no longer read."""
