"""The reel: a stream's frames, all of the last ten minutes and every so many seconds before.

```
older: at most 800 frames, one every `step_s` (4 s, then 8 s, 16 s, ...)      recent: all frames, 2400
├───────────┬───────────┬───────────┬───────────┬───────────┬───────────┼─┼─┼─┼─┼─┼─┼─┼─┼─┼─┼─┼─┤ now
```

So a stream of a day costs about as much as one of an hour, and no moment of it is lost altogether. When the older
part is full, every other frame of it goes and the step doubles. The front end keeps the same reel (reel.js).
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import NamedTuple

__all__ = ["OLDER_TICKS", "RECENT_TICKS", "Reel"]

RECENT_TICKS = 2400
"""Ten minutes at four ticks a second; about 0.5 MB for three trials."""

OLDER_TICKS = 800
"""Frames kept of the time before."""

_FIRST_STEP_S = 4.0


class _Shot(NamedTuple):
    time_s: float
    wanted: bool  # whether it carries the machine's numbers, which one in eight does
    frame: bytes


class Reel:
    """Frames in the order of time, bounded."""

    def __init__(self) -> None:
        self._recent: deque[_Shot] = deque()
        self._older: list[_Shot] = []
        self._step_s = _FIRST_STEP_S

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def add(self, time_s: float, frame: bytes, *, wanted: bool = False) -> None:
        """Take in the next frame.

        Args:
            time_s: Its time.
            frame: Its bytes.
            wanted: Whether to prefer it to its neighbours where frames are thinned.
        """
        self._recent.append(_Shot(time_s, wanted, frame))
        if len(self._recent) > RECENT_TICKS:
            self._keep(self._recent.popleft())

    def history(self) -> bytes:
        """Return all frames, oldest first."""
        return b"".join(shot.frame for shot in chain(self._older, self._recent))

    def _keep(self, shot: _Shot) -> None:
        if self._older:
            passed_s = shot.time_s - self._older[-1].time_s
            if 0 <= passed_s < (self._step_s if shot.wanted else 1.5 * self._step_s):
                return
        self._older.append(shot)
        if len(self._older) > OLDER_TICKS:
            self._older = self._older[::2]
            self._step_s *= 2
