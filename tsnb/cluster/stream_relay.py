"""The relay: an actor on each machine that has consumers. It serves there what it gets from the stream's process.

To its consumers it is a producer like any other; to that process it is a consumer. An epoch is asked for when a
consumer of this machine asks, and left when none is there any more. A batch is received straight into the relay's
arena.

Where the producer has a cache, a relay also lends it memory of its machine (`caching.shard`), as long as it lives.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import ray

from tsnb.caching.owners import Lender
from tsnb.cluster.relay_wire import Address
from tsnb.discovery.registry import RELAY
from tsnb.errors import JoinRefused

if TYPE_CHECKING:  # the hub imports this module too, and needs no torch
    from tsnb.caching.shard import Shard
    from tsnb.cluster.remote_epochs import RemoteEpochs
    from tsnb.serving.stream import Producer
    from tsnb.stream.loader.sources import Source
    from tsnb.stream.producer.core import Core

__all__ = ["StreamRelay"]

BEAT_S = 1.0
LOOK_S = 0.25
LIVE_S = 10.0
"""How long the hub's question whether this relay lives waits for its end."""
IDLE_S = 1.0
"""How long no consumer of this machine takes an epoch before the others need not wait for this machine."""
_log = logging.getLogger("tsnb")


class StreamRelay:
    """A stream of the cluster on one machine.

    Args:
        name: The stream's name.
        address: Where its process waits for relays.
        directory: The runtime directory in which it enters itself.
        facts: As `StreamHub`.
        options: window, late_join, stall_timeout_s, max_batch_bytes and guard of the stream on this machine.
        lends: As `StreamHub`; None: this machine lends nothing.
    """

    def __init__(
        self,
        name: str,
        address: Address,
        directory: str,
        facts: dict[str, Any],
        options: dict[str, Any],
        lends: tuple[int, bytes] | None = None,
    ) -> None:
        os.environ["TSNB_RUNTIME_DIR"] = directory
        self._name = name
        self._address = address
        self._facts = facts
        self._options = options
        self._lends = lends
        self._shard: Shard | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._producer: Producer | None = None

    def open(self) -> Lender | str | None:
        """Serve, if it is not done yet; returns when consumers can attach.

        Returns:
            What this machine lends; None if it was said before, or is nothing. Why it cannot serve, in words.
        """
        from tsnb.cluster.remote_epochs import RemoteEpochs
        from tsnb.serving import begin
        from tsnb.stream.producer.core import Settings

        with self._lock:
            if self._producer is not None:
                return None
            epochs = RemoteEpochs(self._address, self._facts, _own_address())
            try:
                epochs.connect()
            except JoinRefused as error:
                return str(error)
            except OSError as error:
                host, port = self._address.host, self._address.port
                return (
                    f"This machine cannot reach TCP port {port} of {host}, where the process of the stream "
                    f"waits: {error}. If a firewall blocks it, allow connections between the machines of the "
                    "cluster"
                )
            settings = Settings(**self._options, name=self._name, in_step=True)
            # a loader may be anything, so mypy would not miss what a source has to have
            source: Source = epochs
            self._producer = begin(source, settings, origin=RELAY, primed=False)
            self._producer.endings.append(epochs.disconnect)
            self._producer.core.dispatch.never_load_in_vain()
            watching = threading.Thread(
                target=self._watch, args=(self._producer, epochs), name="tsnb-relay", daemon=True
            )
            watching.start()
            return self._lend()

    def _lend(self) -> Lender | None:
        """Begin to lend memory; return how to get at it, None where that cannot be."""
        from tsnb.caching.pressure import room_within
        from tsnb.caching.shard import Shard

        if self._lends is None:
            return None
        limit_bytes, token = self._lends
        host, room = _own_address(), room_within(limit_bytes)
        try:
            self._shard = Shard(host, room, token)
        except OSError as error:
            _log.warning("this machine lends no memory to the cache of %r: %s.", self._name, error)
            return None
        return Lender(ray.get_runtime_context().get_node_id(), host, self._shard.port, room)

    def live(self) -> bool:
        """Return whether the relay serves, at its end or after a while; ask again to keep informed."""
        return not self._ended.wait(LIVE_S)

    def close(self) -> None:
        """End the stream on this machine; its consumers are told."""
        with self._lock:
            if self._producer is not None:
                self._producer.stop()

    def _watch(self, producer: Producer, epochs: RemoteEpochs) -> None:
        """Tell the stream's process that this relay lives, and what consumers here take."""
        idle_since_s: float | None = None
        next_beat_s = 0.0
        try:
            while not producer.wait(LOOK_S):
                now = time.monotonic()
                long_idle = idle_since_s is not None and now - idle_since_s >= IDLE_S
                idle, ask, takes = _look(producer.core, epochs, long_idle)
                idle_since_s = (idle_since_s or now) if idle else None
                epochs.expect(takes)
                if now >= next_beat_s:
                    next_beat_s = now + BEAT_S
                    epochs.beat()
                    if idle:
                        epochs.rest(ask)
        finally:
            producer.stop()
            with self._lock:
                if self._shard is not None:
                    self._shard.close()
            self._ended.set()


def _own_address() -> str:
    util: Any = ray.util  # untyped
    return str(util.get_node_ip_address())


def _look(core: Core, epochs: RemoteEpochs, long_idle: bool) -> tuple[bool, int, int | None]:
    """Let go of an epoch that no consumer of this machine has taken for long.

    Returns:
        Whether no consumer takes one now, the number of the last ask to the stream that this holds for, and which
        samples the consumers of this machine take, as `RemoteEpochs.expect`.
    """
    with core.lock:
        if long_idle:
            core.withdraw_if_idle()
        return core.idle, epochs.ask, core.dispatch.admission.wanted()
