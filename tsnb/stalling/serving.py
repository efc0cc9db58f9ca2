"""Serves a loader in this process as `tsnb.serve` does, for a measurement."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tsnb.attaching import attach
from tsnb.frozen.part import FrozenPart
from tsnb.serving import serve
from tsnb.serving.stream import Producer
from tsnb.stalling.measuring import LONGEST, Continued, Counted, length_of, rows
from tsnb.stalling.silence import awaited, came, waits

__all__ = ["Served", "full_after", "served"]

TICKETS = 8
"""A served loader orders up to so many batches at a time."""
WINDOW = 8
"""Batches that it publishes before they are taken."""
WARM_UP = 60
"""Batches after which the slots of a served loader have gone round; fewer where that takes `LONGEST` times the
seconds asked for."""
LONG = 200
"""Batches of an epoch that is not begun anew for each measurement of the served loader."""
PATIENCE_S = 3600.0
"""Of the served loader, with a loop that rests while the others are measured."""

_numbers = itertools.count(1)


def full_after(loader: Any) -> int:
    """Return the batches after which what a served loader prepares ahead no longer counts as its pace."""
    return (
        getattr(loader, "num_workers", 0) * (getattr(loader, "prefetch_factor", None) or 0) * TICKETS + WINDOW
    )


@dataclass(frozen=True)
class FrozenCost:
    """What a frozen part of a network costs in the loader that computes it."""

    name: str
    """What it is called."""
    sample_s: float
    """Seconds that one worker computes for a sample."""
    share: float
    """Of the loader's time, 0 to 1."""


class FrozenClock:
    """Counts what a frozen part computes while its loader runs alone.

    Args:
        part: The frozen part.
        workers: Of its loader.
    """

    def __init__(self, part: FrozenPart, workers: int) -> None:
        self._part = part
        self._workers = max(1, workers)
        self._computing_s = self._whole_s = 0.0
        self._batches = self._samples = self._of_batches = 0

    def run(self, measured: Callable[[], Counted]) -> Counted:
        """Measure the loader, and count."""
        before_s, before = self._part.counters.read()
        found = measured()
        after_s, after = self._part.counters.read()
        self._computing_s += after_s - before_s
        self._batches += after - before
        self._whole_s += found.wall_s * self._workers
        self._samples += found.samples
        self._of_batches += found.batches
        return found

    @property
    def cost(self) -> FrozenCost:
        """What it costs, by all that was counted."""
        batch_s, each = self._computing_s / max(1, self._batches), max(1, self._of_batches)
        share = batch_s / (self._whole_s / each) if self._whole_s else 0.0
        return FrozenCost(self._part.name, batch_s * each / max(1, self._samples), min(1.0, share))


@dataclass(frozen=True)
class Served:
    """A loader that is served, and has been for some batches."""

    stream: Any
    """A consumer of it, which goes on where it stopped if the epochs are long."""
    producer: Producer
    """What serves it."""
    samples: int
    """So many were taken first..."""
    took_s: float
    """... in so many seconds, from before there was a producer."""
    serve_s: float
    """Seconds of that until there was one."""


@contextmanager
def served(loader: Any, seconds: float) -> Iterator[Served]:
    """Serve a loader, and take its first batches.

    Its slots have been written once by then: memory that is new is expensive, but only once. No consumer joins late, so
    it has no late-join window, which would take new memory for all of the measurement.

    Args:
        loader: The user's.
        seconds: How long it will be measured.

    Raises:
        LoaderFailed: It cannot be shared.
    """
    name = f"stalls-{os.getpid()}-{next(_numbers)}"
    began_s = time.perf_counter()
    waits()  # a stream begins with a batch
    with (
        serve(loader, name=name, window=WINDOW, late_join=0.0, stall_timeout_s=PATIENCE_S) as producer,
        attach("stalls", name) as consumer,
    ):
        serve_s = time.perf_counter() - began_s
        came()
        stream: Any = consumer if (length_of(loader) or LONG) < LONG else Continued(consumer)
        samples, first_s = 0, time.perf_counter()
        for number, batch in enumerate(awaited(iter(stream))):
            samples += rows(batch)
            if number >= WARM_UP or time.perf_counter() - first_s > LONGEST * seconds:
                break
        yield Served(stream, producer, samples, time.perf_counter() - began_s, serve_s)
