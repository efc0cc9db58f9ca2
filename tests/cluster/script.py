"""An actor that stands in a hub's place. It imports no torch: it is to be up at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import ray

from tsnb.cluster.stream_hub import FeedOrder


class Script:
    """Stands in the hub's place.

    Args:
        wants: What it tells the feed, one after the other; the last again and again.
        tells: What it tells a relay at each poll, without the number of its ask.
    """

    def __init__(self, wants: Sequence[FeedOrder] = (), tells: Sequence[Any] = ()) -> None:
        self.wants, self.tells = list(wants), list(tells)
        self.given: list[tuple[int, int]] = []
        self.polls: list[tuple[int, int, int, bool]] = []

    def wanted(self, _known: int = 0) -> FeedOrder:
        if len(self.wants) > 1:
            return self.wants.pop(0)
        time.sleep(0.1)
        return self.wants[0]

    def loaded(self, run: int, refs: list[Any], size: int, rows: int, _known: int) -> FeedOrder:
        self.given.append((run, int(np.frombuffer(ray.get(refs[0])[4], np.int64)[0])))
        return self.wanted()

    def join(self) -> int:
        return 7

    def poll(self, _key: int, ask: int, epoch: int, seq: int, exact: bool, _parts: Any) -> list[Any]:
        """Answer by what comes next; stand still where nothing does."""
        self.polls.append((ask, epoch, seq, exact))
        if not self.tells:
            threading.Event().wait()
        return [(ask, message) for message in self.tells.pop(0)]

    def leave(self, _key: int, _ask: int, _rest: bool) -> None:
        """Nothing follows."""

    def took(self, _key: int, _ask: int, _lease: int) -> None:
        """Nothing follows."""

    def seen(self) -> tuple[Any, Any]:
        return self.given, self.polls
