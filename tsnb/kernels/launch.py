"""The entry point of a background kernel, called with the arguments `PARENT -f CONNECTION_FILE`.

First it ties its life to the notebook kernel (`PARENT` is that kernel's pid, 0 for a detached one): Linux
sends SIGKILL when the thread that started it ends. ipykernel's own poller misses a child that holds the
interpreter lock in C. If the parent died before the tie was made, the pid above us has changed: end at once.
Then it is an ordinary ipykernel.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys

__all__ = ["main", "tie_to_parent"]

_PR_SET_PDEATHSIG = 1


def tie_to_parent(parent: int) -> None:
    """Have this process killed when `parent` dies. Called first of all in a child, on its main thread."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Become a kernel."""
    parent = int(sys.argv.pop(1))
    if parent:
        tie_to_parent(parent)

    from ipykernel.kernelapp import IPKernelApp

    try:
        IPKernelApp.launch_instance()
    finally:
        if not parent:  # nobody else clears up after a detached kernel
            shutil.rmtree(os.path.dirname(sys.argv[2]), ignore_errors=True)  # noqa: PTH120 (light)
