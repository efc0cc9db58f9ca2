"""A stream over a cluster: the producer here, a hub beside it, and the port for relays."""

from __future__ import annotations

import atexit
import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tsnb.caching.owners import Lender
from tsnb.caching.shard_wire import TOKEN_BYTES
from tsnb.cluster import membership
from tsnb.cluster.membership import join_cluster
from tsnb.cluster.relay_port import RelayPort
from tsnb.engines import joined
from tsnb.errors import NameInUse, TsnbError
from tsnb.extensions.cache import keeper_of
from tsnb.options import StreamOptions
from tsnb.serving import serve_here
from tsnb.serving.stream import Producer
from tsnb.stream.decisions.pacing.contract import LOOKAHEAD

__all__ = ["serve"]

ENDING_S = 3.0
"""An actor that was ended keeps its name for a moment."""
STOP_S = 15.0
"""How long the hub may take to end the stream on all machines, which have 10 s each."""
JOIN_S = 10.0
"""How long the thread that watches the hub may take to come to its end."""
LATER_S = 5.0
"""The producer waits so much longer than a relay for what stands still: the trial at fault is parked by its own machine
first, and not the whole machine in its place."""
_log = logging.getLogger("tsnb")


def serve(loader: Any, options: StreamOptions, *, name: str, origin: str | None, address: str) -> Producer:
    """Serve a loader of this process to the consumers on every machine of a cluster; `tsnb.serve` explains the rest.

    Args:
        loader: What gives batches.
        options: How it is served.
        name: Unique in this user's part of the cluster.
        origin: Shown in messages as the server of the stream; None: found out.
        address: HOST:PORT of the cluster's head; "" for the one that this process or machine is in.

    Raises:
        NameInUse: That name is being served, here or in the cluster.
        ExtraMissing: Ray is not installed.
        TsnbError: No cluster is running, or Ray cannot start the hub here.
        Exception: As `serve_here` raises.
    """
    with join_cluster(address) as leave:
        waits = replace(options, stall_timeout_s=options.stall_timeout_s + LATER_S)
        producer = serve_here(
            loader,
            waits,
            name=name,
            origin=origin,
            in_step=True,
            least_band=_kept(options.window_batches),
        )
        same = ("late_join", "stall_timeout_s", "max_batch_bytes", "guard")
        try:
            of_each_machine = {name: getattr(options, name) for name in same}
            stop = _open(producer, {"window": options.window_batches, **of_each_machine})
        except BaseException:
            producer.stop()
            raise
        producer.endings += [stop, leave.pop_all().close]
    return producer


def _open(producer: Producer, options: dict[str, Any]) -> Any:
    """Offer a stream of this machine to the cluster; return what ends that.

    Raises:
        NameInUse: That name is being served in the cluster.
        TsnbError: Ray cannot start the hub here; says why.
    """
    import ray

    from tsnb.cluster.stream_hub import StreamHub

    util: Any = ray.util  # untyped
    source = producer.core.source
    assert source is not None
    facts = {name: getattr(source, name) for name in ("batch_size", "batches", "samples", "order")}
    facts |= {"indices": tuple(source.indices), "batch_bytes": producer.core.batch_bytes}
    # beside the producer: one machine's death ends both or none
    here = util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    where = {"name": membership.hub_name(producer.name), "namespace": membership.namespace()}
    keeper = keeper_of(producer.core)
    lends = None if keeper is None else (keeper.limit_bytes, keeper.lenders.token)
    host = util.get_node_ip_address()
    try:
        port = RelayPort(producer, host, secrets.token_bytes(TOKEN_BYTES))
    except OSError as error:
        raise TsnbError(
            f"No TCP port can be opened at {host}, this machine's address in the cluster: {error}."
        ) from None
    actor: Any = ray.remote(StreamHub)
    try:
        hub = _named(
            lambda: actor.options(num_cpus=0, max_concurrency=1000, scheduling_strategy=here, **where).remote(
                producer.name, port.address, facts, options, lends
            ),
            producer.name,
        )
    except BaseException:
        port.close()
        raise
    try:
        ray.get(hub.status.remote(), timeout=membership.OPEN_S)
    except BaseException as error:
        port.close()
        ray.kill(hub)
        if isinstance(error, ray.exceptions.RayError):
            raise TsnbError(
                f"Ray cannot start a tsnb process on this machine: {membership.last_words(error)}. Install "
                "tsnb in the environment where `ray start` was called, and check the cluster with `ray "
                "status`."
            ) from None
        raise
    watch = _HubWatch(hub, producer, port)
    watch.start()
    # before Ray leaves the cluster at this process's end: consumers are to be told
    atexit.register(producer.stop)

    def stop() -> None:
        atexit.unregister(producer.stop)
        watch.retire()
        if joined() is not None:  # else Ray was shut down, which has ended the hub
            with contextlib.suppress(Exception):  # whatever has become of the cluster, the stream here ends
                ray.get(hub.stop.remote(), timeout=STOP_S)
            with contextlib.suppress(Exception):
                ray.kill(hub)
        port.close()
        watch.join(JOIN_S)

    return stop


