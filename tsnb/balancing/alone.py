"""One balancer a user: two that move the same cores would undo each other's work, and measure it.

A lock on a file in the runtime directory, of the kind that ends with its process and is not inherited by forks. The
file says who holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading

from tsnb.config import explained, runtime_directory

__all__ = ["Alone"]

_guard = threading.Lock()
_here: list[str] = []
"""The stream of this process that holds the lock: it does not hold off others of the same process."""


class Alone:
    """One stream's claim to move cores.

    Args:
        stream: Its name.
    """

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._fd = -1
        self._pid = 0

    def take(self) -> str:
        """Claim it; return who has it, or nothing where it is ours now (or was).

        Raises:
            TsnbError: The runtime directory cannot be used.
        """
        with _guard:
            if self._fd >= 0 and self._pid == os.getpid():
                return ""
            if _here:
                return f"{_here[0]!r} of this process"
            with explained("note in its runtime directory who moves cores"):
                fd = os.open(runtime_directory() / "balancer", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = os.read(fd, 200).decode(errors="replace").strip()
                os.close(fd)
                return holder or "another stream"
            with contextlib.suppress(
                OSError
            ):  # a full disk: it is ours all the same, though others cannot read whose
                os.ftruncate(fd, 0)
                os.write(fd, f"{self._stream!r} (pid {os.getpid()})".encode())
            self._fd, self._pid = fd, os.getpid()
            _here.append(self._stream)
            return ""

    def release(self) -> None:
        """Let others have it. Calling it again does nothing."""
        with _guard:
            if self._fd >= 0 and self._pid == os.getpid():
                with contextlib.suppress(OSError):
                    os.close(self._fd)
                _here.clear()
            self._fd = -1


os.register_at_fork(after_in_child=_here.clear)  # locks of this kind stay with the parent
