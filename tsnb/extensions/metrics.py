"""Numbers of `tsnb.log` on their way to a stream's readings: the last ones, at most four times a second.

The producer's half keeps them in `notes["metrics"]` of the consumer's connection, with the batch at which each was
logged, as its readings count: so a value stands where the trial was when it logged it. How it ended, and when a round
of new samples is due, is told by them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from tsnb.errors import RemoteProtocolError
from tsnb.foreign import FEW, Logged, Text, Whole, pack, unpack
from tsnb.stream.protocol.extension import Extension, ProducerRemote, Remote
from tsnb.stream.this_process import this_process
from tsnb.telemetry.metrics import LONGEST_NAME, MOST_TOLD, News

if TYPE_CHECKING:
    from tsnb.stream.producer.core import Core

__all__ = ["KeptNumbers", "Metrics", "MetricsKept", "MetricsTold", "logged_by", "taken_in"]

METRICS_S = 0.25
"""They are told at most this often."""


class Metrics(msgspec.Struct, frozen=True):
    """The last numbers given to `tsnb.log`."""

    numbers: Logged
    ago: Annotated[dict[Text, Whole], FEW] = {}
    """How many of the consumer's batches ago each of them was logged, as far as that is known."""
    sparse: Annotated[tuple[Text, ...], FEW] = ()
    """Names of those that are logged about once an epoch, or less often."""


@dataclass
class KeptNumbers:
    """What a consumer has logged, as a producer keeps it."""

    numbers: dict[str, float] = field(default_factory=dict)
    at: dict[str, int] = field(default_factory=dict)
    sparse: tuple[str, ...] = ()


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
            kept: KeptNumbers = peer.notes.setdefault(self.name, KeptNumbers())
            taken_in(kept.numbers, told.numbers)
            member = self._core.dispatch.members.get(peer.key)
            taken = 0 if member is None else member.share.batches
            kept.at |= {name: taken - ago for name, ago in told.ago.items() if name in kept.numbers}
            kept.sparse = tuple(name for name in told.sparse if name in kept.numbers)

    def reading_of(self, peer: Remote) -> dict[str, Any]:
        """Return the last that a consumer has logged."""
        return logged_by(peer)


class MetricsTold(Extension):
    """A consumer's half: tells what its process logs."""

    name = "metrics"

    def __init__(self) -> None:
        self._peer: ProducerRemote | None = None
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._before = 0, 0.0  # taken over connections that have gone
        self._news = News(METRICS_S, self._place, before=this_process.name is not None)

    def _place(self) -> tuple[int, float]:
        """Return how many loader batches were taken, and how many epochs."""
        batches, epochs = self._before
        if self._peer is not None and os.getpid() == self._pid:
            share = self._peer.batches / self._peer.length if self._peer.length else 0.0
            batches, epochs = batches + self._peer.batches, epochs + max(float(self._peer.ended), share)
        return batches, epochs

    def met(self, peer: ProducerRemote) -> None:
        """Tell a new producer what the former one was told; and in a forked process begin anew."""
        if os.getpid() != self._pid:
            self._begin()  # the fork has left the listeners behind
        else:
            self._before = self._place()
        self._peer = peer
        self._news.again()

    def tick(self, now_s: float) -> None:
        """Tell what is new."""
        if (told := self._news.take()) is not None and self._peer is not None:
            self._peer.tell(self.name, pack(Metrics(*told)))

    def close(self) -> None:
        """Tell the last, and listen no more."""
        if (told := self._news.take(now=True)) is not None and self._peer is not None:
            self._peer.tell(self.name, pack(Metrics(*told)))
        self._news.end()


def logged_by(peer: Remote) -> dict[str, Any]:
    """Return what a consumer has logged, as fields of its reading, or of its end. Called under the lock."""
    kept: KeptNumbers = peer.notes.get(MetricsKept.name) or KeptNumbers()
    return {"metrics": dict(kept.numbers), "logged_at": dict(kept.at), "sparse": kept.sparse}


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
