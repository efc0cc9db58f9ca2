"""Where this process is in its streams: what stands beside each logged row, and what is reported now and then.

Numbers of the consumers are read from any thread; none of this may raise into training.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, NamedTuple

__all__ = ["Position", "position", "report", "tell_metrics"]


class Position(NamedTuple):
    """How far training has come in its stream."""

    epoch: int | None = None
    """The stream's epoch that is being taken or was taken last, from 0; None before the first batch."""
    batch: int | None = None
    """Loader batches taken of it; None where that is not known."""
    samples: int = 0
    """Samples taken in all, of all streams."""


def _consumers() -> list[Any]:
    """Return this process's consumers; none where nothing of them was ever imported."""
    found = getattr(sys.modules.get("tsnb.consumer"), "consumers", None)  # it may be half imported just now
    return [] if found is None else list(found())


def position() -> Position:
    """Return where training is. With several streams it is in the one that it has taken most samples of."""
    consumers = _consumers()
    if not consumers:
        return Position()
    taken = [consumer.stats().samples for consumer in consumers]
    main = consumers[taken.index(max(taken))]
    if main.epoch < 0:
        return Position(samples=sum(taken))
    return Position(main.epoch, _batch(main), sum(taken))


def _batch(consumer: Any) -> int | None:
    """Return the loader batches that a consumer has taken of its epoch, all of them when it is over."""
    place = consumer.state_dict()
    if place["epoch"] == consumer.epoch:
        return int(place["batch"])
    if consumer.options.batch_size is None:
        with contextlib.suppress(TypeError):
            return len(consumer)
    return None


def tell_metrics() -> None:
    """Tell every stream what was logged since the last time: a loop does so at its steps, and may be over."""
    for consumer in _consumers():
        consumer.tell_metrics()


def report() -> dict[str, Any]:
    """Return what the results show of this process's consumers, all of them together; {} where there are none."""
    consumers = _consumers()
    if not consumers:
        return {}
    stats = [consumer.stats() for consumer in consumers]
    samples, inside_s = sum(s.samples for s in stats), sum(s.inside_s for s in stats)
    waiting_s = sum(s.waited_s for s in stats)
    return {
        "stream": ", ".join(dict.fromkeys(consumer.producer for consumer in consumers)),
        # a validation stream beside it is no further training: those of the stream that gave most samples
        "epochs": max(stats, key=lambda s: s.samples).epochs,
        "batches": sum(s.batches for s in stats),
        "samples": samples,
        "samples_per_s": round(samples / inside_s, 1) if inside_s else 0.0,
        "computing_s": round(max(0.0, inside_s - waiting_s), 3),
        "waiting_s": round(waiting_s, 3),
    }
