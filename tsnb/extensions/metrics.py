"""Numbers of `tsnb.log` on their way to a stream's readings: the last ones, at most four times a second.

The producer's half keeps them in `notes["metrics"]` of the consumer's connection. How it ended, and when a round of
new samples is due, is told by them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tsnb.config import attach_defaults
from tsnb.errors import RemoteProtocolError
from tsnb.foreign import Logged, pack, unpack
from tsnb.stream.protocol.extension import Extension, Remote
from tsnb.telemetry.metrics import LONGEST_NAME, MOST_TOLD, News

if TYPE_CHECKING:
    from tsnb.stream.producer.core import Core

__all__ = ["Metrics", "MetricsKept", "MetricsTold", "taken_in"]

METRICS_S = 0.25
"""They are told at most this often."""


class Metrics(msgspec.Struct, frozen=True):
    """The last numbers given to `tsnb.log`."""

    numbers: Logged


class MetricsKept(Extension):
    """The producer's half.

    Args:
        core: The producer's.
    """

    name = "metrics"

    def __init__(self, core: Core) -> None:
        self._core = core

    def hear(self, peer: Remote, payload: bytes) -> None:
        """Keep what a consumer has logged.

        Raises:
            RemoteProtocolError: It is something else, or from somebody else.
        """
        if peer.role == "observer":
            raise RemoteProtocolError("metrics from an observer")
        try:
            told = unpack(Metrics, payload)
        except ValueError as error:
            raise RemoteProtocolError(str(error)) from None
        with self._core.lock:
            taken_in(peer.notes.setdefault(self.name, {}), told.numbers)

    def reading_of(self, peer: Remote) -> dict[str, Any]:
        """Return the last that a consumer has logged."""
        return {"metrics": dict(peer.notes.get(self.name, {}))}


class MetricsTold(Extension):
    """A consumer's half: tells what its process logs."""

    name = "metrics"

    def __init__(self) -> None:
        self._peer: Remote | None = None
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._news = News(METRICS_S, before=attach_defaults.name is not None)

    def met(self, peer: Remote) -> None:
        """Tell a new producer what the former one was told; and in a forked process begin anew."""
        self._peer = peer
        if os.getpid() != self._pid:
            self._begin()  # the fork has left the listeners behind
        self._news.again()

    def tick(self, now_s: float) -> None:
        """Tell what is new."""
        if (numbers := self._news.take()) is not None and self._peer is not None:
            self._peer.tell(self.name, pack(Metrics(numbers)))

    def close(self) -> None:
        """Tell the last, and listen no more."""
        if (numbers := self._news.take(now=True)) is not None and self._peer is not None:
            self._peer.tell(self.name, pack(Metrics(numbers)))
        self._news.end()


def taken_in(metrics: dict[str, float], numbers: Mapping[str, float]) -> dict[str, float]:
    """Add the numbers that a trial sent to those that are kept, as far as there is room; return all that are kept.

    Args:
        metrics: Those that are kept; changed.
        numbers: Those that were sent; nan and inf count as well: a loss that is none is what its reader must see.
    """
    for name, value in numbers.items():
        word = name[:LONGEST_NAME]
        if word in metrics or len(metrics) < MOST_TOLD:
            metrics[word] = value
    return metrics
