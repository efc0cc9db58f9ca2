"""Which arena and which channel producers of this process use: decided here and nowhere else.

Only who serves decides. Whoever attaches goes by the producer's address, and by the descriptor that it is sent.
"""

from __future__ import annotations

import os

from tsnb.native.memfd import has_memfd

__all__ = ["SWITCH", "portable"]

SWITCH = "TSNB_PORTABLE"
"""Set to 1, this environment variable chooses the portable pair on Linux too."""


def portable() -> bool:
    """Return whether to make do with what every POSIX system has: where there is no memfd, or when asked to."""
    return os.environ.get(SWITCH, "") not in {"", "0"} or not has_memfd()
