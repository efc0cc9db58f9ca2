"""Which slots are free, shared by the producer and its loader's workers without a lock.

Free slots that workers may take wait in a non-blocking pipe: reading four bytes from it is one atomic system
call, from any process. Only as many wait there as the workers can use at once; the others lie on the
producer's own stack, the last freed on top, so that the same few warm slots go round and the rest of the
arena is never touched.

Slots that were needed once, while a consumer lagged, and then lie free are *cold*: those at the bottom of the stack
that have not moved for a while. Their memory is given back (`FreeSlots.cold`).
"""

from __future__ import annotations

import os
import select
import struct
import time
from multiprocessing.reduction import DupFd
from typing import Any

from tsnb.config import explained

__all__ = ["FreeSlots", "SlotPipe"]

_SLOT = struct.Struct("<i")
COLD_LOOKS = 10
"""Looks, a second apart, through which a slot has to lie free before it is cold. One that lags again and again, within
some seconds, finds its slots warm."""


class SlotPipe:
    """The workers' end: take a free slot."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def take(self, timeout_s: float) -> int | None:
        """Return a free slot, or None when none came in time."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return int(_SLOT.unpack(os.read(self.fd, _SLOT.size))[0])
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
            except struct.error:  # the producer closed its end
                return None
            waiter = select.poll()
            waiter.register(self.fd, select.POLLIN)
            waiter.poll(left * 1000)

    def __getstate__(self) -> Any:
        return DupFd(self.fd)  # only while multiprocessing spawns a worker

    def __setstate__(self, fd: Any) -> None:
        self.fd = fd.detach()


class FreeSlots:
    """The producer's side. Not thread-safe: called under the producer's lock.

    Attributes:
        in_pipe: How many slots may be with the workers at once: waiting in the pipe, or being written by one.
        resting: How many slots lie free that have been written into and still have their memory.
    """

    def __init__(self, in_pipe: int = 1) -> None:
        with explained("make a pipe for free buffers"):
            read, self._write = os.pipe()
        os.set_blocking(read, False)
        self.pipe = SlotPipe(read)
        self.in_pipe = in_pipe
        self._stack: list[int] = []
        self._issued: set[int] = set()  # in the pipe, or with a worker that has not delivered yet
        self.resting = 0
        self._touched: set[int] = set()  # have memory, wherever they are
        self._least = 0  # the stack's lowest height since the last period began: what is below has not moved
        self._looks = 0  # in this period
        self._cold = 0  # what lies below this height is cold, as far as it is still there

    def open(self, slots: int) -> None:
        """All slots are free from now on (the arena has got its geometry)."""
        self._stack = list(range(slots - 1, -1, -1))
        self._least = slots
        self.refill()

    def free(self, slot: int) -> None:
        """Give a slot back."""
        self._stack.append(slot)
        self.resting += 1
        self.refill()

    def delivered(self, slot: int) -> None:
        """A worker has written this slot and handed its batch over. `refill` comes after the batch is sent."""
        self._issued.discard(slot)

    def refill(self) -> None:
        """Keep the pipe filled."""
        while len(self._issued) < self.in_pipe and self._stack:
            slot = self._pop()
            self._issued.add(slot)
            os.write(self._write, _SLOT.pack(slot))

    def take(self) -> int | None:
        """Take a slot for the producer's own copy, without waiting; None when all are in use."""
        if self._stack:
            return self._pop()
        slot = self.pipe.take(0)
        if slot is not None:
            self._issued.discard(slot)
        return slot

    def reclaim(self) -> None:
        """Take back what workers had when they ended. Called only when none of them runs any more."""
        while self.pipe.take(0) is not None:
            pass
        self._stack.extend(self._issued)
        self.resting += len(self._issued)
        self._issued.clear()
        self.refill()

    def _pop(self) -> int:
        slot = self._stack.pop()
        self._least = min(self._least, len(self._stack))
        if slot in self._touched:
            self.resting -= 1
        else:
            self._touched.add(slot)
        return slot

    def cold(self, most: int, keep: int) -> list[int]:
        """Look for cold slots, and take some out, so that their memory can be given back; then they are `cooled`.

        Called once a second while `resting` is more than `keep`.

        Args:
            most: Take no more at once.
            keep: So many on top of the stack stay as they are, however long nothing happens.
        """
        self._looks += 1
        self._cold = min(self._cold, self._least)
        if self._looks >= COLD_LOOKS:
            self._looks, self._cold, self._least = 0, self._least, len(self._stack)
        low = self._stack[: max(0, min(self._cold, len(self._stack) - keep))]
        found = [slot for slot in low if slot in self._touched][:most]
        gone = set(found)
        self._stack[: len(low)] = [slot for slot in low if slot not in gone]
        self._touched -= gone
        self.resting -= len(found)
        self._least -= len(found)
        self._cold -= len(found)
        return found

    def cooled(self, slots: list[int]) -> None:
        """Put slots back that have no memory now: at the bottom, to be taken last."""
        self._stack[:0] = slots
        self._least += len(slots)
        self._cold += len(slots)
        self.refill()

    def free_ones(self) -> set[int]:
        """Return the slots that lie free here and have been written into."""
        return self._touched.intersection(self._stack)

    def close(self) -> None:
        """Close the pipe. Workers that wait on it give up at once."""
        os.close(self._write)
        os.close(self.pipe.fd)
