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

from tsnb import clusters
from tsnb.consumer.line import Line
from tsnb.consumer.options import Options
from tsnb.consumer.place import Place, Progress
from tsnb.consumer.unpacking import Delivered, Unpacker
from tsnb.errors import LoaderFailed, ProducerGone, TsnbError
from tsnb.registry import Entry
from tsnb.wire import messages as ms
from tsnb.wire.layout import Layout

__all__ = ["FEED_NAME", "Feed"]

FEED_NAME = "cluster"
"""What the panel of the producer's machine calls the other machines."""
_log = logging.getLogger("tsnb")


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
        entry: The producer's own stream.
    """

    def __init__(self, hub: Any, entry: Entry) -> None:
        super().__init__(name=f"tsnb-feed-{entry.name}", daemon=True)
        self._hub = hub
        self._stream = entry.name
        self._line = Line(entry, FEED_NAME, Options(reconnect_s=0.0), _ImageReader)
        self._progress = Progress(Place())
        self._run: int | None = None  # the run that is being taken
        self._fresh = False  # nothing of it has come yet
        self._stopping = threading.Event()

    def retire(self) -> None:
        """Have the thread end, wherever it waits."""
        self._stopping.set()
        self._line.closed = True
        self._line.connection.retire()

    def run(self) -> None:
        """Load what the hub wants. The end of this is the hub's end: else machines would wait for what nobody gives."""
        why = ""
        try:
            answer = self._wanted()
            while not self._stopping.is_set():
                wanted, idle = answer
                if wanted is None and idle:
                    self._rest()
                loaded = self._load(*wanted) if wanted is not None else None
                answer = loaded if loaded is not None else self._wanted()
        except ProducerGone:
            pass  # it says so to all its consumers
        except RayActorError:
            why = "its hub, an actor beside this process, has died (killed? out of memory?)"
        except Exception as error:  # noqa: BLE001  # whatever it is, nobody may wait for this thread
            why = f"{type(error).__name__}: {error}"
        if self._stopping.is_set():
            return
        if why:
            _log.error(
                "the stream %r is no longer given to other machines: %s. Runs on this machine go on; for the others "
                "stop it, and serve it again.", self._stream, why,
            )  # fmt: skip
        self._end_both()

    def _end_both(self) -> None:
        with contextlib.suppress(TsnbError):
            self._leave()
            self._line.connection.post(ms.Bye())
        self._line.connection.retire()
        if clusters.joined() is not None:
            ray.kill(self._hub)

    def _wanted(self) -> Any:
        self._require_ray()
        return ray.get(self._hub.wanted.remote())

    def _load(self, run: int, epoch: int, first: int) -> Any:
        """Give the run's next batch, or say that there is none; return the hub's answer where it has one."""
        if run != self._run:
            self._leave()
            self._run, self._fresh = run, True
            place = Place(epoch, first, 0, begun=bool(first))
            self._progress = Progress(place)
            self._line.ask(place)
        try:
            taken = self._line.next(self._progress)
        except ProducerGone:
            raise
        except TsnbError as error:
            text = error.loader_traceback if isinstance(error, LoaderFailed) else ""
            summary = error.summary if isinstance(error, LoaderFailed) else str(error)
            self._leave()
            return ray.get(self._hub.raised.remote(run, summary, text))
        if self._fresh and self._line.epoch != epoch:
            ray.get(self._hub.renumbered.remote(run, self._line.epoch))
        self._fresh = False
        if taken is None:
            self._leave()
            return ray.get(self._hub.ended.remote(run))
        return self._give(run, taken[1])

    def _give(self, run: int, batch: Any) -> Any:
        self._require_ray()
        memory = batch.leaves[0]
        ref = ray.put((batch.layout.encode(), batch.rows, *batch.values, memory))
        return ray.get(self._hub.loaded.remote(run, [ref], memory.nbytes, batch.rows))

    def _require_ray(self) -> None:
        """End where Ray was shut down under this thread: its functions would start a cluster of their own."""
        if clusters.joined() is None:
            raise ProducerGone("Ray was shut down in the producer's process")

    def _leave(self) -> None:
        """Leave the epoch, if one is being taken."""
        if self._run is not None:
            self._run = None
            self._line.leave()
            self._line.discard_waiting()

    def _rest(self) -> None:
        """Nobody in the cluster takes anything: the producer's own consumers need not wait."""
        self._leave()
        self._line.connection.post(ms.Rest())