class _HubWatch(threading.Thread):
    """Hears from the hub which machines lend memory, and ends what the cluster has of the stream when the hub has gone.

    Args:
        hub: The stream's hub.
        producer: The stream.
        port: Of its relays.
    """

    def __init__(self, hub: Any, producer: Producer, port: RelayPort) -> None:
        super().__init__(name=f"tsnb-hub-{producer.name}", daemon=True)
        self._hub, self._stream, self._port = hub, producer.name, port
        self._keeper = keeper_of(producer.core)
        self._stopping = threading.Event()

    def retire(self) -> None:
        """Have the thread end."""
        self._stopping.set()

    def run(self) -> None:
        """Watch until the hub has gone, or the stream stops."""
        from ray.exceptions import RayActorError

        lent: tuple[Lender, ...] | None = None
        why = ""
        try:
            while not self._stopping.is_set() and not why:
                if (ray := joined()) is None:  # its functions would start a cluster of their own
                    why = "ray.shutdown() was called in the process of the stream"
                else:
                    lent = ray.get(self._hub.lenders.remote(lent))
                    if self._keeper is not None:
                        self._keeper.lenders.heard(lent)
        except RayActorError:
            why = "its hub, an actor next to this process, has died (it was killed or ran out of memory)"
        except Exception as error:  # noqa: BLE001  # whatever it is, no relay may stay that nobody watches
            why = f"{type(error).__name__}: {error}"
        if self._stopping.is_set():
            return
        _log.error(
            "stream %r is no longer sent to other machines: %s. Trials on this machine continue. "
                "To reach the other machines again, stop the stream and serve it again.", self._stream, why,
        )  # fmt: skip
        self._port.close()
        if self._keeper is not None:
            self._keeper.lenders.heard(())
        if (ray := joined()) is not None:
            ray.kill(self._hub)


def _named(make: Callable[[], Any], stream: str) -> Any:
    """Make a named actor; one of the name that has just been ended is waited for.

    Raises:
        NameInUse: Its name is taken.
    """
    deadline = time.monotonic() + ENDING_S
    while True:
        try:
            return make()
        except ValueError:
            if time.monotonic() > deadline:
                raise NameInUse(
                    f"A stream named {stream!r} is already served in the cluster (namespace "
                    f"{membership.namespace()}). Choose another name, or stop it where it is served."
                ) from None
        time.sleep(0.1)


def _kept(window: int) -> int:
    """Return how many batches the producer keeps of an epoch's beginning.

    A machine that has come and whose consumers take nothing yet has loaded a window of its own, and one batch; the
    producer has gone on from there. So trials that wait for each other, wherever they are, can all begin with the first
    batch.
    """
    return 2 * window + LOOKAHEAD + 2
