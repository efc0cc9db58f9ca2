"""The feed: one more consumer of the producer's own stream, which puts each batch into Ray's object store, once.

A thread of the process that serves. It takes a batch when the hub wants one, so what the cluster cannot use in time
holds the producer's window like any slow consumer.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any

import ray
from ray.exceptions import RayActorError

from tsnb.cluster.hub_dispatch import SampleParts
from tsnb.cluster.stream_hub import FeedOrder
from tsnb.engines import joined
from tsnb.errors import LoaderFailed, ProducerGone, TsnbError
from tsnb.extensions.cache import keeper_of
from tsnb.serving.stream import Producer
from tsnb.stream.consumer.line import Line
from tsnb.stream.consumer.options import Options
from tsnb.stream.consumer.place import Place
from tsnb.stream.consumer.unpacking import Delivered, Unpacker
from tsnb.stream.protocol import messages as ms
from tsnb.stream.protocol.layout import Layout

__all__ = ["FEED_NAME", "Feed"]

FEED_NAME = "cluster"
"""What the panel of the producer's machine calls the other machines."""
_log = logging.getLogger("tsnb")


class _LeftCluster(Exception):
    """This process is in no cluster any more."""


class _Imaged(Delivered):
    """A batch as it lies in its slot."""

    __slots__ = ("values",)

    def __init__(self, layout: Layout, memory: Any, batch: ms.Batch) -> None:
        super().__init__(layout, [memory], batch.rows, shared=True)
        self.values = (batch.values_offset, batch.values_bytes)


class _ImageReader(Unpacker):
    """Reads a slot as one piece of memory."""

    def read(self, batch: ms.Batch, layout: Layout, *, private: bool) -> _Imaged:
        return _Imaged(layout, self.image(batch, layout), batch)


class Feed(threading.Thread):
    """Puts batches into the cluster until it is stopped.

    Args:
        hub: The stream's hub.
        producer: The producer's own stream, which is served by this process.
    """

    def __init__(self, hub: Any, producer: Producer) -> None:
        super().__init__(name=f"tsnb-feed-{producer.name}", daemon=True)
        self._hub = hub
        self._stream = producer.name
        self._core = producer.core
        self._parts = SampleParts(0, None, None)  # which samples the cluster takes
        self._line = Line(producer.entry, FEED_NAME, Options(reconnect_s=0.0), _ImageReader)
        self._run: int | None = None  # the run that is being taken
        self._fresh = False  # nothing of it has come yet
        self._stopping = threading.Event()

    def retire(self) -> None:
        """Have the thread end, wherever it waits."""
        self._stopping.set()
        self._line.closed = True
        self._line.connection.retire()

    def run(self) -> None:
        """Load what the hub wants. When this ends the hub ends, or machines would wait for batches in vain."""
        why = ""
        try:
            wants = self._wants()
            while not self._stopping.is_set():
                if wants.run != self._run:
                    self._leave()
                if wants.batch is None and wants.idle:
                    self._line.connection.post(ms.Rest())  # the producer's own consumers need not wait
                loaded = self._load(*wants.batch) if wants.batch is not None else None
                wants = loaded if loaded is not None else self._wants()
        except ProducerGone:
            pass  # it says so to all its consumers
        except _LeftCluster:
            why = "ray.shutdown() was called in the process of the stream"
        except RayActorError:
            why = "its hub, an actor next to this process, has died (it was killed or ran out of memory)"
        except Exception as error:  # noqa: BLE001  # whatever it is, no machine may wait for this thread
            why = f"{type(error).__name__}: {error}"
        if self._stopping.is_set():
            return
        if why:
            _log.error(
                "stream %r is no longer sent to other machines: %s. Trials on this machine continue. "
                    "To reach the other machines again, stop the stream and serve it again.", self._stream, why,
            )  # fmt: skip
        self._end_both()

    def _end_both(self) -> None:
        if (keeper := keeper_of(self._core)) is not None:
            keeper.lenders.heard(())
        with contextlib.suppress(TsnbError):
            self._leave()
            self._line.connection.post(ms.Bye())
        self._line.connection.retire()
        if joined() is not None:
            ray.kill(self._hub)

    def _wants(self) -> FeedOrder:
        return self._heed(self._ask(self._hub.wanted, self._parts.number))

    def _heed(self, wants: FeedOrder) -> FeedOrder:
        """Have the producer prepare what the cluster takes, and know which machines lend it memory."""
        if (keeper := keeper_of(self._core)) is not None:
            keeper.lenders.heard(wants.lenders)
        if wants.parts is not None:
            self._parts = wants.parts
            self._core.announce(FEED_NAME, wants.parts.cover, wants.parts.expects)
        return wants

    def _ask(self, method: Any, *arguments: Any) -> Any:
        """Ask the hub, or tell it; return what it says.

        Raises:
            _LeftCluster: Ray was shut down under this thread: its functions would start a cluster of their own.
        """
        if joined() is None:
            raise _LeftCluster
        return ray.get(method.remote(*arguments))

    def _load(self, run: int, epoch: int, first: int) -> FeedOrder | None:
        """Give the run's next batch, or say that there is none left; return the hub's answer if it has one."""
        if self._run is None:
            self._run, self._fresh = run, True
            place = Place(epoch, first, 0, begun=bool(first))
            self._line.say(self._line.session.enter(self._line.session.begin(place)))
        try:
            taken = self._line.next()
        except ProducerGone:
            raise
        except TsnbError as error:
            text = error.loader_traceback if isinstance(error, LoaderFailed) else ""
            summary = error.summary if isinstance(error, LoaderFailed) else str(error)
            self._leave()
            self._ask(self._hub.raised, run, summary, text)
            return None
        if self._fresh and self._line.session.epoch != epoch:
            self._ask(self._hub.renumbered, run, self._line.session.epoch)
        if self._fresh and self._parts.number:
            self._tell_cover(run)
        self._fresh = False
        if taken is None:
            self._leave()
            self._ask(self._hub.ended, run)
            return None
        return self._give(run, taken)

    def _tell_cover(self, run: int) -> None:
        """Say what the run's batches hold, if it is more than the cluster wants: then that is not to become less."""
        cover = self._core.cover_of(FEED_NAME, self._parts.cover)
        if cover != self._parts.cover:
            self._parts = self._parts._replace(cover=cover)
            self._core.announce(FEED_NAME, cover, self._parts.expects)
            self._ask(self._hub.covered, run, cover)

    def _give(self, run: int, batch: Any) -> FeedOrder:
        memory = batch.leaves[0]
        if joined() is None:
            raise _LeftCluster
        ref = ray.put((batch.layout.encode(), batch.rows, *batch.values, memory, batch.drawn))
        return self._heed(
            self._ask(self._hub.loaded, run, [ref], memory.nbytes, batch.rows, self._parts.number)
        )

    def _leave(self) -> None:
        """Leave the epoch, if one is being taken."""
        if self._run is not None:
            self._run = None
            self._line.leave()
            self._line.discard_waiting()
