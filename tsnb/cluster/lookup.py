"""Find a stream that is served over a Ray cluster, from a process on any of its machines.

Knows names only: what runs behind them is `stream_hub` and `stream_relay`. A process that has
not joined a cluster finds what its own machine has.
"""

from __future__ import annotations

import getpass
import os
from typing import Any

from tsnb.config import runtime_directory
from tsnb.engines import joined
from tsnb.errors import ProducerNotFound, TsnbError
from tsnb.stream.protocol.messages import PROTOCOL

__all__ = [
    "bring_here",
    "hub_name",
    "last_words",
    "namespace",
    "only_stream",
]

_PREFIX = "tsnb-hub-"
OPEN_S = 120.0
"""How long a machine's relay may take to come up: a process that imports torch, on a machine that may be busy."""


def namespace() -> str:
    """Return the part of a cluster's names that is this user's: `TSNB_RAY_NAMESPACE`, else `tsnb-` and the user."""
    chosen = os.environ.get("TSNB_RAY_NAMESPACE")
    if chosen:
        return chosen
    try:
        return f"tsnb-{getpass.getuser()}"
    except (KeyError, OSError):  # a container's user that has no name
        return f"tsnb-{os.getuid()}"


def hub_name(stream: str) -> str:
    """Return by which name a stream's hub is known in the cluster."""
    return _PREFIX + stream


def last_words(error: BaseException) -> str:
    """Return the one line of what Ray has raised that tells most: the error within, without its traceback."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    raised = [line for line in lines if "Error" in line.partition(":")[0]]
    return (raised or lines or [type(error).__name__])[-1].rstrip(".")


def only_stream() -> str | None:
    """Return the name of the only stream of the cluster; None if it has none, or this process is not in a cluster.

    Raises:
        ProducerNotFound: There are several; lists them.
    """
    ray = joined()
    names = _streams(ray) if ray is not None else []
    if len(names) > 1:
        raise ProducerNotFound(
            f"Several streams are running in the cluster: {', '.join(names)}. Name one, for example "
            f"tsnb.attach(stream={names[0]!r})."
        )
    return names[0] if names else None


def bring_here(stream: str) -> str | None:
    """Have a stream of the cluster served on this machine, by a relay.

    Args:
        stream: Its name.

    Returns:
        Its name; None if this process is in no cluster.

    Raises:
        ProducerNotFound: The cluster has no such stream; lists those that it has.
        TsnbError: The relay cannot be started here; says why.
    """
    ray = joined()
    if ray is None:
        return None
    try:
        hub = ray.get_actor(hub_name(stream), namespace=namespace())
    except ValueError:
        raise ProducerNotFound(_not_there(stream, _streams(ray))) from None
    node = ray.get_runtime_context().get_node_id()
    try:
        ray.get(hub.relay_on.remote(node, str(runtime_directory()), PROTOCOL), timeout=OPEN_S)
    except ray.exceptions.RayError as error:
        raise TsnbError(
            f"Stream {stream!r} of the cluster is not available on this machine: {_why_not(error, ray)}"
        ) from None
    return stream


def _why_not(error: Any, ray: Any) -> str:
    if isinstance(error, ray.exceptions.GetTimeoutError):
        return (
            f"its relay was not ready within {OPEN_S:.0f} s, because this machine or the machine of the "
            "stream is busy or unreachable (`ray status` lists them). Attach again."
        )
    if isinstance(error, ray.exceptions.RayActorError):
        return (
            "its hub, on the machine of the stream, has ended. Serve the stream again, and attach again. "
            f"({last_words(error)})"
        )
    if isinstance(cause := getattr(error, "cause", None), TsnbError):
        return f"{cause}."
    return f"{last_words(error)}. Every machine of the cluster needs the same version of tsnb (docs/ray-cluster.md)."


def _not_there(stream: str, names: list[str]) -> str:
    there = f"The cluster has {', '.join(names)}" if names else "The cluster has no stream"
    return (
        f"No stream named {stream!r} is running on this machine or in the cluster's namespace "
        f'{namespace()!r}. {there}. Serve it there with engine="ray". If it is served, check that '
        "TSNB_RAY_NAMESPACE and the user name are the same on both machines."
    )


def _streams(ray: Any) -> list[str]:
    """Return the names of this user's streams in the cluster."""
    mine = namespace()
    listed = ray.util.list_named_actors(all_namespaces=True)
    return sorted(
        actor["name"].removeprefix(_PREFIX)
        for actor in listed
        if actor["namespace"] == mine and actor["name"].startswith(_PREFIX)
    )
