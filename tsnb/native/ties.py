"""What ties a process to the one that started it: its end, and a line of packets.

Linux ends it: SIGKILL at the moment when the *thread* that started this process ends. Elsewhere a thread of this
process looks every `LOOK_S` whether its parent is another one by now, and kills the process then. It cannot look
while other code holds the interpreter's lock in C, and ends the process once that gives it back.

Neither end of a line of packets can be opened by another process: it is inherited, or sent along one that was.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import threading

__all__ = ["CLOEXEC", "LOOK_S", "inherit_orphans", "packet_pair", "tie_to_parent", "untie"]

LOOK_S = 0.25
"""How often a process looks for its parent, where the system does not tell."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_watch: tuple[int, int, threading.Event] | None = None
"""This process, its parent, and what ends the looking. A fork inherits the words, not the thread."""


def tie_to_parent(parent: int) -> None:
    """Have this process killed when `parent` ends; at once, if it has ended already.

    Args:
        parent: The pid of the process that started this one. It may be 1: a container's only program.
    """
    if not _ask_the_kernel(signal.SIGKILL):
        _look_for(parent)
    if os.getppid() != parent:
        os._exit(1)


def untie() -> None:
    """Let this process outlive its parent from now on. Called on the thread that made the tie."""
    if not _ask_the_kernel(0) and _watch is not None:
        _watch[2].set()


def inherit_orphans() -> None:
    """Be the parent of every process below this one whose own parent ends: a clone is one. Linux alone has that."""
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _ask_the_kernel(number: int) -> bool:
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is None:
        return False
    prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    return True


def _look_for(parent: int) -> None:
    global _watch
    if _watch is not None and _watch[:2] == (os.getpid(), parent) and not _watch[2].is_set():
        return
    untied = threading.Event()
    _watch = (os.getpid(), parent, untied)
    threading.Thread(target=_end_with, args=(parent, untied), name="tsnb-parent", daemon=True).start()


def _end_with(parent: int, untied: threading.Event) -> None:
    while not untied.wait(LOOK_S):
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
"""For `recv_fds`: what arrives is not inherited by commands."""


def packet_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends. A packet arrives whole or not at all."""
    try:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except (AttributeError, OSError):  # macOS: Python may know the word there, the system has no such sockets
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
