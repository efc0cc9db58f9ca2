"""A loader that is being served, as the process that serves it sees it."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType

from tsnb.config import check_balance
from tsnb.discovery import registry
from tsnb.errors import LoaderFailed, ProducerGone
from tsnb.extensions.cores import CoreBalance
from tsnb.extensions.readings import reading
from tsnb.extensions.tuning import Probes, Tuning
from tsnb.native.endings import Bound
from tsnb.stream.producer.core import Core
from tsnb.stream.producer.feeder import Feeder
from tsnb.stream.producer.server import Server
from tsnb.telemetry.readings import StreamReading

__all__ = ["Producer"]

STOP_S = 10.0
"""How long `stop` waits for a loader that is in the middle of a batch."""

_serving: weakref.WeakSet[Producer] = weakref.WeakSet()


class Producer(Bound):
    """Hold a served loader: its numbers, its changes and its end.

    Made by `tsnb.serve`. It ends with `stop`, with its `with` block, or with the process. Where an error leaves the
    block (also Ctrl-C), this process's trials on it are stopped first.

    Example:
        >>> with tsnb.serve([1, 2, 3], name="numbers") as numbers:
        ...     print(numbers.status().batches)

    Attributes:
        name: Name of the stream.
        endings: Functions called in turn before the stream stops and tells its trials.
    """

    _instead = (
        "Send the name of the stream instead: other processes pass it to tsnb.attach and tsnb.streams.status."
    )

    def __init__(
        self,
        core: Core,
        feeder: Feeder,
        server: Server,
        entry: registry.Entry,
        cores: CoreBalance,
        tuning: Tuning,
    ) -> None:
        self.name = core.settings.name
        self._core = core
        self._cores, self._tuning = cores, tuning
        self._feeder = feeder
        self._server = server
        self._entry = entry
        self._ended = threading.Event()
        self._ending = threading.Lock()
        self.endings: list[Callable[[], None]] = []
        stopper = threading.Thread(target=self._stop_when_asked, name=f"tsnb-stop-{self.name}", daemon=True)
        self._stopper = stopper
        stopper.start()
        _serving.add(self)

    @property
    def order(self) -> str:
        """Identity of the order of its batches.

        Equal for equal epochs. Empty where no epoch can be given again.
        """
        source = self._core.source
        return source.order if source is not None else ""

    @property
    def core(self) -> Core:
        """The state that its threads share."""
        return self._core

    @property
    def entry(self) -> registry.Entry:
        """Its entry in the registry."""
        return self._entry

    def prove(self) -> None:
        """Wait for the loader's first batch, and stop the stream if none comes.

        Raises:
            LoaderFailed: If the loader raises an error before its first batch, or returns none.
        """
        try:
            self._feeder.proven.wait()
        except BaseException:  # Ctrl-C while the first batch is on its way
            self.stop()
            raise
        failure = self._feeder.failure
        if failure is not None:
            self.stop()
            raise LoaderFailed(failure.summary, failure.loader_traceback)

    def status(self) -> StreamReading:
        """Return the stream's numbers now.

        Example:
            >>> stream.status().batches

        Raises:
            ProducerGone: If the stream was stopped.
        """
        with self._core.lock:
            self._require_running()
            return reading(self._core)

    def balance(self, pacing: str, weights: Mapping[str, float] | None = None) -> None:
        """Change how compute is divided between the trials.

        No batch is lost by the change.

        Example:
            >>> stream.balance("weights", {"my-model": 2})
            >>> stream.balance("together")

        Args:
            pacing: "together", "weights" or "free" (docs/balance.md).
            weights: Weight of each trial by name, attached or not, only with "weights". Defaults to None.

        Raises:
            ValueError: If the pacing is unknown, the weights are invalid, or the stream is served over a cluster.
            ProducerGone: If the stream was stopped.
        """
        chosen = check_balance(pacing, weights)
        with self._core.lock:
            self._require_running()
            self._core.balance(*chosen)

    def rebalance(self, on: bool = True) -> None:
        """Move cores and torch threads to the slowest trial, or stop doing so.

        docs/balance.md explains what tsnb moves, and when.

        Example:
            >>> stream.rebalance()
            >>> stream.rebalance(False)

        Args:
            on: Whether to move them. False puts all back. Defaults to True.

        Raises:
            ValueError: If the stream is served over a cluster.
            ProducerGone: If the stream was stopped.
        """
        self._require_running()
        self._cores.switch(on)

    def tune(self, *, workers: int | str, memory: int | str | None = None) -> None:
        """Change the number of loader workers while trials run.

        It takes effect with the next batch that no worker has begun. No batch is lost or given twice, and the order
        stays. With `seed=` batches are the same bit for bit with any number of workers.

        Example:
            >>> stream.tune(workers=2)

        Args:
            workers: Number of processes, 1 or more, or "auto" to find it and follow it (docs/speed-up-loading.md).
            memory: Memory for all workers with "auto", for example "4GiB". Defaults to the former value, else what
                is free.

        Raises:
            ValueError: If a number is out of range, or the loader is not a `DataLoader`, has an `IterableDataset`,
                or was served without workers.
            ProducerGone: If the stream was stopped.
        """
        self._require_running()
        with self._ending:
            self._require_running()  # stopped since just now, perhaps
            self._tuning.tune(workers, memory)

    @property
    def probes(self) -> Probes:
        """Numbers of workers that `workers="auto"` has tried, in order.

        Shows as a table. Empty without "auto".
        """
        return self._tuning.probes

    def _require_running(self) -> None:
        if self._ended.is_set():
            raise ProducerGone(f"Stream {self.name!r} was stopped. Serve its loader again.")

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the stream has stopped, and return whether it has.

        Example:
            >>> stream.wait(timeout_s=0.1)

        Args:
            timeout_s: Seconds to wait. Defaults to None, without a limit.
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
        """Stop the stream: its workers end, and its name is free again.

        Trials raise `ProducerGone` at their next batch.

        Example:
            >>> numbers = tsnb.serve([1, 2, 3], name="numbers")
            >>> numbers.stop()

        Args:
            reconnect_s: Seconds that trials wait for a restart of the stream instead. Defaults to 0.
        """
        if os.getpid() != self._entry.pid:
            return  # a forked child has a copy of this object, not of the producer
        if reconnect_s:
            self._core.expect_successor(reconnect_s)
        self._end()
        if threading.current_thread() is not self._stopper:
            # it holds this producer, hence the user's dataset: were it to drop the last reference while the
            # interpreter ends, torch would abort the process
            self._stopper.join(STOP_S)

    def _end(self) -> None:
        with self._ending:
            if self._ended.is_set():
                return
            for ending in self.endings:
                ending()
            self._core.end_extensions()
            self._core.stop()
            self._server.wake()
            self._core.stop_asked.set()
            for thread in (self._server, self._feeder):
                with contextlib.suppress(RuntimeError):  # an interrupt came before it was started
                    thread.join(STOP_S)
            if not self._server.is_alive():
                self._server.close()  # once more does no harm: it may never have run
            registry.unregister(self._entry)
            with self._core.lock:
                self._ended.set()
                self._core.devices.close()
                if not self._feeder.is_alive():  # else it may still write: the process's end frees it
                    self._core.slots.close()
                    self._core.empty()
                    self._core.arena.close()
                    if self._core.keeper is not None:
                        self._core.keeper.close()
            # not under the lock, which its thread may be waiting for
            if self._core.growth is not None and not self._feeder.is_alive():
                self._core.growth.close()

    def _stop_when_asked(self) -> None:
        self._core.stop_asked.wait()
        self.stop()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                for stop_takers in registry.leaving:
                    stop_takers(self.name)
        finally:
            self.stop()

    def __repr__(self) -> str:
        state = "stopped" if self._ended.is_set() else self.status().state
        return f"<tsnb producer {self.name!r}: {state}>"


os.register_at_fork(after_in_child=_serving.clear)  # `native.forks`, 2


@atexit.register
def _stop_all() -> None:
    for producer in list(_serving):
        producer.stop()
