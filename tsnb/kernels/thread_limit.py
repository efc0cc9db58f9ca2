"""A look at how many threads this process may still begin, before something begins them that aborts without.

zmq ends the whole process where its first socket gets no threads, and an ipykernel that gets only some of its own waits
for ever. Both happen where a user or a container may have few processes and threads (`ulimit -u`, `--pids-limit`).
"""

from __future__ import annotations

import threading

__all__ = ["OF_CHANNELS", "OF_KERNEL", "require_threads"]

OF_CHANNELS = 4
"""For a kernel's channels: two of zmq, and a few that others of this process may begin meanwhile."""
OF_KERNEL = 9
"""For a kernel until it answers: two of zmq, and ipykernel's."""


def require_threads(number: int) -> None:
    """Check that this process may begin so many threads at once, by beginning them.

    Args:
        number: How many.

    Raises:
        RuntimeError: It may not.
    """
    done = threading.Event()
    begun: list[threading.Thread] = []
    try:
        for _ in range(number):
            thread = threading.Thread(target=done.wait, daemon=True)
            thread.start()
            begun.append(thread)
    finally:
        done.set()
        for thread in begun:
            thread.join()
