"""Find a stream that is served over a Ray cluster, from a process on any of its machines.

Knows names only: what runs behind them is `tsnb.engines`. Imports Ray from where it is imported already: a process
that has not joined a cluster finds what its own machine has.
"""

from __future__ import annotations

import getpass
import os
import sys
from typing import Any

from tsnb.config import attach_defaults, runtime_directory
from tsnb.errors import ProducerNotFound, TsnbError
from tsnb.wire.messages import PROTOCOL

__all__ = ["address_of", "bring_here", "check_in_step", "hub_name", "joined", "namespace"]

_PREFIX = "tsnb-hub-"
OPEN_S = 120.0
"""How long a machine's relay may take to come up: a process that imports torch, on a machine that may be busy."""


def address_of(engine: str) -> str | None:
    """Return the cluster's address that an engine names, "" for the one at hand; None for this machine alone.

    Raises:
        ValueError: It is no engine.
    """
    if engine == "local":
        return None
    if engine == "ray" or engine.startswith("ray://"):
        return engine.removeprefix("ray").removeprefix("://")
    raise ValueError(f'engine={engine!r}: say "local", "ray" or "ray://HOST:PORT".')


def check_in_step(mode: str = "pace", *, rebalance: bool = False) -> None:
    """Refuse what one machine's part of a cluster's stream cannot do: go at a pace of its own.

    Machines are kept in step by the slowest, and a machine's cores are divided by who knows all its trials.

    Raises:
        ValueError: Another mode than "pace" was chosen, or cores are to be moved.
    """
    if mode != "pace" or rebalance:
        what = "rebalance=" if rebalance else f"mode {mode!r}"
        raise ValueError(
            f"{what} works on one machine only: a stream of a cluster keeps all its machines in step. Leave it out, or "
            "serve without engine."
        )


def joined() -> Any:
    """Return Ray's module where this process has joined a cluster; else None."""
    ray = sys.modules.get("ray")
    return ray if ray is not None and getattr(ray, "is_initialized", bool)() else None


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


def bring_here(stream: str | None) -> str | None:
    """Have a stream of the cluster served on this machine, by a relay.

    Args:
        stream: Its name; None: the only one that there is.

    Returns:
        Its name; None if this process is in no cluster, or the cluster has no such stream.

    Raises:
        ProducerNotFound: There are several, and no name was given; lists them.
        TsnbError: The relay cannot be started here; says why.
    """
    if attach_defaults.bring_here is not None:
        return attach_defaults.bring_here(stream)
    ray = joined()
    if ray is None:
        return None
    name = stream or _only_one(ray)
    if name is None:
        return None
    try:
        hub = ray.get_actor(hub_name(name), namespace=namespace())
    except ValueError:
        return None
    node = ray.get_runtime_context().get_node_id()
    try:
        ray.get(hub.relay_on.remote(node, str(runtime_directory()), PROTOCOL), timeout=OPEN_S)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        text = str(cause if isinstance(cause, TsnbError) else error).strip().splitlines()[-1]
        raise TsnbError(
            f"the stream {name!r} of the cluster cannot be had on this machine: {text}. Every machine of the cluster "
            "needs the same version of tsnb (docs/cluster.md)."
        ) from None
    return name


def _only_one(ray: Any) -> str | None:
    mine = namespace()
    listed = ray.util.list_named_actors(all_namespaces=True)
    names = sorted(
        actor["name"].removeprefix(_PREFIX)
        for actor in listed
        if actor["namespace"] == mine and actor["name"].startswith(_PREFIX)
    )
    if len(names) > 1:
        raise ProducerNotFound(
            f"several streams are served in the cluster, say which by producer=: {', '.join(names)}"
        )
    return names[0] if names else None
