"""How far a stream has come, known before its producer dies.

Whoever starts a producer again must know which epoch it was in, and cannot ask the dead. So it follows the
stream's readings, over a connection of its own, four times a second.
"""

from __future__ import annotations

from typing import Any

from tsnb.errors import TsnbError
from tsnb.streams.crashes import Position
from tsnb.telemetry.observer import Observer

__all__ = ["Following"]

SERVING = frozenset({"serving", "idle", "blocked"})
"""States of a producer whose first batch was there."""


class Following:
    """Follows one stream, through as many lives of its producer as it has.

    Attributes:
        position: How far it had come at the last reading, of this life or of an earlier one.
        options: How compute was divided then, as options of `tsnb.serve`; empty before the first reading.
        served: Whether this life of its producer has had a first batch: before, it may be refused.

    Args:
        name: The stream's.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.position = Position(0, 0)
        self.options: dict[str, Any] = {}
        self.served = False
        self._observer: Observer | None = None

    def open(self, pid: int) -> bool:
        """Connect; return whether that process serves the stream now.

        Args:
            pid: The producer's process: the name may be somebody else's.
        """
        self.close()
        self.served = False
        try:
            self._observer = Observer(self.name)
        except (TsnbError, OSError):  # not there yet, or just gone
            return False
        if self._observer.entry.pid != pid:
            self.close()
        return self._observer is not None

    def look(self, timeout_s: float = 0.0) -> bool:
        """Take in the readings that have come, waiting for one if there is none; return whether it goes on."""
        if self._observer is None:
            return False
        try:
            while (reading := self._observer.read(timeout_s)) is not None:
                if reading.state in SERVING:
                    self.served = True
                    self.position = Position(reading.epoch, reading.published)
                    self.options = {"mode": reading.mode, "weights": reading.weights}
                timeout_s = 0.0
        except (TsnbError, OSError, ValueError):  # it ends, or speaks otherwise: its process's end tells more
            self.close()
        return self._observer is not None

    def ask_to_stop(self) -> bool:
        """Ask the producer to stop in good order; return whether it was there to be asked."""
        if self._observer is None:
            return False
        try:
            self._observer.request_stop()
        except (TsnbError, OSError):
            self.close()
        return self._observer is not None

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is something to look at; while open."""
        return -1 if self._observer is None else self._observer.fileno()

    def close(self) -> None:
        """Disconnect; the position stays known."""
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.close()
