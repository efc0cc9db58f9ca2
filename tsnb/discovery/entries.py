"""One producer's entry in the registry: what it says, how it is read, and whether its producer lives.

`tsnb.discovery.registry` explains the whole; this module knows no directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tsnb.machine.owners import Owner, alive, same_boot, where
from tsnb.machine.processes import started
from tsnb.text.printable import one_line

__all__ = ["MOST_BYTES", "OWNER", "Entry", "age", "is_at", "lock", "may_live", "parsed", "this_owner"]

MOST_BYTES = 1 << 16
"""Of an entry: a hundred times what one has."""
_MOST_NUMBER = 1 << 62
_ADDRESS_BYTES = 107
"""What an address of Linux has room for."""


OWNER = "TSNB_OWNER"
"""The environment variable that tells background kernels, and all that they start, which notebook is theirs."""


def this_owner() -> str:
    """Return the notebook or script that this process belongs to: its pid and start."""
    return os.environ.get(OWNER) or f"{os.getpid()}-{started(os.getpid())}"


@dataclass(frozen=True)
class Entry:
    """One producer that is being served."""

    name: str
    """The stream's name."""
    pid: int
    """The producer's process."""
    address: str
    """Abstract unix socket address, without the leading zero byte; or the path of a socket."""
    since_s: float
    """Wall clock at the start, seconds since 1970."""
    origin: str
    """What serves it: "notebook train.ipynb", "script train.py"."""
    started: int = 0
    """When the process itself was started (`machine.processes.started`): tells it from a later one with the same
    pid. On Linux in the kernel's ticks since boot, which no change of the clock moves."""
    owner: str = ""
    """The notebook or script that had it served (`this_owner`); empty: an older version of tsnb did not say."""
    token: str = field(default="", repr=False)
    """What the first message of a connection has to say."""
    host: str = ""
    """The producer's machine, and what follows: as `machine.owners.Owner`; empty: an older version wrote it."""
    boot: str = ""
    namespace: str = ""
    locked: bool = False
    """Whether its producer holds a lock on it."""

    @property
    def process(self) -> Owner:
        """The producer's process."""
        here = where()
        return Owner(
            self.host or here[0], self.boot or here[1], self.namespace or here[2], self.pid, self.started
        )

    @property
    def elsewhere(self) -> str:
        """Where it is served, if that is not where this process runs: its process number means nothing here."""
        if not self.boot or (self.boot, self.namespace) == where()[1:]:  # a host may have got another name
            return ""
        return "another container of this machine" if same_boot(self.process) else f"the machine {self.host}"

    @property
    def whose_pid(self) -> str:
        """The process in words, with where it is if its number means nothing here: "pid 7 in another container …"."""
        return f"pid {self.pid}" + (f" in {self.elsewhere}" if self.elsewhere else "")

    def __str__(self) -> str:
        return f"{self.name} (served by {self.origin}, {self.whose_pid}, for {age(self.since_s)})"


def age(since_s: float) -> str:
    """Return how long ago a moment was, as people say it ("4 min")."""
    seconds = max(0.0, time.time() - since_s)
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} s"


def may_live(entry: Entry | None, *, free: bool) -> bool:
    """Tell whether an entry has to stay.

    Args:
        entry: None: it is not a valid entry, or of a later version.
        free: Whether its lock is free.
    """
    if not free:
        return True
    if entry is None:
        return False
    if entry.locked and (not entry.boot or same_boot(entry.process)):
        return False
    return alive(entry.process) is not False


def lock(fd: int, kind: int) -> bool:
    """Take a lock without waiting; return whether that went well."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError:  # another process has it; or this file system has no locks
        return False
    return True


def is_at(fd: int, path: Path) -> bool:
    """Return whether an open file is the one that has that name now."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        there, mine = path.lstat(), os.fstat(fd)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
    return False


def parsed(text: bytes, name: str) -> Entry | None:
    """Return an entry that is safe to use and show; None if the text is not a valid entry.

    Of an entry that another version of tsnb wrote, the known fields are read.
    """
    try:
        fields = json.loads(text)
        entry = Entry(**{key: fields[key] for key in Entry.__dataclass_fields__ if key in fields})
    except (ValueError, TypeError, RecursionError):
        return None
    words = (
        entry.name,
        entry.address,
        entry.origin,
        entry.token,
        entry.owner,
        entry.host,
        entry.boot,
        entry.namespace,
    )
    numbers = (entry.pid, entry.since_s, entry.started)
    fits = (
        all(isinstance(word, str) for word in words)
        and all(type(number) in (int, float) and 0 <= number < _MOST_NUMBER for number in numbers)
        and type(entry.pid) is type(entry.started) is int
        and entry.name == name
        and _can_be_address(entry.address)
    )
    if not fits:
        return None
    short: Any = {
        key: one_line(getattr(entry, key), 200) for key in ("origin", "host", "boot", "namespace", "owner")
    }
    return replace(entry, locked=entry.locked is True, **short)


def _can_be_address(address: str) -> bool:
    return address.isascii() and address.isprintable() and 0 < len(address) <= _ADDRESS_BYTES
