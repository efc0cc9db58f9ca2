"""Ray Tune: trials of one Tuner on one stream, which all begin with the same batch.

    start = CommonStart(4)

    def train(config):
        batches = start.attach(stream="digits")
        ...

    Tuner(tune.with_parameters(train), ...).fit()

Plain `tsnb.attach` works in a trainable as well: a trial that comes late takes the next epoch then.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from tsnb.errors import ExtraMissing
from tsnb.stream.this_process import this_process

if TYPE_CHECKING:  # the gate's process imports this module too, and needs no torch
    from tsnb.stream.consumer.consumer import Consumer

__all__ = ["CommonStart"]

LATER_S = 10.0
"""How long the gate's process may take to come up, and to answer."""


class _Barrier:
    """Lets all through once enough have come. Runs as an actor."""

    def __init__(self, trials: int) -> None:
        self._missing = trials
        self._open = asyncio.Event()

    async def arrive(self, within_s: float) -> bool:
        """Wait for the others, for so long at most; return whether they came."""
        self._missing -= 1
        if self._missing <= 0:
            self._open.set()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._open.wait(), within_s)
        return self._open.is_set()


class CommonStart:
    """Has trials wait for each other, behind their ask for an epoch and before its first batch.

    Made once, where the Tuner is; travels to the trials with the trainable.

    Args:
        trials: How many begin together. All of them must have room in the cluster at once.
        within_s: Seconds that a trial waits for the others; then it goes on without them.

    Raises:
        ExtraMissing: Ray is not installed.
    """

    def __init__(self, trials: int, within_s: float = 120.0) -> None:
        try:
            import ray
        except ImportError:
            raise ExtraMissing("Ray Tune needs Ray: pip install 'tsnb[ray]' 'ray[tune]'") from None
        if trials < 1:
            raise ValueError(
                f"trials={trials!r} is invalid. Pass the number of trials that start together, 1 or more."
            )
        actor: Any = ray.remote(_Barrier)
        self._gate = actor.options(num_cpus=0, max_concurrency=1000).remote(trials)
        self._within_s = within_s

    def attach(self, name: str | None = None, stream: str | None = None, **options: Any) -> Consumer:
        """Attach as `tsnb.attach` does; the first batch comes when all trials have asked for it.

        Args:
            name: The consumer's name; by default the trial's.
            stream: The stream's name.
            **options: As `tsnb.attach`.

        Raises:
            Exception: As `tsnb.attach` raises.
        """
        from tsnb.attaching import attach

        consumer = attach(name or _trial_name(), stream, **options)
        this_process.first_batch = self._arrive
        return consumer

    def _arrive(self) -> None:
        import ray

        # if the gate has gone, there is nothing to wait for
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._gate.arrive.remote(self._within_s), timeout=self._within_s + LATER_S)


def _trial_name() -> str | None:
    """Return the name of the trial that runs here, as far as it can name a consumer."""
    from ray import tune

    context: Any = tune.get_context()
    name = context.get_trial_id()
    return f"trial-{name}" if name else None
