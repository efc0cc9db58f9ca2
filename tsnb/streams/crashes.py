"""Whether a producer that has crashed is to be started again. Pure: no clock, no process.

Three crashes in a row end it. What breaks the row is getting on: a crash well past the furthest point that the
stream had reached before counts as the first of a new row, so a stream that runs for weeks may crash now and
then, while one batch that kills its loader whenever it is prepared ends the stream at the third attempt. Three
crashes within a minute end it too, wherever they happen.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Crashes", "Position"]

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
        """Why there is no other start, in the words of a sentence."""
        if len(self._moments_s) >= MOST:
            return f"it crashed {len(self._moments_s)} times within {ROW_S:.0f} s"
        return f"it crashed {self._row} times without getting on"
