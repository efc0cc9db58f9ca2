"""How many cores a process may use."""

from __future__ import annotations

import os

__all__ = ["usable_cores"]


def usable_cores(pid: int = 0) -> int:
    """Return how many cores a process may use: those of its affinity; all, where systems know no affinity.

    Args:
        pid: The process; 0: this one.

    Raises:
        OSError: It has gone.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(pid))
    return os.cpu_count() or 1
