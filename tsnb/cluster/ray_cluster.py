"""The cluster as the rest of tsnb knows it: what `engines.Cluster` asks, each answered by the module that can.

Those modules are imported when they are first asked: to serve needs no kernels, and a trial no streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tsnb.options import StreamOptions

if TYPE_CHECKING:
    from tsnb.experiments.plan import TrialPlan
    from tsnb.experiments.running.attempt import Attempt
    from tsnb.experiments.running.trial_life import TrialLife
    from tsnb.kernels.hub import Hub
    from tsnb.records.run import Run
    from tsnb.serving.stream import Producer

__all__ = ["RayCluster"]


class RayCluster:
    """A Ray cluster.

    Args:
        engine: "ray", the one that this process or machine is in; "ray://HOST:PORT", the one with that head.

    Raises:
        ValueError: It is not an engine.
    """

    def __init__(self, engine: str) -> None:
        if engine != "ray" and not engine.startswith("ray://"):
            raise ValueError(f'engine={engine!r} is invalid. Pass "local", "ray" or "ray://HOST:PORT".')
        self.address = engine.removeprefix("ray").removeprefix("://")

    def serve(self, loader: Any, options: StreamOptions, *, name: str, origin: str | None) -> Producer:
        """Serve a loader to the consumers on every machine; see `serving.serve`."""
        from tsnb.cluster.offer import serve

        return serve(loader, options, name=name, origin=origin, address=self.address)

    def join(self) -> None:
        """Be in the cluster until this process ends; see `room.join`."""
        from tsnb.cluster.room import join

        join(self.address)

    def attempt(
        self, hub: Hub, plan: TrialPlan, settings: Mapping[str, Any], host: TrialLife, run: Run
    ) -> Attempt:
        """Return a kernel on a machine of the cluster, for one run through a trial's code."""
        from tsnb.cluster.remote_attempt import ClusterAttempt

        return ClusterAttempt(hub, plan, settings, host, run)

    def places(self, plan: TrialPlan, trials: int) -> tuple[int, str]:
        """Return how many of these trials the cluster has room for at once, and that it is so."""
        from tsnb.cluster.remote_attempt import needs_of
        from tsnb.cluster.room import places_in_cluster

        needs = needs_of(plan)
        return max(1, min(trials, places_in_cluster(needs))), f"as the cluster has room for, {needs} for each"
