"""The frozen part of a network, as a stream's readings tell of it."""

from __future__ import annotations

from typing import Any

from tsnb.frozen.part import FrozenPart
from tsnb.stream.protocol.extension import Extension
from tsnb.telemetry.readings import FrozenReading

__all__ = ["FrozenCounts"]


class FrozenCounts(Extension):
    """Says how long a stream's frozen part has computed.

    Args:
        part: The frozen part.
        called: What it is called where the stream was started; "": by its own name.
    """

    name = "frozen"

    def __init__(self, part: FrozenPart, called: str) -> None:
        self._part = part
        self._called = called or part.name

    def reading(self, since: int) -> dict[str, Any]:
        """Return its numbers."""
        computing_s, batches = self._part.counters.read()
        return {"frozen": FrozenReading(self._called, computing_s, batches, self._part.inputs)}
