"""When the trials that run end, as is seen on their streams: so that the next ones are there by then."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tsnb.errors import TsnbError
from tsnb.planners.queueing import Leaver
from tsnb.telemetry.observer import status
from tsnb.telemetry.readings import ConsumerReading

if TYPE_CHECKING:
    from tsnb.experiments.trial_life import TrialLife

__all__ = ["Remaining", "stream_of"]

LEAST_BATCHES = 4
"""Fewer between two looks say nothing about a pace."""


def stream_of(life: TrialLife) -> str:
    """Return what a trial says that it takes, or was told to take before it has said so; empty: not known.

    Args:
        life: The trial's; of one that takes several streams it is all of them, "a, b".
    """
    return str(life.report.get("stream", "")) or life.plan.options.stream or ""


class Remaining:
    """When consumers end, by how fast they went between two looks at their streams."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, float]] = {}

    def of(self, streams: Mapping[str, str]) -> dict[str, Leaver]:
        """Return what is still to come of consumers, as far as their streams say.

        Args:
            streams: Of each, by its name; one that takes several is left out.
        """
        found: dict[str, Leaver] = {}
        for stream in {each for each in streams.values() if each and ", " not in each}:
            with contextlib.suppress(TsnbError, OSError):
                reading = status(stream)
                for consumer in reading.consumers:
                    if reading.epoch_batches and streams.get(consumer.name) == stream:
                        found |= self._of(consumer, reading.epoch_batches)
        return found

    def leavers(self, streams: Mapping[str, str]) -> list[Leaver]:
        """Return the same for each of them; of one that nothing is known of, that it never ends.

        Args:
            streams: As `of` takes them.
        """
        known = self.of(streams)
        return [known.get(name) or Leaver(name, math.inf, math.inf) for name in streams]

    def _of(self, consumer: ConsumerReading, batches: int) -> dict[str, Leaver]:
        inside_s = consumer.computing_s + consumer.waiting_s + consumer.held_s
        before, here = self._before.get(consumer.name, (0, 0.0)), (consumer.batches, inside_s)
        if here[0] - before[0] < LEAST_BATCHES:
            before = 0, 0.0
        else:
            self._before[consumer.name] = here
        if not (consumer.planned >= consumer.epochs > 0 and here[0] > before[0]):
            return {}
        left = (consumer.planned - consumer.epochs) * batches + max(0, batches - consumer.position)
        left_s = left * (here[1] - before[1]) / (here[0] - before[0])
        return {consumer.name: Leaver(consumer.name, left_s, left / batches)}
