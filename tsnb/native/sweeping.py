"""Removing a directory as soon as the process that uses it has gone, however it went.

SIGKILL runs no clean-up, so something has to outlive the process: a shell of a few hundred kilobytes in a session of
its own, which waits for the end of a pipe. The system closes the pipe with the last process that holds it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

__all__ = ["MARK", "Sweeper"]

MARK = "tsnb-sweeper"
"""What a list of processes shows of it, with the directory behind."""

_WAIT_S = 0.5
"""How long a sweeper that was told to end may take."""

_SCRIPT = f""": {MARK}
trap '' HUP INT TERM
read -r word && exit
for try in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf -- "$1"
    [ -e "$1" ] || exit 0
    sleep 0.2
done"""
"""A line that is read means that all is in order. Whatever is killed with its parent may write a last file meanwhile:
hence the second try."""

_held: set[int] = set()
"""The pipes' ends of this process. A forked child closes its copies, or it would keep the directory alive."""


class Sweeper:
    """Removes a directory when this process, or another that was handed the descriptor, has gone.

    Attributes:
        descriptor: The end of the pipe that stands for a life; -1: without a shell nothing is swept.

    Args:
        directory: It has to be private: no other user may be able to replace it.
    """

    def __init__(self, directory: Path) -> None:
        read, write = os.pipe()
        self.descriptor = -1
        self._shell: subprocess.Popen[bytes] | None = None
        try:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, MARK, str(directory)],
                stdin=read,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": "/usr/bin:/bin"},
                start_new_session=True,
            )
        except OSError:  # no shell, or no more processes: the user's next process sweeps
            os.close(write)
        else:
            self.descriptor = write
            _held.add(write)
        finally:
            os.close(read)

    def hand_over(self) -> None:
        """Let go of it: the life that counts is that of a process that has inherited the descriptor."""
        if self.descriptor >= 0:
            _held.discard(self.descriptor)
            os.close(self.descriptor)
        self.descriptor = -1

    def reap(self) -> None:
        """Take note of the sweeper's own end, which is near: the life that counted has ended."""
        if self._shell is None:
            return
        try:
            self._shell.wait(_WAIT_S)
        except subprocess.TimeoutExpired:  # a process that the other has left behind holds the pipe
            self._shell.returncode = 0

    def end(self) -> None:
        """Have nothing removed: the directory has gone already."""
        if self.descriptor < 0:
            return
        with contextlib.suppress(OSError):
            os.write(self.descriptor, b"done\n")
        _held.discard(self.descriptor)
        os.close(self.descriptor)
        self.descriptor = -1
        self.reap()


def _forget() -> None:
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget)
