"""`serve`: put a loader behind a name, on this machine or over a cluster."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tsnb.caching.cut import Cached
from tsnb.caching.keeper import Keeper
from tsnb.config import check_name, require_platform
from tsnb.device_sharing.on_devices import OnDevices
from tsnb.discovery import registry
from tsnb.draws import Draws
from tsnb.engines import cluster_at
from tsnb.extensions.cache import CacheCounts
from tsnb.extensions.cores import CoreBalance
from tsnb.extensions.ends import TrialEnds
from tsnb.extensions.frozen import FrozenCounts
from tsnb.extensions.growth import growth_of, refuse_wrapped
from tsnb.extensions.live import LiveExchange
from tsnb.extensions.metrics import MetricsKept
from tsnb.extensions.pacing import Pacing
from tsnb.extensions.readings import reading, reading_in_letters
from tsnb.extensions.rounds import Rounds
from tsnb.extensions.tuning import Tuning, first_workers
from tsnb.frozen.features import FeatureKeeper
from tsnb.frozen.loaders import frozen_loader, original_of, part_of
from tsnb.frozen.on_device import why_without_seed
from tsnb.frozen.part import FrozenPart, name_of
from tsnb.frozen.refusals import why_gradients
from tsnb.growing.grown import Grown
from tsnb.options import AUTO, StreamOptions
from tsnb.serving.stream import Producer
from tsnb.stream.decisions import events as ev
from tsnb.stream.loader.facts import (
    as_iterated,
    dataset_facts,
    is_plain,
    why_frozen,
    why_not_persistent,
    why_reordered,
)
from tsnb.stream.loader.generators import seeds_drawn
from tsnb.stream.loader.repeating import why_unordered
from tsnb.stream.loader.sources import Source, as_source, why_one_epoch
from tsnb.stream.producer.core import Core, Settings
from tsnb.stream.producer.feeder import Feeder, slots_for
from tsnb.stream.producer.server import Server
from tsnb.stream.protocol.extension import Extension, by_name

__all__ = ["begin", "serve", "serve_here"]


def serve(
    loader: Any,
    name: str,
    *,
    then: Callable[[Any], Any] | None = None,
    inputs: bool = False,
    engine: str = "local",
    window: int | str | None = None,
    late_join: float = 0.02,
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
    """Serve a data loader to any number of trials on this machine.

    Returns once the first batch is ready, so a broken loader raises here. docs/what-can-be-served.md has the details.

    Example:
        >>> with tsnb.serve(loader, name="mnist", seed=0):
        ...     for images, labels in tsnb.attach("my-model", "mnist"):
        ...         ...

    Args:
        loader: A torch `DataLoader`, an iterable of batches, or a function `make_epoch(epoch)` that returns one. It
            is not modified.
        name: Name of the stream: 1 to 64 letters, digits, `.`, `_` or `-`. Unique among your running streams.
        then: Frozen network, or function of a batch, computed once for all trials (docs/frozen.md). Defaults to None.
        inputs: Whether trials may also take the inputs of `then`, with `attach(inputs=True)`. Defaults to False.
        engine: "local" for this machine, "ray" or "ray://HOST:PORT" for a Ray cluster (docs/ray-cluster.md). Defaults
            to "local".
        window: Lead of the fastest trial in batches, or memory such as "1GiB" for a trial that stops. Defaults to 8.
        late_join: Share of an epoch, 0 to 1, that may have passed when a late trial joins it. Defaults to 0.02.
        stall_timeout_s: Seconds to wait for a stalled trial before the others continue without it. Defaults to 30.
        seed: Number that fixes sample order and augmentation. A shuffled epoch can be resumed in its middle only
            with one. Defaults to None.
        workers: Number of loader processes, or "auto" to find it (docs/speed-up-loading.md). Defaults to the loader's
            `num_workers`.
        memory: Memory for all workers with `workers="auto"`, for example "4GiB". Defaults to what is free.
        cache: Memory for samples, for example "2GiB" (docs/cache.md). Defaults to no cache.
        max_batch_bytes: Size of the largest batch, for example "512MiB". Defaults to what memory allows.
        reconnect_s: Seconds that trials wait for a restart of this stream if its process dies. Defaults to 0.
        first_epoch: Number of the first epoch, for a stream that is started again. Defaults to 0.
        rebalance: Whether cores and threads move to the slowest trial (docs/balance.md). Defaults to False.
        origin: Name of the script or notebook, for messages. Defaults to what tsnb finds.
        pacing: Division of compute between trials: "together", "free" or "weights" (docs/balance.md). Defaults to
            "together".
        weights: Weight of each trial by name, with `pacing="weights"`. Defaults to 1 for each.
        guard: Whether every trial checks its batches for changes in place, by checksums. Defaults to False.

    Returns:
        The running stream. Use it as a context manager to stop it at the end.

    Raises:
        LoaderFailed: If the loader raises before its first batch, or yields none.
        NameInUse: If a stream of that name is running.
        ExtraMissing: If `engine` is "ray" and Ray is not installed.
        TsnbError: If `engine` is "ray" and no cluster is running.
        TypeError: If `loader` cannot be iterated, or `then` cannot be called.
        ValueError: If a number is out of range, the name is invalid, `engine` or `pacing` is unknown or not for
            a cluster, or `then` is a network in training mode with dropout or batch norm.
        UnsupportedPlatform: If this is neither Linux nor macOS.
    """
    check_name(name, "stream")
    options = StreamOptions(
        then=None if then is None else name_of(then), inputs=inputs,
        window=window, late_join=late_join, stall_timeout_s=stall_timeout_s, seed=seed, workers=workers,
        memory=memory, cache=cache, max_batch_bytes=max_batch_bytes, reconnect_s=reconnect_s, first_epoch=first_epoch,
        engine=engine, pacing=pacing, weights=weights or {}, rebalance=rebalance, guard=guard,
    )  # fmt: skip
    loader = as_iterated(loader)
    _warn_of(loader, name, options)
    refuse_wrapped(loader)
    if then is not None:
        loader = frozen_loader(loader, part := FrozenPart(then, inputs=inputs))
        if not inputs and (why := why_gradients(then)):
            warnings.warn(why, RuntimeWarning, stacklevel=2)
        if seed is not None and (why := why_without_seed(part.device)):
            warnings.warn(why, RuntimeWarning, stacklevel=2)
    cluster = cluster_at(engine)
    if cluster is not None and isinstance(getattr(loader, "dataset", None), Grown):
        raise ValueError(
            'A growing dataset can be served to one machine only. Leave engine= out, or pass engine="local".'
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
            f"seed= does not make the epochs of {name!r} repeatable: {why}. Until then, trials cannot "
            "continue in the middle of an epoch, neither from a saved state nor after a restart.",
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
    extensions: Iterable[Callable[[Core], Extension]] = (),
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
        extensions: Make the producer's halves of further extensions (docs/write-an-extension.md).

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
    check_name(name, "stream")
    options = options or StreamOptions()
    seed, workers = options.seed, first_workers(loader, options.workers)
    settings = Settings(**vars(options), name=name, least_band=least_band, in_step=in_step)
    before = Draws.now()
    producer = begin(loader, settings, seed=seed, workers=workers, origin=origin, extensions=extensions)
    try:
        if producer.core.dispatch.admission.rounds is None:  # else its first batch comes with a round
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


def _keeper(limit_bytes: int, loader: Any, part: FrozenPart | None) -> Keeper:
    """Return what keeps samples: of a frozen part its results, unless the dataset says where its fixed part ends."""
    if part is None or isinstance(getattr(loader, "dataset", None), Cached):
        return Keeper(limit_bytes)
    return FeatureKeeper(limit_bytes, part.key)


def _order_of(source: Source, loader: Any, core: Core) -> str:
    """Return the identity of the order that a loader gives its batches in, without what is computed of them."""
    original = original_of(loader)
    if original is loader:
        return source.order
    return as_source(original, core.arena, core.slots.pipe, seed=None, workers=None).order


def begin(
    loader: Any,
    settings: Settings,
    *,
    seed: int | None = None,
    workers: int | None = None,
    origin: str | None = None,
    primed: bool = True,
    extensions: Iterable[Callable[[Core], Extension]] = (),
) -> Producer:
    """Begin to serve, without waiting for the first batch.

    Args:
        loader: As `serve_here`.
        settings: What was chosen; checked already.
        seed: As `serve`.
        workers: As `serve`.
        origin: As `serve`.
        primed: Whether the first batch is loaded at once, before anybody asks.
        extensions: As `serve_here`.

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
        core.devices = OnDevices(core.arena, core.lock, settings.window_batches, core.tell)
        core.read = lambda since: reading_in_letters(reading(core, since))
        core.growth, rounds = growth, Rounds(core, growth)
        built_on: list[Extension] = [
            TrialEnds(core),
            MetricsKept(core),
            LiveExchange(core),
            rounds,
            Pacing(core),
        ]
        part = part_of(loader)
        if part is not None:
            built_on.append(FrozenCounts(part, settings.then or ""))
        if settings.cache is not None:
            core.keeper = keeper = _keeper(int(settings.cache), loader, part)
            undo.callback(keeper.close)
            built_on.append(CacheCounts(keeper))
        core.extensions = by_name([*built_on, *(make(core) for make in extensions)])
        source = as_source(
            loader,
            core.arena,
            core.slots.pipe,
            seed=seed,
            workers=workers,
            keeper=core.keeper,
            growth=growth,
        )
        if part is not None and source.order:
            source.order = f"{_order_of(source, loader, core)} then={part.key}"
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
        cores, tuning = CoreBalance(core, feeder), Tuning(core, feeder)
        core.extensions = by_name([*core.extensions.values(), cores, tuning])
        producer = Producer(core, feeder, server, entry, cores, tuning)
        undo.pop_all()
        # an interrupt meanwhile: its name would be taken, and nobody would answer
        undo.callback(producer.stop)
        if growth is not None:
            growth.start(rounds.look)
        feeder.start()
        server.start()
        undo.pop_all()
    return producer
