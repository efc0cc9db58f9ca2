"""`serve`: put a loader behind a name."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from tsnb import registry
from tsnb.config import check_balance, check_name, require_platform
from tsnb.errors import LoaderFailed, ProducerGone
from tsnb.producer.core import Core, Settings
from tsnb.producer.feeder import Feeder, slots_for
from tsnb.producer.loading import as_source
from tsnb.producer.reporting import reading
from tsnb.producer.server import Server
from tsnb.producer.steering import controller_of
from tsnb.telemetry.readings import StreamReading

__all__ = ["Producer", "serve"]

STOP_S = 10.0
"""How long `stop` waits for a loader that is in the middle of a batch."""

_serving: weakref.WeakSet[Producer] = weakref.WeakSet()


class Producer:
    """A loader being served by this process, until `stop`, the end of its `with` block, or of the process.

    Made by `tsnb.serve`.

    Attributes:
        name: The stream's name.
    """

    def __init__(self, core: Core, feeder: Feeder, server: Server, entry: registry.Entry) -> None:
        self.name = core.settings.name
        self._core = core
        self._feeder = feeder
        self._server = server
        self._entry = entry
        self._ended = threading.Event()
        self._ending = threading.Lock()
        stopper = threading.Thread(target=self._stop_when_asked, name=f"tsnb-stop-{self.name}", daemon=True)
        self._stopper = stopper
        stopper.start()
        _serving.add(self)

    @property
    def order(self) -> str:
        """Identity of the order of its batches, equal for equal epochs; empty where none can be given again."""
        source = self._core.source
        return source.order if source is not None else ""

    def status(self) -> StreamReading:
        """Return the stream's numbers now.

        Raises:
            ProducerGone: It has been stopped.
        """
        with self._core.lock:
            if self._ended.is_set():
                raise ProducerGone(f"the producer {self.name!r} was stopped; serve its loader again.")
            return reading(self._core)

    def balance(self, mode: str, weights: Mapping[str, float] | None = None) -> None:
        """Divide compute between the consumers in another way from now on; nobody loses a batch by it.

        Args:
            mode: "pace", "weights" or "free"; see `tsnb.serve`.
            weights: By the consumer's name, who need not be attached yet; only with "weights".

        Raises:
            ValueError: There is no such mode, or the weights are none for it.
            ProducerGone: It has been stopped.
        """
        chosen = check_balance(mode, weights)
        with self._core.lock:
            if self._ended.is_set():
                raise ProducerGone(f"the producer {self.name!r} was stopped; serve its loader again.")
            self._core.balance(*chosen)

    def rebalance(self, on: bool = True) -> None:
        """Move cores and torch threads between trials and the loader's workers from now on, or put all back.

        See docs/balance.md for what is moved, when, and what never is.

        Args:
            on: Whether to.

        Raises:
            ProducerGone: It has been stopped.
        """
        if self._ended.is_set():
            raise ProducerGone(f"the producer {self.name!r} was stopped; serve its loader again.")
        self._core.rebalance(on)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the producer has stopped; return whether it has.

        Args:
            timeout_s: Seconds; None waits for good.
        """
        # in slices: an Event waits uninterruptibly in some Pythons, and Ctrl-C must end a script that waits
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._ended.is_set():
            left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
            if left <= 0:
                return False
            self._ended.wait(left)
        self.stop()  # has happened; this waits for the thread that did it
        return True

    def stop(self, reconnect_s: float = 0.0) -> None:
        """Stop in good order: consumers raise `ProducerGone`, workers end, the name is free again.

        Args:
            reconnect_s: Seconds that consumers wait for a producer of this name to be started again, instead.
        """
        if os.getpid() != self._entry.pid:
            return  # a forked child has a copy of this object, not of the producer
        if reconnect_s:
            self._core.successor_s = reconnect_s
        self._end()
        if threading.current_thread() is not self._stopper:
            # it holds this producer, hence the user's dataset: were it to drop the last reference while the
            # interpreter ends, torch would abort the process
            self._stopper.join(STOP_S)

    def _end(self) -> None:
        with self._ending:
            if self._ended.is_set():
                return
            if self._core.controller is not None:
                self._core.controller.close()
            self._core.stop()
            self._server.wake()
            self._core.stop_asked.set()
            self._server.join(STOP_S)
            self._feeder.join(STOP_S)
            registry.unregister(self._entry)
            with self._core.lock:
                self._ended.set()
                self._core.devices.close()
                if not self._feeder.is_alive():  # else it may still write: the process's end frees it
                    self._core.slots.close()
                    self._core.arena.close()

    def _stop_when_asked(self) -> None:
        self._core.stop_asked.wait()
        self.stop()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "stopped" if self._ended.is_set() else self.status().state
        return f"<tsnb producer {self.name!r}: {state}>"


