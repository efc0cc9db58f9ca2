"""Serves a loader in this process as `tsnb.serve` does, for a measurement."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tsnb.attaching import attach
from tsnb.serving import serve
from tsnb.serving.stream import Producer
from tsnb.stalling.measuring import LONGEST, Continued, length_of, rows
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
