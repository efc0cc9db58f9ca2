"""Which stream a consumer attaches to: by its name, or the only one there is; one that is away for a moment, too."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tsnb.discovery import registry
from tsnb.errors import ProducerNotFound, StreamNotNamed
from tsnb.stream.this_process import this_process

if TYPE_CHECKING:
    from tsnb.stream.consumer.attachment import Attachment

__all__ = ["LOOK_S", "RETURN_S", "find"]

RETURN_S = 60.0
"""So long a stream is waited for that is being started again: a kernel with torch needs seconds."""
LOOK_S = 0.1
"""How often it is looked whether it is back."""


def find(
    stream: str | None, name: str, consumers: Mapping[tuple[str, str], Attachment]
) -> registry.Entry | Attachment:
    """Return a producer; else a consumer that is connected, or the relay of a stream of the cluster.

    A stream that is being started again is waited for.

    Args:
        stream: Its name; None: the only one.
        name: The consumer's.
        consumers: This process's, by the names of stream and consumer.

    Raises:
        ProducerNotFound: It is not there.
        ProducerGone: This process is a trial that read it, and somebody has stopped it since.
        TsnbError: As `config.AttachDefaults.ask_cluster`.
    """
    wanted = stream or _only_one() or registry.away()
    until_s = time.monotonic() + RETURN_S
    while True:
        try:
            return registry.find(wanted)
        except ProducerNotFound:
            mine = _connected(stream, name, consumers)
            if mine is not None:
                return mine
            if wanted is None or registry.away(wanted) is None or time.monotonic() > until_s:
                if wanted is not None:
                    _ask_cluster(wanted)  # starts its relay here, should there be one
                return _served(wanted, consumers)
        time.sleep(LOOK_S)


def _served(wanted: str | None, consumers: Mapping[tuple[str, str], Attachment]) -> registry.Entry:
    """Return a producer. A trial hears between two epochs, too, that it was stopped with its stream."""
    try:
        return registry.find(wanted)
    except ProducerNotFound:
        mine = [each for (stream, _), each in consumers.items() if wanted in (None, stream)]
        for consumer in mine if this_process.run else ():
            consumer.close_if_gone()
            if consumer.stopped_with is not None:
                raise consumer.stopped_with from None
        raise


def _only_one() -> str | None:
    """Return the stream to use when no name is given: the same one on every machine of a cluster.

    Returns:
        Its name; None where what this machine has decides.

    Raises:
        ProducerNotFound: There are several.
    """
    in_cluster = _ask_cluster(None)
    if in_cluster is None:
        return None
    here = [entry.name for entry in registry.entries() if entry.name != in_cluster]
    if here:
        raise StreamNotNamed(
            f"Several streams are running: {in_cluster} in the cluster, {', '.join(here)} on this "
            f"machine. Name one, for example tsnb.attach(stream={in_cluster!r})."
        )
    return in_cluster


def _connected(
    producer: str | None, name: str, consumers: Mapping[tuple[str, str], Attachment]
) -> Attachment | None:
    """Return this process's consumer of that name whose producer lives, or is being started again, if there is one.

    The registry may not know of it: it is away for a moment, or somebody has removed the folder of its entries.
    """
    for (stream, other), consumer in consumers.items():
        if other == name and producer in (None, stream):
            consumer.close_if_gone(taken_over=consumer.in_reach)
            if not consumer.closed:
                return consumer
    return None


def _ask_cluster(stream: str | None) -> str | None:
    """Have a stream of the cluster served here, or ask which is the only one; None: there is none."""
    return None if this_process.ask_cluster is None else this_process.ask_cluster(stream)
