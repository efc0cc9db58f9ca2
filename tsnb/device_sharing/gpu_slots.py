"""Which batch lies where in the memory that trials share on one GPU. Pure.

The GPU has room for fewer batches than the host's arena has slots: here lie those that were copied last. A batch
is copied when the first consumer on that GPU is granted it; the others get the same place. A place is written anew only
when nobody holds a lease on it: a lease ends when its kernels are over. Where no place is free the batch goes to the
consumer as without any, through the host's arena: nobody waits for a place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["GpuPlace", "GpuSlots"]


class GpuPlace(NamedTuple):
    """Where a batch lies."""

    slot: int
    """Its place on the GPU."""
    copy: bool
    """Whether it has to be copied there first."""


@dataclass
class _Slot:
    batch: int | None = None
    """The host's slot that it was copied from; None: of no use to newcomers."""
    leases: set[tuple[int, int]] = field(default_factory=set)
    """Members and their leases."""
    written: int = 0
    """Counts copies: the smallest is the oldest."""


class GpuSlots:
    """The places of one GPU.

    Args:
        slots: How many batches there is room for.
    """

    def __init__(self, slots: int) -> None:
        self._slots = [_Slot() for _ in range(slots)]
        self._of: dict[int, int] = {}
        self._leases: dict[tuple[int, int], int] = {}
        self._written = 0

    @property
    def leased(self) -> bool:
        """Whether anybody holds a lease."""
        return bool(self._leases)

    def place(self, batch: int, member: int, lease: int) -> GpuPlace | None:
        """Return where a batch lies, or is to be copied to, for a member that is granted it; None: no place is free.

        Args:
            batch: The host's slot that it lies in.
            member: The consumer that is granted it.
            lease: By which lease.
        """
        number = self._of.get(batch)
        if number is not None:
            self._enter(number, member, lease)
            return GpuPlace(number, copy=False)
        number = self._free()
        if number is None:
            return None
        slot = self._slots[number]
        if slot.batch is not None:
            del self._of[slot.batch]
        self._written += 1
        self._slots[number] = _Slot(batch, written=self._written)
        self._of[batch] = number
        self._enter(number, member, lease)
        return GpuPlace(number, copy=True)

    def release(self, member: int, lease: int) -> None:
        """A member has let go of a lease; one that lies elsewhere is not looked at here."""
        number = self._leases.pop((member, lease), None)
        if number is not None:
            self._slots[number].leases.discard((member, lease))

    def keep(self, member: int, leases: frozenset[int]) -> None:
        """Take in which leases a member has; all others that it had got lost on their way."""
        for who, lease in [key for key in self._leases if key[0] == member and key[1] not in leases]:
            self.release(who, lease)

    def leave(self, member: int) -> None:
        """A member has gone, with its kernels: it detaches when they are over, or was killed with them."""
        self.keep(member, frozenset())

    def forget(self, batch: int) -> None:
        """Note that the host's slot is given to another batch; consumers that still read this one keep its place."""
        number = self._of.pop(batch, None)
        if number is not None:
            self._slots[number].batch = None

    def _enter(self, number: int, member: int, lease: int) -> None:
        self._slots[number].leases.add((member, lease))
        self._leases[member, lease] = number

    def _free(self) -> int | None:
        """Return a place that no consumer holds: one of no use any more, else the oldest."""
        free = [n for n, slot in enumerate(self._slots) if not slot.leases]
        return min(
            free, key=lambda n: (self._slots[n].batch is not None, self._slots[n].written), default=None
        )

    def check(self) -> None:
        """Verify what must hold after every step; called by tests."""
        for batch, number in self._of.items():
            assert self._slots[number].batch == batch, (batch, number)
        for key, number in self._leases.items():
            assert key in self._slots[number].leases, (key, number)
        for number, slot in enumerate(self._slots):
            assert slot.batch is None or self._of[slot.batch] == number, slot
            assert all(self._leases[key] == number for key in slot.leases), slot
