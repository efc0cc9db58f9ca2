"""The contract of memory that trials share on a device: which side copies into it, which reads it, and in which order.

The producer copies: it has the host's arena, and lives as long as the stream. It is given a device the first time that
a consumer there asks for it. For each batch:

1. a place is free when all who had a view of it have let go, and their kernels are over;
2. the bytes are copied there, once however many consumers there are, and *ready* is recorded behind them;
3. a consumer waits on the host until *ready* has come, then its kernels read;
4. when the last reference to a view has gone, and the kernels given so far are over, the consumer releases its lease.

So no GPU ever waits for what another process does: a process that is killed, or whose kernel fails, holds nobody up.

Implementations: `cuda`, and memory of the CPU that stands for a device in the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch

from tsnb.stream.memory.arena import Arena

__all__ = ["DeviceCopies", "DeviceKind", "DeviceViews", "SharingRefused"]


class SharingRefused(Exception):
    """Memory cannot be shared on that device; says why, in words that end no sentence."""


class DeviceCopies(Protocol):
    """The producer's side: one device's memory, cut in places of one size. Called under the producer's lock."""

    def copy(self, source: int, size: int, place: int) -> None:
        """Begin to copy a batch, step 2; return at once.

        Args:
            source: The host's slot.
            size: Its first bytes that count.
            place: Where to.
        """

    def copying(self, source: int) -> bool:
        """Whether a copy from that slot of the host is not over: till then nobody may write there."""

    def enter(self) -> Mapping[str, Any]:
        """Return what a consumer's process needs to open the memory and the events, as JSON has it."""

    def stop(self) -> None:
        """Wait for the copies; none follows, and the host's arena may go. What lies there stays."""

    def close(self) -> None:
        """The same, and give the memory back. Nobody reads it any more."""


class DeviceViews(Protocol):
    """A consumer's side. Called in the thread that iterates."""

    def view(self, place: int, size: int, owner: Any) -> torch.Tensor:
        """Return a place's first bytes, steps 3 and 4: uint8 [size], which keeps `owner` alive as long as itself.

        Raises:
            SharingRefused: The copy is not over in time.
        """

    def close(self) -> None:
        """Let go of the memory. Called when no view is left, once what had read them is over."""


class DeviceKind(Protocol):
    """One kind of device."""

    def identity(self, device: torch.device) -> str:
        """Return what both processes call a device, whatever its number is in each.

        Raises:
            SharingRefused: It cannot be shared.
        """

    def free_bytes(self, identity: str) -> int:
        """Return the memory that is free there. May take seconds, the first time.

        Raises:
            SharingRefused: This process does not see that device.
        """

    def copies(self, identity: str, arena: Arena, places: int, place_bytes: int) -> DeviceCopies:
        """Take memory on a device, in the producer.

        Raises:
            SharingRefused: It cannot be had.
        """

    def views(self, device: torch.device, told: Mapping[str, Any]) -> DeviceViews:
        """Open what `DeviceCopies.enter` has returned, in a consumer.

        Raises:
            SharingRefused: It cannot be opened.
        """
