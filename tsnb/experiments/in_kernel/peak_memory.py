"""The largest memory of a trial's process, as it is recorded: the next run of that name may have to wait for so much.

It is what would have been free without the process (`machine.processes.held`), as `tsnb.plan` counts it: pages that a
trial shares with the fork server that it came from are not its own. What processes that it starts itself hold, and
memory of GPUs, is not in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from tsnb.machine.processes import HAS_PROC, held, largest_bytes

__all__ = ["PeakMemory"]

NEWS = 1.05
"""It is looked at in full, which takes the kernel some 10 ms, and told, once it has grown by this factor."""


class PeakMemory:
    """Looks at this process now and then, and tells its largest memory when that has grown.

    Args:
        tell: Takes bytes.
    """

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._seen = 0
        self._told = 0

    def look(self, *, last: bool = False) -> None:
        """Look at it. Nothing is told where the system does not say.

        Args:
            last: Whether there is no later look: any growth is told.
        """
        seen = largest_bytes(os.getpid()) if HAS_PROC else None
        if seen is None or not (last or seen > self._seen * NEWS):
            return
        self._seen = seen
        own = held(os.getpid())
        if own is not None and own.most_bytes > self._told:
            self._told = own.most_bytes
            self._tell(own.most_bytes)
