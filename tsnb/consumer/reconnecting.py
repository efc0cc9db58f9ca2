"""Finding the producer that takes over from one that has gone."""

from __future__ import annotations

import time
from collections.abc import Callable

from tsnb import registry
from tsnb.arena.scratch import ScratchPool
from tsnb.consumer.connection import Connection
from tsnb.consumer.options import Options
from tsnb.errors import NameInUse, ProducerGone, RemoteProtocolError

__all__ = ["connect_to_successor"]

LOOK_S = 0.1
"""How often a consumer looks for its producer's successor."""


def connect_to_successor(
    gone: Connection,
    name: str,
    options: Options,
    scratch: ScratchPool,
    within_s: float,
    given_up: Callable[[], bool],
) -> Connection | None:
    """Wait for another producer of the same name, and connect to it.

    Args:
        gone: The connection to the one that has gone.
        name: As `Connection`.
        options: As `Connection`.
        scratch: As `Connection`.
        within_s: How long to wait.
        given_up: Asked now and then: whether nobody waits any more.

    Returns:
        The new connection; None if none came in time.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and not given_up():
        entry = next((e for e in registry.entries() if e.name == gone.entry.name), None)
        if entry is not None and entry.address != gone.entry.address:
            try:
                return Connection(entry, name, options, scratch, back=True)
            except (ProducerGone, NameInUse, RemoteProtocolError):
                pass  # it has just ended in its turn, or is not up yet: the next look tells
        time.sleep(LOOK_S)
    return None
