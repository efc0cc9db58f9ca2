"""An estimate of how long something still takes, with its interval. Pure; `etas` and `plan_ends` make them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["LEAST_OFF", "NO_ETA", "Eta", "last_of"]

LEAST_OFF = 0.05
"""No interval is closer than this, either way: the rest of a training is not like the part before."""


@dataclass(frozen=True)
class Eta:
    """How long something still takes."""

    left_s: float
    """Seconds; NaN: not known."""
    low_s: float
    """Not less than this, four times in five with the next; seconds."""
    high_s: float
    """Nor more than this, seconds."""
    epochs: int = 0
    """Epochs that it takes in all, those too that a clone goes on from; 0: not known, and `left_s` goes to the end of
    its epoch only."""

    @property
    def known(self) -> bool:
        """Whether anything is."""
        return math.isfinite(self.left_s)

    @property
    def whole(self) -> bool:
        """Whether it goes to the end of the training, rather than to that of an epoch."""
        return self.known and self.epochs > 0


NO_ETA = Eta(math.nan, math.nan, math.nan)
"""Nothing is known."""


def last_of(etas: Iterable[Eta]) -> Eta:
    """Return when the last of several ends; `NO_ETA` unless that is known of each."""
    several = list(etas)
    if not several or not all(eta.whole for eta in several):
        return NO_ETA
    return Eta(
        max(eta.left_s for eta in several),
        max(eta.low_s for eta in several),
        max(eta.high_s for eta in several),
        max(eta.epochs for eta in several),
    )
