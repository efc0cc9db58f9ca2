"""The kinds of device whose memory can be shared, by torch's words, and how a consumer names the device that it wants.

A consumer's wish is one word: the kind, the device's identity, and the namespaces of the consumer's process.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from tsnb.device_sharing.copies import DeviceKind, SharingRefused

__all__ = ["kind_of", "kinds", "namespaces", "obstacle_between", "read_wish", "write_wish"]


def _cuda() -> DeviceKind:
    from tsnb.device_sharing.cuda import Cuda

    return Cuda()


kinds: dict[str, Callable[[], DeviceKind]] = {"cuda": _cuda}
"""What makes each kind. Tests enter one of their own."""


def kind_of(word: str) -> DeviceKind:
    """Return a kind of device.

    Raises:
        SharingRefused: Memory of that kind of device cannot be shared.
    """
    if word not in kinds:
        raise SharingRefused(f"memory of a {word!r} device cannot be shared")
    return kinds[word]()


def write_wish(kind: str, identity: str) -> str:
    """Return a wish of this process: "cuda|GPU-...|ipc:[4026531839] pid:[4026531836]"."""
    return f"{kind}|{identity}|{namespaces()}"


def read_wish(word: str) -> tuple[str, str, str]:
    """Return kind, identity and namespaces.

    Raises:
        ValueError: It is not a wish.
    """
    parts = word.split("|")
    if len(parts) != 3 or not all(parts[:2]):
        raise ValueError("the device name is not valid")
    return parts[0], parts[1], parts[2]


def namespaces() -> str:
    """Return what tells this process's container from others; empty where the system does not tell."""
    try:
        return " ".join(os.readlink(f"/proc/self/ns/{kind}") for kind in ("ipc", "pid"))  # noqa: PTH115 (no Path)
    except OSError:
        return ""


def obstacle_between(producer: str, consumer: str, device: str, *, wsl: bool = False) -> str:
    """Return why two processes cannot share a GPU's memory; empty where nothing speaks against it.

    Args:
        producer: The namespaces of the loader's process, as one word.
        consumer: Those of the trial's.
        device: The GPU's UUID, "MIG-..." of an instance.
        wsl: Whether this is Linux inside Windows.
    """
    if device.startswith("MIG-"):
        return "a MIG instance cannot share its memory between processes"
    if wsl:
        return "CUDA under WSL cannot share memory between processes"
    if producer != consumer:
        return "the loader runs in another container (another IPC or process namespace)"
    return ""
