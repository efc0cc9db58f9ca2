"""The kinds of device whose memory can be shared, by torch's words for them."""

from __future__ import annotations

from collections.abc import Callable

from tsnb.hardware.copies import DeviceKind, SharingRefused

__all__ = ["kind_of", "kinds"]


def _cuda() -> DeviceKind:
    from tsnb.hardware.cuda import Cuda

    return Cuda()


kinds: dict[str, Callable[[], DeviceKind]] = {"cuda": _cuda}
"""What makes each kind. Tests enter one of their own."""


def kind_of(word: str) -> DeviceKind:
    """Return a kind of device.

    Raises:
        SharingRefused: There is none of that name.
    """
    if word not in kinds:
        raise SharingRefused(f"memory of a {word!r} device cannot be shared")
    return kinds[word]()
