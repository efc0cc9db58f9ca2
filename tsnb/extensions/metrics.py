"""Numbers of `tsnb.log` on their way to a stream's readings: told by a consumer at most four times a second.

The producer's half keeps them in `notes["metrics"]` of the consumer's connection, with the batch at which each was
logged, as its readings count: so a value stands where the trial was when it logged it. How it ended, and when a round
of new samples is due, is told by them.

No value is lost between two tellings, or between two readings. Each of a number that is logged about once an epoch is
told by itself. Those of any other are told as one: the last, and count, mean, lowest and highest of all. With several
trials that is done less often than four times a second (`READINGS_APART`), so that readings and panels stay small.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from tsnb.errors import RemoteProtocolError
from tsnb.stream.protocol.extension import Extension, ProducerRemote, Remote
from tsnb.stream.this_process import this_process
from tsnb.telemetry.metrics import LONGEST_NAME, MOST_TOLD, LoggedNews, News
from tsnb.telemetry.trial_readings import LoggedReading, fewer
from tsnb.text.foreign import FEW, Logged, Text, Whole, pack, unpack

if TYPE_CHECKING:
    from tsnb.stream.producer.core import Core

__all__ = ["KeptNumbers", "Metrics", "MetricsKept", "MetricsTold", "logged_at_last", "logged_by", "taken_in"]

METRICS_S = 0.25
"""They are told at most this often."""

READINGS_APART = 4
"""Numbers that are logged often are in every second reading of two trials, every third of three, every fourth of
more."""
PARTS = 4
"""Readings of such a number at a time, of one trial; of two half as many, of more one."""
KEPT = 32
"""Times for which what was logged is kept, for observers that do not keep up."""
KEPT_OF_ENDED = 8
"""As many of one that has left: what was told just before."""


class Metrics(msgspec.Struct, frozen=True):
    """The last numbers given to `tsnb.log`."""

    numbers: Logged
    ago: Annotated[dict[Text, Whole], FEW] = {}
    """How many of the consumer's batches ago each of them was logged, as far as that is known."""
    sparse: Annotated[tuple[Text, ...], FEW] = ()
    """Names of those that are logged about once an epoch, or less often."""
    logged: Annotated[dict[Text, Annotated[tuple[LoggedReading, ...], FEW]], FEW] = {}
    """What was logged since the last telling, by name; each `batch` is how many batches ago that was."""


@dataclass
class KeptNumbers:
    """What a consumer has logged, as a producer keeps it."""

    numbers: dict[str, float] = field(default_factory=dict)
    at: dict[str, int] = field(default_factory=dict)
    sparse: tuple[str, ...] = ()
    shown: dict[str, float] = field(default_factory=dict)
    """Those that readings have: up to what was told in `news`."""
    shown_at: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, list[LoggedReading]] = field(default_factory=dict)
    """What no reading has had yet."""
    news: deque[tuple[int, dict[str, list[LoggedReading]]]] = field(
        default_factory=lambda: deque(maxlen=KEPT)
    )
    """What readings have had, and which news that was (`Core.news`)."""
    shown_s: float = -math.inf

    def show(self, number: int, consumers: int, now_s: float) -> bool:
        """Let readings have what is due from now on; return whether there was anything.

        Args:
            number: Which news that will be.
            consumers: How many there are; 0: all is due.
            now_s: Monotonic seconds.
        """
        apart = min(READINGS_APART, consumers)
        due = apart < 2 or now_s - self.shown_s >= METRICS_S * (apart - 0.5)
        fresh: dict[str, list[LoggedReading]] = {}
        for name, value in self.numbers.items():
            sparse = name in self.sparse
            if not (due or sparse or name not in self.shown):
                continue
            self.shown[name] = value
            if name in self.at:
                self.shown_at[name] = self.at[name]
            if its := self.waiting.pop(name, None):
                fresh[name] = its if sparse else fewer(its, max(1, PARTS // max(1, consumers)))
        if fresh:
            self.news.append((number, fresh))
        if due:
            self.shown_s = now_s
        return bool(fresh)

    def since(self, number: int, most: int = KEPT) -> dict[str, tuple[LoggedReading, ...]]:
        """Return what was logged after those news, by name."""
        found: dict[str, tuple[LoggedReading, ...]] = {}
        for of, its in [*self.news][-most:]:
            if of > number:
                found |= {name: (*found.get(name, ()), *parts) for name, parts in its.items()}
        return found


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
            for name in told.logged.keys() & kept.numbers.keys():
                parts = [part._replace(batch=taken - part.batch) for part in told.logged[name]]
                its = [*kept.waiting.get(name, ()), *parts]
                kept.waiting[name] = its if len(its) <= KEPT else fewer(its, KEPT // 2)

    def reading_of(self, peer: Remote, since: int = 0) -> dict[str, Any]:
        """Return the last that a consumer has logged, and all since then."""
        kept: KeptNumbers = peer.notes.get(self.name) or KeptNumbers()
        core = self._core
        if kept.show(core.news + 1, len(core.dispatch.members), time.monotonic()):
            core.news += 1
        return {
            "metrics": dict(kept.shown),
            "logged_at": dict(kept.shown_at),
            "sparse": kept.sparse,
            "logged": kept.since(since),
        }


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
            self._peer.tell(self.name, pack(_packed(told)))

    def close(self) -> None:
        """Tell the last, and listen no more."""
        if (told := self._news.take(now=True)) is not None and self._peer is not None:
            self._peer.tell(self.name, pack(_packed(told)))
        self._news.end()


def _packed(told: LoggedNews) -> Metrics:
    return Metrics(
        told.numbers, told.ago, told.sparse, {name: tuple(its) for name, its in told.logged.items()}
    )


def logged_by(peer: Remote) -> dict[str, Any]:
    """Return the last that a consumer has logged, as fields of its end. Called under the lock."""
    kept: KeptNumbers = peer.notes.get(MetricsKept.name) or KeptNumbers()
    return {"metrics": dict(kept.numbers), "logged_at": dict(kept.at), "sparse": kept.sparse}


def logged_at_last(peer: Remote) -> dict[str, tuple[LoggedReading, ...]]:
    """Return what a consumer that has left had logged in its last seconds, by name. Called under the lock."""
    kept: KeptNumbers = peer.notes.get(MetricsKept.name) or KeptNumbers()
    kept.show(kept.news[-1][0] + 1 if kept.news else 1, 0, time.monotonic())
    return kept.since(0, KEPT_OF_ENDED)


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
