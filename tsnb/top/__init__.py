"""`tsnb top`: a stream and its trials in a terminal, with the panel's numbers and words. Sees telemetry only."""

from __future__ import annotations

from tsnb.top.live import top

__all__ = ["top"]
