"""What a consumer says of the device that it wants its batches on: kind, identity and namespaces, in one word."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["namespaces", "read_wish", "under_wsl", "write_wish"]


def write_wish(kind: str, identity: str) -> str:
    """Return a wish of this process: "cuda|GPU-...|ipc:[4026531839] pid:[4026531836]"."""
    return f"{kind}|{identity}|{namespaces()}"


def read_wish(word: str) -> tuple[str, str, str]:
    """Return kind, identity and namespaces.

    Raises:
        ValueError: It is no wish.
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


def under_wsl() -> bool:
    """Whether this is Linux inside Windows."""
    try:
        return "microsoft" in Path("/proc/sys/kernel/osrelease").read_text().lower()
    except OSError:
        return False
