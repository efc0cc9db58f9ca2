"""How far a stream has come, and whether its producer is started again when it has crashed.

Three crashes in a row end it. Progress breaks the row: a crash well past the furthest point that the
stream had reached before counts as the first of a new row, so a stream that runs for weeks may crash now and
then, while one batch that kills its loader whenever it is prepared ends the stream at the third attempt. Three
crashes within a minute end it too, wherever they happen. `Crashes` decides this without a clock or a process.

A dead producer cannot be asked which epoch it was in. So `Following` reads the stream's readings, over a
connection of its own, four times a second.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tsnb.errors import TsnbError
from tsnb.telemetry.observer import Observer

__all__ = ["Crashes", "Following", "Position"]

MOST = 3
"""Crashes in a row, the last one included, that end the stream."""

ROW_S = 60.0
"""Seconds within which as many crashes are a row wherever they happened."""

WELL_PAST = 100
"""Loader batches: workers prepare ahead, so one bad batch kills its loader at different points, but not further
apart than this."""


class Position(NamedTuple):
    """How far a stream had come."""

    epoch: int
    """The epoch being loaded, from 0."""
    batch: int
    """Loader batches published in it."""


class Crashes:
    """The crashes of one stream, in order.

    Attributes:
        total: How many there have been.
        position: The furthest that is known of the stream at any of them.
    """

    def __init__(self) -> None:
        self.total = 0
        self.position = Position(0, 0)
        self._row = 0
        self._moments_s: list[float] = []

    def allow_another(self, now_s: float, position: Position) -> bool:
        """Note a crash; return whether the stream is to be started again.

        Args:
            now_s: The time, by any clock that only goes forward.
            position: How far the stream had come, as far as is known.
        """
        got_on = (
            self.total == 0
            or position.epoch > self.position.epoch
            or (position.epoch == self.position.epoch and position.batch > self.position.batch + WELL_PAST)
        )
        self.total += 1
        self.position = max(self.position, position)
        self._row = 1 if got_on else self._row + 1
        self._moments_s = [moment for moment in self._moments_s if now_s - moment < ROW_S] + [now_s]
        return max(self._row, len(self._moments_s)) < MOST

    @property
    def reason(self) -> str:
        """Why it is not started again, as part of a sentence."""
        if len(self._moments_s) >= MOST:
            return f"it crashed {len(self._moments_s)} times within {ROW_S:.0f} s"
        return f"it crashed {self._row} times without making progress"


SERVING = frozenset({"serving", "idle", "blocked"})
"""States of a producer that has given its first batch."""


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
            pid: The producer's process: the name may be another's by now.
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
        """Take in the readings that have come, waiting for one if none has; return whether it goes on."""
        if self._observer is None:
            return False
        try:
            while (reading := self._observer.read(timeout_s)) is not None:
                if reading.state in SERVING:
                    self.served = True
                    self.position = Position(reading.epoch, reading.published)
                    self.options = {"pacing": reading.pacing, "weights": reading.weights}
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
