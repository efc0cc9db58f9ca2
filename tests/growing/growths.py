"""The growing data set behind a running stream."""

from __future__ import annotations

from typing import cast

import tsnb
from tsnb.extensions.growth import Growth
from tsnb.extensions.rounds import Rounds

__all__ = ["growth_in"]


def growth_in(producer: tsnb.streams.Producer) -> Growth | None:
    """Return what lets new samples into a stream; None: its data set does not grow."""
    return cast("Rounds", producer.core.extensions["rounds"]).growth
