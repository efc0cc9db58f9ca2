"""Streams that are not served now, and will be in a moment: they are being started, or come back after a crash.

A promise is a small file beside the entries of the registry. The process that starts a stream holds a lock on it, so it
goes with that process. While it is there, an attach to that stream waits. When it goes, nobody waits any longer.

| the promise is of | the stream's name is | it is there |
|---|---|---|
| a first start (`FIRST`) | free: the first one that serves has it | until the stream is served |
| a restart (`AGAIN`) | kept: nobody else can take it in those seconds | until it is served again |
| each restart after a crash (`STANDING`) | kept | as long as somebody would start it again, while it is served too |

A promise that is not locked any more is swept by the next look.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from pathlib import Path
from typing import NamedTuple

from tsnb.config import explained, private_directory, runtime_directory
from tsnb.discovery.entries import MOST_BYTES, lock, this_owner
from tsnb.errors import NameInUse
from tsnb.machine.owners import Owner, alive, owner

__all__ = [
    "AGAIN",
    "FIRST",
    "STANDING",
    "Promise",
    "Promised",
    "is_promised",
    "promises",
    "require_unpromised",
]

FIRST, AGAIN, STANDING = "first", "again", "standing"
"""What is promised: a first start, one restart, or a restart after each crash."""

_held: set[int] = set()
"""The descriptors that hold the locks of this process's promises."""


def _let_go_of_parents() -> None:
    """A forked child has no part in its parent's locks (`native.forks`, 1)."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go_of_parents)


class Promised(NamedTuple):
    """A stream that will be served."""

    name: str
    """The stream's."""
    owner: str
    """The notebook or script that promised it."""
    kind: str
    """`FIRST`, `AGAIN` or `STANDING`."""
    process: Owner
    """The process that promised it."""


class Promise:
    """A process's word that a stream is served soon; it goes with `close`, or with the process.

    Args:
        name: The stream's.
        kind: `FIRST`, `AGAIN` or `STANDING`.

    Raises:
        TsnbError: The runtime directory cannot be used, or its disk is full.
    """

    def __init__(self, name: str, kind: str) -> None:
        with explained(f"announce stream {name!r}"):
            self._path = _directory() / f"{secrets.token_hex(8)}.back"
            draft = self._path.with_suffix(".new")
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(draft, flags, 0o600)
            _held.add(self._fd)  # a forked child lets go of it
            lock(self._fd, fcntl.LOCK_EX)
            try:
                os.write(self._fd, json.dumps([name, this_owner(), kind, *owner(os.getpid())]).encode())
                draft.rename(self._path)  # locked by now: whoever looks sweeps what is not
            except BaseException:
                draft.unlink(missing_ok=True)
                self.close()
                raise

    def close(self) -> None:
        """Take it back: the stream is served, or will not be."""
        if self._fd in _held:
            _held.discard(self._fd)
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
        self._fd = -1


def promises() -> list[Promised]:
    """Return the streams that processes have promised; stale promises are swept.

    Raises:
        TsnbError: The runtime directory cannot be used.
    """
    with explained("look up streams"):
        found = [_read(path) for path in sorted(_directory().glob("*.back"))]
    return [one for one in found if one is not None]


def is_promised(name: str, *kinds: str) -> bool:
    """Return whether a process starts the stream, should it not be served now.

    Args:
        name: The stream's.
        kinds: Which promises count; left out: all.
    """
    return any(one.name == name and (not kinds or one.kind in kinds) for one in promises())


def require_unpromised(name: str) -> None:
    """Refuse a name that is kept for a stream that comes back.

    The kernels that serve that stream may have the name: their owner is that of the promise.

    Args:
        name: The stream's.

    Raises:
        NameInUse: It is kept.
    """
    here = owner(os.getpid())
    for one in promises():
        if one.name == name and one.kind != FIRST and (one.owner != this_owner() or one.process == here):
            raise NameInUse(
                f"Stream {name!r} is being restarted by process {one.process.pid}. Wait until it is "
                "back, or choose another name."
            )


def _directory() -> Path:
    return private_directory(runtime_directory() / "producers")


def _read(path: Path) -> Promised | None:
    """Return a promised stream; None, and swept, where the process that promised it has gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # taken back just now; or a link, which is nothing of ours
        return None
    try:
        if lock(fd, fcntl.LOCK_SH):  # its process has gone
            path.unlink(missing_ok=True)
            return None
        name, of, kind, *process = json.loads(os.read(fd, MOST_BYTES))
        promised = Promised(name, of, kind, Owner(*process))
        if alive(promised.process) is False:  # a file system without locks
            path.unlink(missing_ok=True)
            return None
        return promised if isinstance(name, str) and isinstance(of, str) else None
    except (OSError, ValueError, TypeError):
        return None
    finally:
        os.close(fd)
