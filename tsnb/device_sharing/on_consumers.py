"""A consumer's side of shared devices: asks the producer for batches there, opens the memory, and falls back."""

from __future__ import annotations

import json
import os
from typing import Any

import torch

from tsnb.device_sharing.copies import DeviceViews, SharingRefused
from tsnb.device_sharing.driver import PinnedSlots
from tsnb.device_sharing.kinds import kind_of, write_wish
from tsnb.stream.consumer.batches.device import DeviceAccess, DeviceShare
from tsnb.stream.memory.arena import Arena

__all__ = ["SharedDevices"]


class DeviceReader(DeviceShare):
    """What one connection knows of its device, where batches are shared.

    Args:
        device: Where batches are wanted to be shared; None: nowhere.
        producer: The process that serves them.
    """

    def __init__(self, device: torch.device | None, producer: int) -> None:
        super().__init__()
        self._device = device
        self._views: DeviceViews | None = None
        self._places: dict[int, int] = {}
        if device is None:
            return
        if producer == os.getpid():
            self.refusal = "the loader is served by this same process"
            return
        try:
            self.wish = write_wish(device.type, kind_of(device.type).identity(device))
        except SharingRefused as error:
            self.refusal = str(error)

    def open(self, handles: str) -> bool:
        """Open the producer's memory; return whether that went well."""
        try:
            if self._device is None:
                raise SharingRefused("it was not requested")
            self._views = kind_of(self._device.type).views(self._device, json.loads(handles))
        except (
            SharingRefused, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError
        ) as error:  # fmt: skip
            self.refuse(str(error)[:500])
            return False
        return True

    def refuse(self, reason: str) -> None:
        """Batches come through the host's arena from now on."""
        self.refusal = reason
        self._places.clear()

    def lies(self, lease: int, place: int) -> None:
        """The batch of that lease, which follows, lies in a place of the device."""
        if self._views is not None:
            self._places[lease] = place

    def has(self, lease: int) -> bool:
        """Whether the batch of that lease lies in a place of the device."""
        return lease in self._places

    def view(self, lease: int, size: int, owner: Any) -> torch.Tensor | None:
        """Return a batch's bytes on the device, uint8 [size]; None: it does not lie there.

        Args:
            lease: The batch's.
            size: Bytes of its arrays.
            owner: Kept alive by the tensor, and by all that is made of it.
        """
        place = self._places.pop(lease, None)
        if place is None or self._views is None:
            return None
        try:
            found = self._views.view(place, size, owner)
        except SharingRefused as error:
            self.refuse(str(error))
            return None
        self.taken += 1
        return found

    def close(self) -> None:
        """Let go of the memory; no view is left."""
        views, self._views = self._views, None
        if views is not None:
            views.close()


class SharedDevices(DeviceAccess):
    """Batches shared on devices, and slots of the arena that are locked for copies to one."""

    def share(self, device: torch.device | None, producer: int) -> DeviceShare:
        """Return what a connection knows of its device."""
        return DeviceReader(device, producer)

    def locked(self, arena: Arena) -> PinnedSlots:
        """Return the slots of an arena that this process has locked."""
        return PinnedSlots(arena)
