"""`serve`: put a loader behind a name, on this machine or over a cluster."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tsnb import registry
from tsnb.config import check_name, require_platform
from tsnb.engines import cluster_at
from tsnb.options import AUTO, StreamOptions
from tsnb.producer.autoworkers import Tuning, first_workers
from tsnb.producer.core import Core, Settings
from tsnb.producer.decisions import events as ev
from tsnb.producer.feeder import Feeder, slots_for
from tsnb.producer.loader.dataloader_facts import (
    as_iterated,
    is_plain,
    why_frozen,
    why_not_persistent,
    why_reordered,
)
from tsnb.producer.loader.dataset_facts import dataset_facts
from tsnb.producer.loader.generators import seeds_drawn
from tsnb.producer.loader.growth import growth_of, refuse_wrapped
from tsnb.producer.loader.repeating import why_unordered
from tsnb.producer.loader.sources import as_source, why_one_epoch
from tsnb.producer.server import Server
from tsnb.producer.steering import controller_of
from tsnb.producer.stream import Producer
from tsnb.samples.draws import Draws
from tsnb.samples.grown import Grown
from tsnb.samples.keeper import Keeper

__all__ = ["begin", "serve", "serve_here"]


def serve(
    loader: Any,
    *,
    name: str,
    engine: str = "local",
    window: int = 8,
    rubber_band: float = 0.02,
    stall_timeout_s: float = 30.0,
    seed: int | None = None,
    workers: int | str | None = None,
    memory: int | str | None = None,
    cache: int | str | None = None,
    max_batch_bytes: int | str | None = None,
    reconnect_s: float = 0.0,
    first_epoch: int = 0,
    rebalance: bool = False,
    origin: str | None = None,
    pacing: str = "together",
    weights: Mapping[str, float] | None = None,
    guard: bool = False,
) -> Producer:
    """Serve a loader to any number of consumers, which attach by its name.

    Returns once the loader's first batch is ready, so a loader that cannot work fails here. It warns of an iterator,
    which as a rule gives one epoch only.

    Args:
        loader: A torch DataLoader, any iterable of batches, or a function `make_epoch(epoch)` returning one.
            It is not changed; a DataLoader's workers write straight into shared memory. A function, a list of
            batches and an iterable with `set_epoch` are expected to give the same batches for the same epoch: consumers
            rely on it when they go on in the middle of one, which they never do with any other iterable.
        name: 1-64 letters, digits, dots, dashes, underscores; unique among this user's producers.
        engine: "local", for consumers on this machine; "ray", for those on every machine of the Ray cluster that this
            process, or this machine, is in; "ray://HOST:PORT", of that cluster. The loader runs here in each case.
        window: Loader batches that the fastest consumer may be ahead of the slowest. Between machines it is smaller
            where the object stores are.
        rubber_band: Share of an epoch (0 to 1) that may have been given when a latecomer still gets all of it;
            at least `window` batches, at most 1 GiB. Of a loader without a length, 1 keeps all that fits and any other
            share has no effect. A machine that comes late gets all of it within the window.
        stall_timeout_s: Seconds that the others wait for a consumer which stands still or is between epochs.
        seed: Makes the order of samples, and what a DataLoader's workers draw from torch's, random's and numpy's
            global generators, a function of (seed, epoch, batch number): a batch that is given again is the same
            bit for bit, however many workers there are. Samplers need a `generator` or `set_epoch`. Generators that a
            dataset keeps itself are not seeded, nor is anything with 0 workers: that process is yours. For an
            IterableDataset you promise by it that the dataset repeats itself with the same number of workers.
        workers: Worker processes instead of the DataLoader's own `num_workers`. "auto": as many as help; that number is
            found while trials go on, and followed (docs/before.md). For a DataLoader with a map-style data set.
        memory: With `workers="auto"`: what all workers together may use, "4GiB" or bytes; left out: what is free.
        cache: Memory for prepared samples, "2GiB" or bytes; it keeps those that save the most work
            (docs/caching.md). Batches are the same with it and without. For a DataLoader with workers. With
            `engine="ray"` it is per machine: each other one that has a consumer lends as much.
        max_batch_bytes: The size of the largest batch, "512MiB" or bytes. By default a batch may be as large as memory
            allows (4 TiB of addresses are divided between the buffers), and at least four times as large as the first.
        reconnect_s: If this process dies: seconds that consumers wait for a producer of this name to be started
            again, instead of raising `ProducerGone`. They then go on where they were, exactly once, if it gives
            the same batches in the same order: a `DataLoader` with the same `seed`. On this machine only.
        first_epoch: The number of the first epoch, for a producer that is started again.
        rebalance: Move cores and torch threads between trials and the loader's workers, so that the pace of the
            slowest rises (docs/balance.md); `Producer.rebalance` switches it while it runs. On this machine only.
        origin: What serves it, for messages ("script train.py"); found out by default.
        pacing: How compute is divided between consumers (docs/balance.md). "together": the window keeps all in step,
            and what the small models leave, the large one gets. "free": a wide window, each as fast as it can.
            "weights": as "free", but a consumer that has computed more than its weighted share lets the others go
            first. Over a cluster always "together".
        weights: By the consumer's name, for "weights": {"resnet50": 2} has twice the compute of one with 1.
        guard: Every consumer attaches with `guard=True`: it takes checksums of each batch before and after each step,
            and warns of every change in place. Each batch is read twice more by each of them.

    Returns:
        The producer; a context manager that stops it at its end.

    Raises:
        LoaderFailed: The loader raised before its first batch, or gave none.
        NameInUse: That name is being served, here or in the cluster.
        ExtraMissing: `engine="ray"` without Ray.
        TsnbError: No cluster is running.
        TypeError: `loader` cannot be iterated.
        ValueError: A number is out of range, `engine` or `pacing` is unknown or not for a cluster, or the name invalid.
        UnsupportedPlatform: Neither on Linux nor on macOS.
    """
    check_name(name, "producer")
    options = StreamOptions(
        window=window, rubber_band=rubber_band, stall_timeout_s=stall_timeout_s, seed=seed, workers=workers,
        memory=memory, cache=cache, max_batch_bytes=max_batch_bytes, reconnect_s=reconnect_s, first_epoch=first_epoch,
        engine=engine, pacing=pacing, weights=weights or {}, rebalance=rebalance, guard=guard,
    )  # fmt: skip
    loader = as_iterated(loader)
    _warn_of(loader, name, options)
    refuse_wrapped(loader)
    cluster = cluster_at(engine)
    if cluster is not None and isinstance(getattr(loader, "dataset", None), Grown):
        raise ValueError(
            'a data set that grows is served to one machine: leave engine= out, or serve it with engine="local".'
        )
    if cluster is None:
        return serve_here(loader, options, name=name, origin=origin)
    served: Producer = cluster.serve(loader, options, name=name, origin=origin)
    return served


def _warn_of(loader: Any, name: str, options: StreamOptions) -> None:
    """Warn of a loader that gives less than one expects, where `serve` was called."""
    seed, workers = options.seed, first_workers(loader, options.workers)
    if why := why_one_epoch(loader):
        warnings.warn(why, RuntimeWarning, stacklevel=3)  # where `tsnb.serve` was called
    if why := why_not_persistent(loader, seed, workers):
        warnings.warn(why, RuntimeWarning, stacklevel=3)
    if why := why_frozen(loader):
        warnings.warn(why, RuntimeWarning, stacklevel=3)
    if why := why_reordered(loader, workers):
        warnings.warn(why, RuntimeWarning, stacklevel=3)
    if seed is not None and is_plain(loader) and (why := why_unordered(loader, seed, workers)):
        warnings.warn(
            f"seed= does not make the epochs of {name!r} repeatable: {why}. Until then its consumers cannot go on in "
            "the middle of an epoch, neither from a saved state nor after a restart.",
            RuntimeWarning,
            stacklevel=3,
        )


def serve_here(
    loader: Any,
    options: StreamOptions | None = None,
    *,
    name: str,
    origin: str | None = None,
    least_band: int = 0,
    in_step: bool = False,
) -> Producer:
    """Serve a loader to any number of consumers of this machine, which attach by its name.

    Returns once the loader's first batch lies ready, so a loader that cannot work fails here. `serve` explains loader
    and options.

    Args:
        loader: What gives batches.
        options: How it is served.
        name: Unique among this user's producers.
        origin: What serves it; found out by default.
        least_band: As `Settings`.
        in_step: As `Settings`.

    Returns:
        The producer; a context manager that stops it at its end.

    Raises:
        LoaderFailed: The loader raised before its first batch, or gave none.
        NameInUse: That name is being served.
        TypeError: `loader` cannot be iterated.
        ValueError: The name has odd characters.
        UnsupportedPlatform: Neither on Linux nor on macOS.
    """
    require_platform()
    loader = as_iterated(loader)
    check_name(name, "producer")
    options = options or StreamOptions()
    seed, workers = options.seed, first_workers(loader, options.workers)
    settings = Settings(**vars(options), name=name, least_band=least_band, in_step=in_step)
    before = Draws.now()
    producer = begin(loader, settings, seed=seed, workers=workers, origin=origin)
    try:
        growth = producer.core.growth
        if growth is None or not growth.in_words:  # else its first batch comes with a round
            producer.prove()
            producer.core.draws = not Draws.now().same(before)
        if options.rebalance:
            producer.rebalance()
        if options.workers == AUTO:
            producer.tune(workers=AUTO, memory=options.memory)
    except BaseException:  # an interrupt too: nobody has the producer yet who could stop it
        producer.stop()
        raise
    return producer


def begin(
    loader: Any,
    settings: Settings,
    *,
    seed: int | None = None,
    workers: int | None = None,
    origin: str | None = None,
    primed: bool = True,
) -> Producer:
    """Begin to serve, without waiting for the first batch.

    Args:
        loader: As `serve_here`.
        settings: What was chosen; checked already.
        seed: As `serve`.
        workers: As `serve`.
        origin: As `serve`.
        primed: Whether the first batch is loaded at once, before anybody asks.

    Raises:
        NameInUse, TypeError, ValueError: As `serve`.
    """
    with contextlib.ExitStack() as undo:
        growth = growth_of(loader, settings.name, seed)
        if growth is not None:  # its epochs are numbered on: each has its log
            undo.callback(growth.close)
            settings = replace(settings, first_epoch=max(settings.first_epoch, growth.first_epoch))
        core = Core(settings)
        undo.callback(core.arena.close)
        undo.callback(core.slots.close)
        core.growth = growth
        if settings.cache is not None:
            core.keeper = Keeper(int(settings.cache))
            undo.callback(core.keeper.close)
        source = as_source(
            loader,
            core.arena,
            core.slots.pipe,
            seed=seed,
            workers=workers,
            keeper=core.keeper,
            growth=growth,
        )
        core.dataset, core.seeds = dataset_facts(loader), seeds_drawn(loader)
        core.open(source, slots_for(source), "" if source.order else why_unordered(loader, seed, workers))
        in_rounds = growth is not None and bool(growth.in_words)
        if in_rounds:
            core.step(ev.RoundDue(0))
        if in_rounds or not primed:
            core.begin_unprimed()
        address = registry.new_address(settings.name)
        token = registry.new_token()
        server = Server(core, address, token)
        undo.callback(server.close)
        feeder = Feeder(core, source)
        entry = registry.register(settings.name, address, origin or registry.describe_origin(), token)
        undo.callback(registry.unregister, entry)
        server.look_for_entry = functools.partial(registry.put_back, entry)
        producer = Producer(core, feeder, server, entry)
        undo.pop_all()
        # an interrupt meanwhile: its name would be taken, and nobody would answer
        undo.callback(producer.stop)
        if growth is not None:
            growth.start(core.look_at_rounds)
        feeder.start()
        core.controller = controller_of(core, feeder.native_id or 0)
        core.tuning = Tuning(core, feeder.native_id or 0)
        server.start()
        undo.pop_all()
    return producer
