"""The stream as its balancer sees it, and what the balancer tells consumers."""

from __future__ import annotations

import time

from tsnb.balancing.controller import Attached, Controller, Stream
from tsnb.producer.core import Core
from tsnb.producer.reporting import consumers
from tsnb.wire import messages as ms

__all__ = ["controller_of"]


def controller_of(core: Core, loading_thread: int) -> Controller:
    """Return what moves cores and threads for a producer; it is switched off.

    Args:
        core: The producer's.
        loading_thread: The number of the thread whose children are the loader's workers.
    """

    def look() -> Stream:
        with core.lock:
            return _stream(core, loading_thread)

    def tell(name: str, told: ms.Allotted) -> None:
        with core.lock:
            for session in core.sessions.values():
                if session.role == "consumer" and session.name == name:
                    session.send(told)

    return Controller(core.settings.name, look, tell)


def _stream(core: Core, loading_thread: int) -> Stream:
    now = time.monotonic()
    return Stream(
        batches=core.dispatch.epochs.end,
        workers=core.source.workers if core.source else 0,
        loading_thread=loading_thread,
        consumers=tuple(
            Attached(
                reading,
                session.threads.number,
                session.threads.own,
                session.threads.fixed,
                reading.weight,
                session.number,
            )
            for reading, session in consumers(core, now, core.dispatch.gap.blocked_s(now))
            if session.threads is not None
        ),
        mode=core.dispatch.balance.mode,
    )
