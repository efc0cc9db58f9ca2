"""The entry point of a background kernel, called with the arguments `PARENT:LANE -f CONNECTION_FILE`.

First it ties its life to the notebook kernel (`PARENT` is that kernel's pid): Linux sends SIGKILL when the
thread that started it ends (`native.ties`). ipykernel's own poller misses a child that holds the interpreter lock in
C. If the parent died before the tie was made, the pid above us has changed: end at once. Then it is an ordinary
ipykernel.

A detached kernel (`detached-PARENT`) is tied too, until its code is there and `untie` is called: if its notebook died
before that, the kernel would be left over, unknown to anyone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys

from tsnb.kernels.cargo.lane import open_here
from tsnb.native.ties import tie_to_parent

__all__ = ["DETACHED", "become_kernel", "main"]

DETACHED = "detached-"
"""Stands before the parent's pid for a kernel that is to outlive it."""


def main() -> None:
    """Become a kernel."""
    word = sys.argv.pop(1)
    detached = word.startswith(DETACHED)
    parent, _, lane = word.removeprefix(DETACHED).partition(":")
    tie_to_parent(int(parent))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # Ray's processes block interrupts, and we inherit it
    _keep_descriptors()
    open_here(int(lane))
    try:
        become_kernel(sys.argv[1:])
    finally:
        if detached:  # no other process clears up after a detached kernel
            shutil.rmtree(os.path.dirname(sys.argv[2]), ignore_errors=True)  # noqa: PTH120 (light)


def _keep_descriptors() -> None:
    """Let no command that a cell starts inherit what this process was handed: each stands for this process's life."""
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 (light)
        if int(name) > 2:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.set_inheritable(int(name), False)


def become_kernel(arguments: list[str]) -> None:
    """Be an ordinary ipykernel until it is told to end.

    Args:
        arguments: Its command line: `-f`, the connection file, options.
    """
    from tsnb.kernels.in_kernel.application import KernelApplication
    from tsnb.kernels.in_kernel.output_channel import keep_off_the_network, lose_no_output
    from tsnb.kernels.thread_limit import OF_KERNEL, require_threads

    require_threads(OF_KERNEL)
    keep_off_the_network()
    lose_no_output()
    sys.argv[1:] = arguments
    KernelApplication.launch_instance(arguments)
