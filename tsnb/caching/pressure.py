"""What of this machine's memory prepared samples may have now. Looks at the machine; `choice` decides."""

from __future__ import annotations

from tsnb.caching.choice import floor_of, to_give_back
from tsnb.machine.memory import free_memory, memory_bounds

__all__ = ["LOOK_S", "room_within", "wanted_back"]

LOOK_S = 0.2
"""How often free memory is looked at: it is given back within a second."""


def room_within(limit_bytes: int) -> int:
    """Return the memory for samples: a limit, and no more than is free above the floor."""
    free, bounds = free_memory(), memory_bounds()
    if free is None or bounds is None:
        return limit_bytes
    return max(0, min(limit_bytes, free.size - 2 * floor_of(bounds.total_bytes)))


def wanted_back(used_bytes: int, stalled: float) -> int:
    """Return how many bytes of samples to give back now.

    Args:
        used_bytes: What they take.
        stalled: As `choice.to_give_back`.
    """
    free, bounds = free_memory(), memory_bounds()
    if free is None or bounds is None:
        return 0
    return to_give_back(used_bytes, free.size, floor_of(bounds.total_bytes), stalled)
