"""What a consumer looks at while it waits for a message or for a successor; what is done between two batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from tsnb.discovery import registry
from tsnb.discovery.promises import AGAIN, is_promised
from tsnb.errors import NameInUse, ProducerGone, RemoteProtocolError
from tsnb.stream.consumer.options import Options
from tsnb.stream.consumer.talking.connection import Connection
from tsnb.stream.memory.scratch import ScratchPool
from tsnb.stream.protocol.extension import Extension
from tsnb.stream.this_process import this_process

__all__ = ["Wished", "answered_by", "connect_to_successor", "look_for_wish", "pass_boundary", "telling"]


LOOK_S = 0.1
"""How often a consumer looks for its producer's successor."""


def answered_by(deadline: float) -> Callable[[float], None]:
    """Return what looks, while a message is waited for, whether that takes too long.

    Args:
        deadline: Until when, by the monotonic clock. After it a TimeoutError is raised.
    """
    began = time.monotonic()

    def look(_waited_s: float) -> None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"The stream did not answer within {deadline - began:.0f} s.")

    return look


def telling(tell: Callable[[], None], look: Callable[[float], None]) -> Callable[[float], None]:
    """Return what looks as `look` does, and before that tells what was logged: a wait may last for minutes."""

    def told(waited_s: float) -> None:
        tell()
        look(waited_s)

    return told


class Wished(Exception):
    """Something is to be done at the boundary between two batches."""


def look_for_wish(_waited_s: float) -> None:
    """While it is paused, nothing is worth a word.

    Raises:
        Wished: Something is to be done.
    """
    if this_process.boundary is not None:
        raise Wished


def pass_boundary() -> None:
    """Between two batches, in the thread that takes them: do once what was wished for."""
    wish, this_process.boundary = this_process.boundary, None
    if wish is not None:
        wish()


def connect_to_successor(
    gone: Connection,
    name: str,
    options: Options,
    scratch: ScratchPool,
    within_s: float,
    given_up: Callable[[], bool],
    *,
    paused: bool = False,
    extensions: Mapping[str, Extension] | None = None,
) -> Connection | None:
    """Wait for another producer of the same name, and connect to it.

    Args:
        gone: The connection to the one that has gone.
        name: As `Connection`.
        options: As `Connection`.
        scratch: As `Connection`.
        within_s: How long to wait.
        given_up: Asked now and then: whether to stop waiting.
        paused: As `Connection`.
        extensions: As `Connection`.

    Returns:
        The new connection; None if none came in time.
    """
    deadline = time.monotonic() + within_s
    # a goodbye that says how long to wait speaks of one return; of a crash, whoever starts it after each one
    counted = (AGAIN,) if gone.said_goodbye else ()
    promised = is_promised(gone.entry.name, *counted) or (gone.comes_back and not gone.said_goodbye)
    while time.monotonic() < deadline and not given_up():
        # somebody would start it again, and has given that up: after this look there is nobody to wait for
        last = promised and not is_promised(gone.entry.name, *counted)
        entry = next((e for e in registry.entries() if e.name == gone.entry.name), None)
        if entry is not None and entry.address != gone.entry.address:
            try:
                return Connection(
                    entry, name, options, scratch, back=True, paused=paused, extensions=extensions
                )
            except (ProducerGone, NameInUse, RemoteProtocolError):
                last = False  # it has just ended in its turn, or is not up yet: the next look tells
        if last:
            break
        time.sleep(LOOK_S)
    return None
