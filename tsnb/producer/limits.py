"""Looks before allocating: the memory that a stream uses for certain, against what is free.

The arena is sparse, so its size says nothing; what counts is how many batches lie in it at once. In bytes, with b
the size of the first batch, `band` the batches that the rubber band keeps and `ahead` those that the loader's
workers prepare:

    certain = b x (kept + 1 + ahead + 2)        kept = max(window, band), at most an epoch

the batches kept for the slowest consumer and for latecomers, the one being granted, and the slots that the workers
have in hand or wait for. It is reached in every epoch in which two consumers drift apart. What consumers hold beyond
comes on top (docs/architecture.md has the bound), so this refuses only what could not go well.

Free is the least of what the system has available and what is left to each control group that this process is in:
a container's limit, a batch scheduler's, or systemd's. Memory that gets short later is not watched.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tsnb.errors import ArenaFull

__all__ = ["Free", "certain_batches", "free_memory", "require_memory"]


class Free(NamedTuple):
    """Memory that can be had."""

    size: int
    """Bytes."""
    where: str
    """Who sets that limit, for messages."""


def certain_batches(window: int, band: int, batches: int | None, ahead: int) -> int:
    """Return how many batches will lie in the arena at once.

    Args:
        window: Batches that the fastest consumer may be ahead of the slowest.
        band: Batches that the rubber band keeps.
        batches: In an epoch, where known.
        ahead: Batches that the loader's workers prepare ahead.
    """
    kept = max(window, band)
    return (kept if batches is None else min(kept, batches)) + 1 + ahead + 2


def require_memory(
    window: int, band: int, batches: int | None, ahead: int, batch_bytes: int, free: Free | None
) -> None:
    """Check that a stream has the memory that it will use for certain.

    Args:
        window: As `certain_batches`.
        band: As `certain_batches`.
        batches: As `certain_batches`.
        ahead: As `certain_batches`.
        batch_bytes: What the first batch takes.
        free: What can be had; None where the system does not tell.

    Raises:
        ArenaFull: It has not; names the numbers, and the option that is worth lowering.
    """
    count = certain_batches(window, band, batches, ahead)
    if free is None or count * batch_bytes <= free.size:
        return
    moving = 1 + ahead + 2
    raise ArenaFull(
        f"this stream would keep {count:,} batches of {_human(batch_bytes)} in memory at once, "
        f"{_human(count * batch_bytes)} in all, and {_human(free.size)} are free ({free.where}). "
        f"{count - moving:,} are for {'the rubber band' if band > window else 'the window'}, {moving} on their way. "
        f"{_way_out(window, band, ahead, free.size // max(1, batch_bytes))}"
    )


def _way_out(window: int, band: int, ahead: int, fits: int) -> str:
    """Return what to lower first, by how much at least."""
    least = 1 + ahead + 2
    if band > window and fits > least + window:
        return "Serve with a smaller rubber_band= (0 keeps no more than the window)."
    if fits > least + 1:
        return f"Serve with window={fits - least - 1} or less and rubber_band=0."
    if ahead and fits > 4:
        return "Serve with window=1, rubber_band=0 and fewer workers= (or a smaller prefetch_factor)."
    return "Give the loader a smaller batch_size."


def free_memory(root: Path = Path("/")) -> Free | None:
    """Return the memory that this process can still have; None where the system does not tell.

    Args:
        root: Where /proc and /sys are.
    """
    found = [*_control_groups(root)]
    available = _available(root)
    if available is not None:
        found.append(Free(available, "of the machine's memory"))
    return min(found, default=None)


def _available(root: Path) -> int | None:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _control_groups(root: Path) -> list[Free]:
    """Return what is left to every control group with a limit that this process is in."""
    found = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file ")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
        else:
            continue
        # the limits of the groups around it hold too. In a container the path may be the host's and lead nowhere;
        # the container's own group is then mounted at the base
        group = base / path.lstrip("/")
        for directory in (group, *(p for p in group.parents if p.is_relative_to(base))):
            left = _left(directory, *names)
            if left is not None:
                found.append(
                    Free(left, f"of the memory limit of this container or control group, {directory}")
                )
    return found


def _left(directory: Path, limit: str, usage: str, cache: str) -> int | None:
    """Return what is left to one control group; None where it has no limit."""
    most, used = _read(directory / limit).strip(), _read(directory / usage).strip()
    if not (most.isdigit() and used.isdigit()):
        return None
    lines = _read(directory / "memory.stat").splitlines()
    # files that were read lately count as used, and are given up as soon as memory is wanted
    given_up = next((int(line.split()[1]) for line in lines if line.startswith(cache)), 0)
    return max(0, int(most) - max(0, int(used) - given_up))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _human(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.1f} MiB"
