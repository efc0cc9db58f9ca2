"""Readings made by hand, for what a computed stream does not do: restarts, lives, gaps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tests.panel.streams import Stream, Trial, three_models
from tsnb.duels.seeds import Block, Rules
from tsnb.duels.verdict import judge
from tsnb.telemetry.readings import ConsumerReading, EndReading, OutcomeReading, StreamReading

__all__ = ["START_S", "consumer", "duelled", "ended_badly", "reading"]

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


def ended_badly() -> list[StreamReading]:
    """Three models; one fails of a long error, one is stopped, and the third is done."""
    readings = list(three_models().run(40))
    last = readings[-1]
    names = [c.name for c in last.consumers][:3]
    error = "ValueError: loss is nan after " + "a long way " * 20
    told = (("failed", error), ("stopped", ""), ("done", ""))
    for k, (name, (state, why)) in enumerate(zip(names, told, strict=True)):
        time_s = last.time_s + 1 + k
        end = EndReading(name, state, time_s, last.consumers[k].pid, why, {"loss": math.nan})
        left = tuple(c for c in last.consumers if c.name not in names[: k + 1])
        readings.append(replace(last, time_s=time_s, consumers=left, ends=(end,), host=None))
    return readings


def duelled(*names: str, seeds: int = 4) -> tuple[list[StreamReading], list[dict[str, Any]]]:
    """Return readings of a stream on which duels ran, all over now, and the duels as screens have them."""
    trials = [
        f"{name}-{k + 1}-{arm}" for name in names for k in range(seeds) for arm in ("incumbent", "candidate")
    ]
    readings = list(Stream([Trial(name, 0.02) for name in trials], "duels").run(20))
    last = readings[-1]
    ends = tuple(
        EndReading(c.name, "done", last.time_s + 1, c.pid, "", {"accuracy": 0.76 + 0.005 * k})
        for k, c in enumerate(last.consumers)
    )
    blocks = [Block(k, 10 + k, 0.76, 0.78 + 0.01 * k) for k in range(1, seeds + 1)]
    told = [judge(blocks, Rules("accuracy", "max")).told(name, over=True) for name in names]
    said = " ".join(f"Duel {duel['duel']}: {duel['said']}" for duel in told)
    found = OutcomeReading(duels=said)
    readings.append(replace(last, time_s=last.time_s + 1, consumers=(), ends=ends, outcome=found, host=None))
    return readings, told


def reading(after_s: float, *consumers: ConsumerReading, **more: Any) -> StreamReading:
    fields = {**vars(_TEMPLATE), "batches": round(10 * after_s), "blocked_s": 0.0, "state": "serving", **more}
    return StreamReading(**{**fields, "time_s": START_S + after_s, "consumers": consumers})
