"""This process's membership in a Ray cluster: joined where it is needed first, left where nothing needs it any more."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from typing import Any

from tsnb.engines.local_cluster import local_address
from tsnb.errors import ExtraMissing, TsnbError

__all__ = ["join_cluster", "stay_in_cluster"]

REACH_S = 10.0
"""How long a cluster's head may take to accept a connection."""
_START_ONE = (
    "If no cluster is running, start one, `ray start --head` here and `ray start --address=HOST:PORT` on the others, "
    "and run this on one of its machines."
)
_joining = threading.Lock()
_joined = ""
"""This process's life in a cluster, where it was joined here and not by the user."""
_needing = 0
"""How many streams need it, and whether trials do: with the process's leaving, what it has started there would end."""


def join_cluster(address: str) -> contextlib.ExitStack:
    """Be in a cluster; return what leaves it again, if this process joins it by this, and nothing else needs it then.

    Args:
        address: HOST:PORT of its head; "" for the one that this process or machine is in.

    Raises:
        ExtraMissing: Ray is not installed.
        TsnbError: There is no such cluster, or this process is in another.
    """
    global _joined, _needing
    try:
        import ray
    except ImportError:
        raise ExtraMissing("engine=\"ray\" needs Ray: pip install 'tsnb[ray]'") from None
    leave = contextlib.ExitStack()
    with _joining:
        client: Any = ray.util.client.ray
        if client.is_connected():
            raise TsnbError(
                'this process looks into its Ray cluster from outside, by Ray Client (ray.init("ray://...")). Run it '
                'on one of the cluster\'s machines, and join by ray.init(address="auto"), or not at all.'
            )
        if ray.is_initialized():
            here = ray.get_runtime_context().gcs_address
            if address and address != here:
                raise TsnbError(
                    f"this process is in the Ray cluster at {here}, not in that at {address}: call ray.shutdown() "
                    'first, or say engine="ray".'
                )
        else:
            _init(ray, address)
            _joined, _needing = _life(ray), 0
        if _life(ray) == _joined:
            _needing += 1
            leave.callback(_leave, ray, _joined)
    return leave


def stay_in_cluster(address: str) -> None:
    """Be in a cluster until this process ends, whatever streams it serves meanwhile. Errors as `join_cluster`'s."""
    join_cluster(address).pop_all()


def _init(ray: Any, address: str) -> None:
    if address:
        _require_answer(address)
    try:
        # RAY_ADDRESS names one, and Ray reads it; "auto" alone would take another user's
        named = address or ("auto" if os.environ.get("RAY_ADDRESS") else local_address())
        ray.init(address=named, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        at = f"the Ray cluster at {address}" if address else "a Ray cluster on this machine"
        said = " ".join(str(error).split()).rstrip(".")[:600]
        raise TsnbError(
            f"{at} cannot be joined: {said}. {_START_ONE} If it wants a token, give this process RAY_AUTH_MODE=token "
            "and the token (docs/cluster.md)."
        ) from None


def _require_answer(address: str) -> None:
    """Look whether anybody is at an address: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        if not (host and port.isdigit()):
            raise OSError("that is not HOST:PORT")
        socket.create_connection((host, int(port)), REACH_S).close()
    except (OSError, OverflowError) as error:
        raise TsnbError(f"no Ray cluster was found at {address!r}: {error}. {_START_ONE}") from None


def _leave(ray: Any, life: str) -> None:
    """Leave the cluster, if nothing else needs it."""
    global _needing
    with _joining:
        if life != _joined:
            return  # that life is over
        _needing -= 1
        if not _needing and ray.is_initialized() and _life(ray) == life:
            ray.shutdown()


def _life(ray: Any) -> str:
    """Return what tells this process's life in its cluster from any other."""
    context = ray.get_runtime_context()
    return f"{context.gcs_address} {context.get_job_id()}"
