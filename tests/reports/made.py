"""Readings made by hand, for what a computed stream does not do: restarts, lives, gaps."""

from __future__ import annotations

from typing import Any

from tests.panel.streams import Stream, Trial
from tsnb.telemetry.readings import ConsumerReading, StreamReading

__all__ = ["START_S", "consumer", "reading"]

START_S = 1_790_000_000.0

_TEMPLATE = Stream([Trial("a", 0.1)]).reading()


def consumer(
    name: str, computing_s: float = 0.0, waiting_s: float = 0.0, held_s: float = 0.0, **more: Any
) -> ConsumerReading:
    batches = more.pop("batches", round(10 * computing_s))
    fields = {"pid": 1, "state": "streaming", "epoch": 0, "position": 0, "fill": 0, "lag": 0, **more}
    return ConsumerReading(
        name=name,
        batches=batches,
        samples=8 * batches,
        computing_s=computing_s,
        waiting_s=waiting_s,
        held_s=held_s,
        **fields,
    )


def reading(after_s: float, *consumers: ConsumerReading, **more: Any) -> StreamReading:
    fields = {**vars(_TEMPLATE), "batches": round(10 * after_s), "blocked_s": 0.0, "state": "serving", **more}
    return StreamReading(**{**fields, "time_s": START_S + after_s, "consumers": consumers})