def serve(
    loader: Any,
    *,
    name: str,
    window: int = 8,
    rubber_band: float = 0.02,
    patience_s: float = 30.0,
    seed: int | None = None,
    workers: int | None = None,
    max_batch_bytes: int | None = None,
    reconnect_s: float = 0.0,
    first_epoch: int = 0,
    rebalance: bool = False,
    origin: str | None = None,
    mode: str = "pace",
    weights: Mapping[str, float] | None = None,
) -> Producer:
    """Serve a loader to any number of consumers, which attach by its name.

    Returns once the loader's first batch lies ready, so a loader that cannot work fails here.

    Args:
        loader: A torch DataLoader, any iterable of batches, or a function `make_epoch(epoch)` returning one.
            It is not changed; a DataLoader's workers write straight into shared memory. A function, a list of
            batches and what has `set_epoch` are expected to give the same batches for the same epoch: consumers
            rely on it when they go on in the middle of one. Any other iterable is never gone on with there.
        name: 1-64 letters, digits, dots, dashes, underscores; unique among this user's producers.
        window: Loader batches that the fastest consumer may be ahead of the slowest.
        rubber_band: Share of an epoch (0 to 1) that may have passed while a latecomer still gets all of it;
            at least `window` batches, at most 1 GiB.
        patience_s: Seconds that the others wait for a consumer which stands still or is between epochs.
        seed: Makes the order of samples, and what a DataLoader's workers draw from torch's, random's and numpy's
            global generators, a function of (seed, epoch, batch number): a batch that is given again is the same
            bit for bit, however many workers there are. Samplers need a `generator` or `set_epoch`. Generators that a
            dataset keeps itself are not seeded, nor is anything with 0 workers: that process is yours. For an
            IterableDataset it is your word that it repeats itself with the same number of workers.
        workers: Worker processes instead of the DataLoader's own `num_workers`.
        max_batch_bytes: Room for one batch; by default four times what the first one takes.
        reconnect_s: If this process dies: seconds that consumers wait for a producer of this name to be started
            again, instead of raising `ProducerGone`. They then go on where they were, exactly once, if it gives
            the same batches in the same order: a `DataLoader` with the same `seed`.
        first_epoch: The number of the first epoch, for a producer that is started again.
        rebalance: Move cores and torch threads between trials and the loader's workers, so that the pace of the
            slowest rises (docs/balance.md); `Producer.rebalance` switches it while it runs.
        origin: Who serves it, for messages; found out by default.
        mode: How compute is divided between consumers (docs/balance.md). "pace": the window keeps all in step, and
            what the small models leave, the large one gets. "free": a wide window, each as fast as it can. "weights":
            as "free", and who has computed more than its weighted share lets the others go first.
        weights: By the consumer's name, for "weights": {"resnet50": 2} has twice the compute of one with 1.

    Returns:
        The producer; a context manager that stops it at its end.

    Raises:
        LoaderFailed: The loader raised before its first batch, or gave none.
        NameInUse: That name is being served.
        TypeError: `loader` cannot be iterated.
        ValueError: A number is out of range, the name has odd characters, or there is no such mode.
        UnsupportedPlatform: Neither on Linux nor on macOS.
    """
    require_platform()
    check_name(name, "producer")
    _check_numbers(window, rubber_band, patience_s, max_batch_bytes)
    _check_restart(reconnect_s, first_epoch)
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 0):
        raise ValueError(f"workers={workers!r}: give a number of processes, 0 or more.")
    chosen = check_balance(mode, weights)
    core = Core(
        Settings(name, window, rubber_band, patience_s, max_batch_bytes, reconnect_s, first_epoch, *chosen)
    )
    server = None
    try:
        core.source = as_source(loader, core.arena, core.slots.pipe, seed=seed, workers=workers)
        core.slots.in_pipe = slots_for(core.source)
        core.dispatch.admission.repeatable = bool(core.source.order)
        address = registry.new_address(name)
        server = Server(core, address)
        feeder = Feeder(core, core.source)
        entry = registry.register(name, address, origin or registry.describe_origin())
    except BaseException:
        if server is not None:
            server.close()
        core.slots.close()
        core.arena.close()
        raise
    feeder.start()
    core.controller = controller_of(core, feeder.native_id or 0)
    server.start()
    producer = Producer(core, feeder, server, entry)
    try:
        feeder.proven.wait()
    except BaseException:  # Ctrl-C while the first batch is on its way
        producer.stop()
        raise
    if feeder.failure is not None:
        failure = feeder.failure
        producer.stop()
        raise LoaderFailed(failure.summary, failure.loader_traceback)
    if rebalance:
        producer.rebalance()
    return producer


def _check_restart(reconnect_s: float, first_epoch: int) -> None:
    if not 0 <= reconnect_s < float("inf"):
        raise ValueError(f"reconnect_s={reconnect_s!r}: give seconds, 0 or more.")
    if isinstance(first_epoch, bool) or not isinstance(first_epoch, int) or not 0 <= first_epoch < 1 << 31:
        raise ValueError(f"first_epoch={first_epoch!r}: give an epoch's number, 0 or more.")


def _check_numbers(window: int, rubber_band: float, patience_s: float, max_batch_bytes: int | None) -> None:
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise ValueError(f"window={window!r}: give a number of batches, 1 or more.")
    if not 0 <= rubber_band <= 1:
        raise ValueError(f"rubber_band={rubber_band!r}: give a share of an epoch, 0 to 1 (0.02 is 2 %).")
    if not patience_s > 0:
        raise ValueError(f"patience_s={patience_s!r}: give seconds, more than 0.")
    if max_batch_bytes is not None and max_batch_bytes < 1:
        raise ValueError(f"max_batch_bytes={max_batch_bytes!r}: give a number of bytes, 1 or more.")


os.register_at_fork(after_in_child=_serving.clear)


@atexit.register
def _stop_all() -> None:
    for producer in list(_serving):
        producer.stop()
