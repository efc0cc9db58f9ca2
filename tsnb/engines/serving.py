"""`serve`, on this machine or over a cluster."""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tsnb import clusters
from tsnb.config import check_name
from tsnb.engines.membership import join_cluster
from tsnb.errors import NameInUse, TsnbError
from tsnb.options import StreamOptions
from tsnb.producer.serving import serve as serve_here
from tsnb.producer.stream import Producer

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
"""The hub waits so much longer than a relay for what stands still, and the producer than the hub: whoever is at fault
is parked by its own machine first, and not the whole machine, or the cluster, in its place."""


def serve(
    loader: Any,
    *,
    name: str,
    engine: str = "local",
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
    guard: bool = False,
) -> Producer:
    """Serve a loader to any number of consumers, which attach by its name.

    Returns once the loader's first batch lies ready, so a loader that cannot work fails here. Of an iterator, which as
    a rule gives one epoch only, it warns.

    Args:
        loader: A torch DataLoader, any iterable of batches, or a function `make_epoch(epoch)` returning one.
            It is not changed; a DataLoader's workers write straight into shared memory. A function, a list of
            batches and what has `set_epoch` are expected to give the same batches for the same epoch: consumers
            rely on it when they go on in the middle of one. Any other iterable is never gone on with there.
        name: 1-64 letters, digits, dots, dashes, underscores; unique among this user's producers.
        engine: "local", for consumers on this machine; "ray", for those on every machine of the Ray cluster that this
            process, or this machine, is in; "ray://HOST:PORT", of that cluster. The loader runs here in each case.
        window: Loader batches that the fastest consumer may be ahead of the slowest. Between machines it is smaller
            where the object stores are.
        rubber_band: Share of an epoch (0 to 1) that may have passed while a latecomer still gets all of it;
            at least `window` batches, at most 1 GiB. A machine that comes late gets all of it within the window.
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
            the same batches in the same order: a `DataLoader` with the same `seed`. On this machine only.
        first_epoch: The number of the first epoch, for a producer that is started again.
        rebalance: Move cores and torch threads between trials and the loader's workers, so that the pace of the
            slowest rises (docs/balance.md); `Producer.rebalance` switches it while it runs. On this machine only.
        origin: Who serves it, for messages; found out by default.
        mode: How compute is divided between consumers (docs/balance.md). "pace": the window keeps all in step, and
            what the small models leave, the large one gets. "free": a wide window, each as fast as it can. "weights":
            as "free", and who has computed more than its weighted share lets the others go first. Over a cluster
            always "pace".
        weights: By the consumer's name, for "weights": {"resnet50": 2} has twice the compute of one with 1.
        guard: Every consumer attaches with `guard=True`: it takes checksums of each batch before and after each step,
            and warns of every change in place. Each batch is read twice more by each of them.

    Returns:
        The producer; a context manager that stops it at its end.

    Raises:
        LoaderFailed: The loader raised before its first batch, or gave none.
        NameInUse: That name is being served, here or in the cluster.
        ExtraMissing: `engine="ray"` without Ray.
        TsnbError: There is no cluster.
        TypeError: `loader` cannot be iterated.
        ValueError: A number is out of range, `engine` or `mode` is none, or not for a cluster, or the name has odd
            characters.
        UnsupportedPlatform: Neither on Linux nor on macOS.
    """
    check_name(name, "producer")
    options = StreamOptions(
        window=window, rubber_band=rubber_band, patience_s=patience_s, seed=seed, workers=workers,
        max_batch_bytes=max_batch_bytes, reconnect_s=reconnect_s, first_epoch=first_epoch, engine=engine, mode=mode,
        weights=weights or {}, rebalance=rebalance, guard=guard,
    )  # fmt: skip
    far = clusters.address_of(engine)
    if far is None:
        return serve_here(loader, options, name=name, origin=origin)
    with join_cluster(far) as leave:
        waits = replace(options, patience_s=options.patience_s + 2 * LATER_S)
        producer = serve_here(
            loader, waits, name=name, origin=origin, in_step=True, least_band=_kept_here(options.window)
        )
        of_each_machine = ("window", "rubber_band", "patience_s", "max_batch_bytes", "guard")
        try:
            stop = _open(producer, {name: getattr(options, name) for name in of_each_machine})
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

    from tsnb.engines.feed import Feed
    from tsnb.engines.hub import Hub

    source = producer.core.source
    assert source is not None
    facts = {name: getattr(source, name) for name in ("batch_size", "batches", "samples", "order")}
    # beside the producer: its word is short to the feed, and one machine's death ends both or none
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    where = {"name": clusters.hub_name(producer.name), "namespace": clusters.namespace()}
    window, patience_s = options["window"], options["patience_s"] + LATER_S
    actor: Any = ray.remote(Hub)
    hub = _named(
        lambda: actor.options(num_cpus=0, max_concurrency=1000, scheduling_strategy=here, **where).remote(
            producer.name, BETWEEN, _kept_between(window), patience_s, facts, options
        ),
        producer.name,
    )
    try:
        ray.get(hub.begin.remote(), timeout=clusters.OPEN_S)
        feed = Feed(hub, producer.entry)
    except BaseException as error:
        ray.kill(hub)
        if isinstance(error, ray.exceptions.RayError):
            raise TsnbError(
                f"Ray cannot start a process of tsnb on this machine: {clusters.last_words(error)}. tsnb must be "
                "installed where `ray start` was called from; `ray status` says whether the cluster is well."
            ) from None
        raise
    feed.start()
    # before Ray leaves the cluster at this process's end: consumers are to be told
    atexit.register(producer.stop)

    def stop() -> None:
        atexit.unregister(producer.stop)
        feed.retire()
        if clusters.joined() is not None:  # else Ray was shut down, which has ended the hub
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
                    f"a stream named {stream!r} is served in the cluster already (namespace {clusters.namespace()}). "
                    "Choose another name, or stop it where it is served."
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
