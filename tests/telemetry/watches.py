"""An end to the watches that a test started."""

from __future__ import annotations

import sys

from tsnb.telemetry.watching import watched

__all__ = ["forget_watches"]


def forget_watches() -> None:
    """Close every watch of this process, whoever listens, and forget it."""
    for there in watched().values():
        there.release()
        there.close()
    sys.modules["tsnb.telemetry.watching"]._watches.clear()
