"""Where a stream is served and trials run: on this machine, or over a cluster. The only place that asks which.

| seam | this machine | a cluster |
|---|---|---|
| a stream (`tsnb.serve`, `tsnb.attach`) | `tsnb.serving`, `registry` | `Cluster.serve`, `stream_of_cluster` |
| a trial's kernel | `experiments.running.engine.ThisMachine` | `Cluster.join`, `attempt` and `places` |

What runs behind a cluster is `tsnb.cluster`. It is loaded by its name at its first use: no other part imports it, and
this one imports Ray from where it is imported already.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Protocol

from tsnb.options import runs_here

__all__ = ["Cluster", "cluster_at", "joined", "stream_of_cluster"]


class Cluster(Protocol):
    """What streams and trials ask of a cluster. Types are said where they are known: below it they are not."""

    def serve(self, loader: Any, options: Any, *, name: str, origin: str | None) -> Any:
        """Serve a loader of this process to consumers on every machine, as `serving.serve_here` does here."""

    def join(self) -> None:
        """Be in the cluster until this process ends.

        Raises:
            ExtraMissing: Ray is not installed.
            TsnbError: The cluster does not exist, or this process is in another one.
        """

    def attempt(self, hub: Any, plan: Any, settings: Any, host: Any, run: Any) -> Any:
        """Return a kernel for one run through a trial's code (`experiments.running.attempt.Attempt`)."""

    def places(self, plan: Any, trials: int) -> tuple[int, str]:
        """Return how many of these trials run at once, and why so many. In a process that has joined."""


def cluster_at(engine: str) -> Cluster | None:
    """Return the cluster that an engine names; None for this machine.

    Raises:
        ValueError: It is not an engine.
    """
    if runs_here(engine):
        return None
    cluster: Cluster = import_module("tsnb.cluster.ray_cluster").RayCluster(engine)
    return cluster


def joined() -> Any:
    """Return Ray's module where this process has joined a cluster; else None."""
    ray = sys.modules.get("ray")
    return ray if ray is not None and getattr(ray, "is_initialized", bool)() else None


def stream_of_cluster(name: str | None) -> str | None:
    """Have a stream of the cluster that this process is in served on this machine.

    Args:
        name: Its name; None asks for the only one of the cluster, and starts nothing.

    Returns:
        Its name; None if this process is not in a cluster, or the only one was asked for and the cluster has none.

    Raises:
        ProducerNotFound: The cluster has no such stream, or several where the only one was asked for; lists them.
        TsnbError: It is not available on this machine; says why.
    """
    if joined() is None:
        return None
    streams = import_module("tsnb.cluster.membership")
    found: str | None = streams.only_stream() if name is None else streams.bring_here(name)
    return found
