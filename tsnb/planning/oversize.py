"""What a trial can do that is larger than the memory, in words: for a plan and a planned sweep."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from tsnb.words import size_text

__all__ = ["died", "oversized", "way_out"]

GIB = 1 << 30
MIB = 1 << 20


def oversized(sizes: Mapping[str, float], memory_bytes: float) -> str:
    """Say of trials that are larger than all of the memory what they can do; empty: there are none.

    Args:
        sizes: Bytes of memory of each, by name.
        memory_bytes: For all that run at once.
    """
    large = [(name, size) for name, size in sizes.items() if size > memory_bytes]
    if not large:
        return ""
    named = ", ".join(f"{name} ({size_text(size)})" for name, size in large)
    what = "does not fit into memory, even alone" if len(large) == 1 else "do not fit into memory, even alone"
    return f"{named} {what}: {size_text(memory_bytes)} are available. {way_out(memory_bytes)}."


def way_out(memory_bytes: float) -> str:
    """Return in words what a training can do that is larger than the memory.

    Half of it for parameters and states is where to begin: activations, one gradient and the process need the rest.

    Args:
        memory_bytes: What there is.
    """
    half = memory_bytes / 2
    limit = f"{int(half / GIB)}GiB" if half >= 10 * GIB else f"{max(1, int(half / MIB))}MiB"
    return (
        f'tsnb.offload(model, optimizer, limit="{limit}") keeps parameters and optimizer states in a file, '
        "and at most this much of them in memory"
    )


def died(process: str, peak_bytes: float, *, alone: bool = True) -> str:
    """Say in words that a trial's process died while it was measured, and what to do if memory was the reason.

    Args:
        process: Whose process it was, "its process".
        peak_bytes: The largest memory that it was seen to have.
        alone: Whether nothing smaller is tried anyhow; else it is only said.
    """
    if not (isfinite(peak_bytes) and peak_bytes > 0):
        return f"{process} died while it was measured"
    if not alone:
        return f"{process} died while it was measured, with {size_text(peak_bytes)}"
    return (
        f"{process} died while it was measured, with {size_text(peak_bytes)}. If the system killed it for "
        f"lack of memory: {way_out(peak_bytes)}"
    )
