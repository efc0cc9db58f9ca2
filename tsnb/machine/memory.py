"""The memory that this process can still get, how long others wait for some, and kills for want of it.

Free is the least of the system's available memory and the rest of each control group that this process is in:
a container's limit, a batch scheduler's, or systemd's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tsnb.machine.processes import HAS_PROC

__all__ = [
    "Bounds",
    "Free",
    "OomKills",
    "Pressure",
    "control_groups",
    "free_memory",
    "memory_bounds",
    "oom_kills",
    "read_text",
]

_LEFT = {
    2: ("memory.max", "memory.current", ("inactive_file", "active_file")),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
}
"""By version of control groups: the files that hold the limit and the use, and the names of what is cached of files,
read once or often. With a data set on a disk that is most of a container's memory; shared memory is in neither."""

_KILLS = {2: "memory.events", 1: "memory.oom_control"}
"""By version of control groups: the file that counts kills for want of memory."""


class Free(NamedTuple):
    """Memory that is available."""

    size: int
    """Bytes."""
    where: str
    """What sets that limit, for messages."""


class Bounds(NamedTuple):
    """Memory as a gauge shows it."""

    used_bytes: int
    """In use; files that were read lately and would be given up at once are not counted."""
    total_bytes: int
    """In all: the machine's memory, or a limit."""


class OomKills(NamedTuple):
    """How often the system killed a process for want of memory."""

    kills: int
    """Since the machine or the control group was started."""
    file: Path
    """What counts."""
    where: str
    """The same, for messages."""

    def again(self) -> OomKills | None:
        """Return the count as it is now; None where it cannot be read any more."""
        return _kills(self.file, self.where)


def free_memory(root: Path = Path("/")) -> Free | None:
    """Return the memory that this process can still have; None where the system does not tell.

    Args:
        root: Where /proc and /sys are.
    """
    found = [*_limited(root)]
    available = _available(root)
    if available is not None:
        found.append(Free(available, "of the machine's memory"))
    return min(found, default=None)


def memory_bounds(root: Path = Path("/")) -> Bounds | None:
    """Return use and size of what bounds this process: the machine, or the control group that has the least left.

    Args:
        root: Where /proc and /sys are.

    Returns:
        None where the system does not tell.
    """
    available, total = _available(root), _meminfo(root, "MemTotal:")
    found = [(available, total)] if available is not None and total is not None else []
    for directory, version in control_groups(root):
        most = _limit(directory, version)
        if most is None or (total is not None and most >= total):
            continue  # none, or one as good as none: its other files need not be read
        left = _left(directory, *_LEFT[version])
        if left is not None:
            found.append((left, most))
    if not found:
        return None
    left, whole = min(found)
    return Bounds(whole - left, whole)


def _limit(directory: Path, version: int) -> int | None:
    text = read_text(directory / _LEFT[version][0]).strip()
    return int(text) if text.isdigit() else None


def oom_kills(root: Path = Path("/"), pid: int | str = "self") -> OomKills | None:
    """Return the count of the control group that a process is in, else of the machine; None if nothing counts.

    Args:
        root: Where /proc and /sys are.
        pid: The process, alive.
    """
    for directory, version in control_groups(root, pid):
        found = _kills(directory / _KILLS[version], f"the control group {directory}")
        if found is not None:
            return found
    return _kills(root / "proc/vmstat", "the machine")


def _kills(file: Path, where: str) -> OomKills | None:
    for line in read_text(file).splitlines():
        if line.startswith("oom_kill "):
            return OomKills(int(line.split()[1]), file, where)
    return None


def _available(root: Path) -> int | None:
    if root == Path("/") and not HAS_PROC:
        import psutil  # a stream does without it on Linux

        with contextlib.suppress(OSError):  # a Linux without /proc, which `config.require_platform` tells of
            return int(psutil.virtual_memory().available)
        return None
    return _meminfo(root, "MemAvailable:")


def _meminfo(root: Path, name: str) -> int | None:
    for line in read_text(root / "proc/meminfo").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return None


def control_groups(
    root: Path, pid: int | str = "self", controller: str = "memory"
) -> Iterator[tuple[Path, int]]:
    """Give every control group that a process is in, with its version; the innermost first.

    Args:
        root: Where /proc and /sys are.
        pid: The process.
        controller: What the groups of version 1 must limit; those of version 2 limit everything.
    """
    for line in read_text(root / f"proc/{pid}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, version = root / "sys/fs/cgroup", 2
        elif controller in controllers.split(","):
            base, version = root / "sys/fs/cgroup" / controller, 1
        else:
            continue
        # the limits of the groups around it hold too. In a container the path may be the host's and lead nowhere;
        # the container's own group is then mounted at the base
        group = base / path.lstrip("/")
        for directory in (group, *(p for p in group.parents if p.is_relative_to(base))):
            yield directory, version


class Pressure:
    """Share of time in which processes of this control group, or of the machine, stood still for want of memory."""

    def __init__(self) -> None:
        groups = [path / "memory.pressure" for path, version in control_groups(Path("/")) if version == 2]
        found = [path for path in groups if "some" in read_text(path)]
        self._file = found[0] if found else Path("/proc/pressure/memory")
        self._last = self._total(), time.monotonic()

    def _total(self) -> int:
        for line in read_text(self._file).splitlines():
            if line.startswith("some ") and "total=" in line:
                return int(line.rsplit("total=", 1)[1])
        return 0

    def share(self) -> float:
        """Return it since the last call."""
        (total, at), now = self._last, (self._total(), time.monotonic())
        self._last = now
        return (now[0] - total) * 1e-6 / max(1e-3, now[1] - at)


def _limited(root: Path) -> Iterator[Free]:
    """Give the rest of every control group with a limit that this process is in."""
    for directory, version in control_groups(root):
        left = _left(directory, *_LEFT[version])
        if left is not None:
            yield Free(left, f"of the memory limit of this container or control group, {directory}")


def _left(directory: Path, limit: str, usage: str, cached: tuple[str, ...]) -> int | None:
    """Return the rest of one control group; None if it has no limit."""
    most, used = read_text(directory / limit).strip(), read_text(directory / usage).strip()
    if not (most.isdigit() and used.isdigit()):
        return None
    lines = read_text(directory / "memory.stat").splitlines()
    # cached files count as used, and are given up as soon as memory is wanted
    given_up = sum(int(number) for name, number in map(str.split, lines) if name in cached)
    return max(0, int(most) - max(0, int(used) - given_up))


def read_text(path: Path) -> str:
    """Return what a file of the system says; nothing where it is not there or not for us."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
