"""The messages about batches that lie on a device as well; a part of `protocol.messages`."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["DeviceRefused", "DeviceTold", "OnDevice"]


class DeviceTold(NamedTuple):
    """From now on batches may lie on the device that was asked for, too."""

    handles: str
    """JSON: how its memory and its events are opened."""


class DeviceRefused(NamedTuple):
    """Batches are not shared on the device: the consumer copies them there itself. Either side may say so."""

    reason: str


class OnDevice(NamedTuple):
    """The batch that follows, by its lease, lies on the device as well."""

    lease: int
    place: int
