"""What a producer tells a newcomer about its stream."""

from __future__ import annotations

import os

from tsnb.stream.loader.facts import Indices
from tsnb.stream.producer.core import HOLD, Core
from tsnb.stream.protocol import messages as ms

__all__ = ["tell_length", "welcome"]


def welcome(core: Core) -> ms.Welcome:
    """Describe the stream to a newcomer. Called under the lock."""
    source = core.source
    indices = source.indices if source else Indices()
    return ms.Welcome(
        name=core.settings.name,
        pid=os.getpid(),
        window=core.settings.window_batches,
        hold=HOLD,
        batch_size=source.batch_size if source else None,
        epoch_batches=source.batches if source else None,
        epoch_samples=source.samples if source else None,
        order=source.order if source else "",
        unordered=core.unordered,
        reconnect_s=core.settings.reconnect_s,
        guard=core.settings.guard,
        indexed=indices.samples,
        each_once=indices.each_once,
        unindexed=indices.why_not,
        grows=core.growth is not None,
        dataset=core.dataset,
        first_seeds=core.seeds.first,
        later_seeds=core.seeds.later,
        draws=core.draws,
        stall_timeout_s=core.settings.stall_timeout_s,
        inputs=core.settings.inputs,
    )


def tell_length(core: Core) -> None:
    """Tell consumers how long an epoch is, if that has changed: samples have entered."""
    assert core.source is not None
    length = batches, samples = core.source.batches, core.source.samples
    if length == core.length_told or batches is None or samples is None:
        return
    with core.lock:
        core.length_told = length
        told = welcome(core)
        for session in core.sessions.values():
            if session.role == "consumer":
                session.send(told)
