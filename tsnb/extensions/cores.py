"""Moving cores and threads between the trials of a stream and its loader: the balancer, as its stream sees it.

    observer --Rebalance--> producer's half --Allotted--> consumer's half (`allotment`)
                            producer's half <--Threads--- consumer's half

`balancing.controller` moves them, in a thread of its own.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from tsnb.balancing.controller import Attached, Controller, Stream
from tsnb.balancing.told import Allotted, Threads
from tsnb.errors import RemoteProtocolError
from tsnb.extensions.readings import consumers
from tsnb.options import check_in_step
from tsnb.stream.protocol.extension import Extension, Remote, Undoable
from tsnb.telemetry.observer import Rebalance
from tsnb.text.foreign import pack, unpack

if TYPE_CHECKING:
    from tsnb.stream.producer.core import Core

__all__ = ["CoreBalance"]

MOST_THREADS = 1 << 20
"""No machine has as many."""


class CoreBalance(Extension):
    """The producer's half; it is switched off at first.

    Args:
        core: The producer's.
        loading: The thread that is the parent of the loader's workers.
    """

    name = "cores"

    def __init__(self, core: Core, loading: threading.Thread) -> None:
        self._core = core
        self._loading = loading
        self._controller = Controller(core.settings.name, self._look, self._tell)

    def hear(self, peer: Remote, payload: bytes) -> None:
        """Switch as an observer asks, or note on how many threads a consumer computes.

        Raises:
            RemoteProtocolError: It is neither.
            Undoable: It is a stream of a cluster.
        """
        try:
            if peer.role == "observer":
                on = unpack(Rebalance, payload).on
            else:
                threads = unpack(Threads, payload)
                if not (0 <= threads.number <= MOST_THREADS and 0 <= threads.own <= MOST_THREADS):
                    raise ValueError(f"{threads.number} threads")
        except ValueError as error:
            raise RemoteProtocolError(str(error)) from None
        if peer.role != "observer":
            with self._core.lock:
                peer.notes[self.name] = threads
            return
        try:
            self.switch(on)
        except ValueError as error:
            raise Undoable(str(error).removesuffix("."), "in-step") from None

    def switch(self, on: bool) -> None:
        """Move cores from now on, or put them back. Called from any thread that does not hold the lock.

        Raises:
            ValueError: It is a stream of a cluster.
        """
        if self._core.settings.in_step:
            check_in_step(rebalance=on)
        self._controller.switch(on)

    def reading(self, since: int) -> dict[str, Any]:
        """Return whether cores are moved, and the last moves."""
        return {"rebalancing": self._controller.state, "moves": self._controller.moves}

    def close(self) -> None:
        """Put everything back."""
        self._controller.close()

    def _tell(self, name: str, told: Allotted) -> None:
        with self._core.lock:
            for session in self._core.sessions.values():
                if session.role == "consumer" and session.name == name:
                    session.tell(self.name, pack(told))

    def _look(self) -> Stream:
        core, now = self._core, time.monotonic()
        workers = core.source.workers if core.source else None
        with core.lock:
            return Stream(
                batches=core.dispatch.epochs.end,
                workers=workers.number if workers else 0,
                loading_thread=self._loading.native_id or 0,
                consumers=tuple(
                    Attached(
                        reading,
                        threads.number,
                        threads.own,
                        threads.fixed,
                        reading.weight,
                        session.number,
                    )
                    for reading, session in consumers(core, now, core.dispatch.drift.blocked_s(now))
                    if (threads := session.notes.get(self.name)) is not None
                ),
                pacing=core.dispatch.balance.pacing,
            )
