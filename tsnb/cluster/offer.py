"""A stream over a cluster: the producer here, a hub beside it, and what feeds the hub."""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tsnb.cluster import membership
from tsnb.cluster.membership import join_cluster
from tsnb.engines import joined
from tsnb.errors import NameInUse, TsnbError
from tsnb.extensions.cache import keeper_of
from tsnb.options import StreamOptions
from tsnb.serving import serve_here
from tsnb.serving.stream import Producer

__all__ = ["serve"]

BETWEEN = 4
"""Batches that one machine may be ahead of another, beside what the window lets each machine's own consumers drift: two
are on their way to each, and so are their acknowledgements."""
ENDING_S = 3.0
"""An actor that was ended keeps its name for a moment."""
STOP_S = 15.0
"""How long the hub may take to end the stream on all machines, which have 10 s each."""
JOIN_S = 10.0
"""How long the feed may take to come to its end."""
LATER_S = 5.0
"""The hub waits so much longer than a relay for what stands still, and the producer than the hub: the one at fault
is parked by its own machine first, and not the whole machine, or the cluster, in its place."""


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
        waits = replace(options, stall_timeout_s=options.stall_timeout_s + 2 * LATER_S)
        producer = serve_here(
            loader,
            waits,
            name=name,
            origin=origin,
            in_step=True,
            least_band=_kept_here(options.window_batches),
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

    from tsnb.cluster.feed import Feed
    from tsnb.cluster.stream_hub import StreamHub

    source = producer.core.source
    assert source is not None
    facts = {name: getattr(source, name) for name in ("batch_size", "batches", "samples", "order")}
    facts |= {"indices": tuple(source.indices), "batch_bytes": producer.core.batch_bytes}
    # beside the producer: its word is short to the feed, and one machine's death ends both or none
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    where = {"name": membership.hub_name(producer.name), "namespace": membership.namespace()}
    keeper = keeper_of(producer.core)
    lends = None if keeper is None else (keeper.limit_bytes, keeper.lenders.token)
    window, stall_timeout_s = options["window"], options["stall_timeout_s"] + LATER_S
    actor: Any = ray.remote(StreamHub)
    hub = _named(
        lambda: actor.options(num_cpus=0, max_concurrency=1000, scheduling_strategy=here, **where).remote(
            producer.name, BETWEEN, _kept_between(window), stall_timeout_s, facts, options, lends
        ),
        producer.name,
    )
    try:
        ray.get(hub.begin.remote(), timeout=membership.OPEN_S)
        feed = Feed(hub, producer)
    except BaseException as error:
        ray.kill(hub)
        if isinstance(error, ray.exceptions.RayError):
            raise TsnbError(
                f"Ray cannot start a tsnb process on this machine: {membership.last_words(error)}. Install "
                "tsnb in the environment where `ray start` was called, and check the cluster with `ray "
                "status`."
            ) from None
        raise
    feed.start()
    # before Ray leaves the cluster at this process's end: consumers are to be told
    atexit.register(producer.stop)

    def stop() -> None:
        atexit.unregister(producer.stop)
        feed.retire()
        if joined() is not None:  # else Ray was shut down, which has ended the hub
            with contextlib.suppress(Exception):  # whatever has become of the cluster, the stream here ends
                ray.get(hub.stop.remote(), timeout=STOP_S)
            with contextlib.suppress(Exception):
                ray.kill(hub)
        feed.join(JOIN_S)

    return stop


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


def _kept_between(window: int) -> int:
    """Return how many batches the hub keeps of an epoch's beginning.

    A machine that has come and whose consumers take nothing yet has loaded a window of its own, and one batch; the hub
    has gone on from there. So trials that wait for each other, wherever they are, can all begin with the first batch.
    """
    return window + BETWEEN + 2


def _kept_here(window: int) -> int:
    """Return how many batches the producer's machine keeps: the same, with the feed for the machine."""
    return _kept_between(window) + window + 2
