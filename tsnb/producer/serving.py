"""`serve`: put a loader behind a name, on this machine."""

from __future__ import annotations

import functools
import warnings
from typing import Any

from tsnb import registry
from tsnb.config import check_name, require_platform
from tsnb.options import StreamOptions
from tsnb.producer.core import Core, Settings
from tsnb.producer.decisions import events as ev
from tsnb.producer.feeder import Feeder, slots_for
from tsnb.producer.loader.dataloader import is_plain, why_not_persistent
from tsnb.producer.loader.repeating import why_unordered
from tsnb.producer.loader.sources import as_source, why_one_epoch
from tsnb.producer.server import Server
from tsnb.producer.steering import controller_of
from tsnb.producer.stream import Producer

__all__ = ["begin", "serve"]


def serve(
    loader: Any,
    options: StreamOptions | None = None,
    *,
    name: str,
    origin: str | None = None,
    least_band: int = 0,
    in_step: bool = False,
) -> Producer:
    """Serve a loader to any number of consumers of this machine, which attach by its name.

    Returns once the loader's first batch lies ready, so a loader that cannot work fails here; of an iterator it warns
    that it may give one epoch only. `tsnb.serve` is this for several machines as well, and explains loader and options.

    Args:
        loader: What gives batches.
        options: How it is served.
        name: Unique among this user's producers.
        origin: Who serves it; found out by default.
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
    check_name(name, "producer")
    options = options or StreamOptions()
    seed, workers = options.seed, options.workers
    settings = Settings(**vars(options), name=name, least_band=least_band, in_step=in_step)
    if why := why_one_epoch(loader):
        warnings.warn(why, RuntimeWarning, stacklevel=3)  # where `tsnb.serve` was called
    if why := why_not_persistent(loader, seed, workers):
        warnings.warn(why, RuntimeWarning, stacklevel=3)
    if seed is not None and is_plain(loader) and (why := why_unordered(loader, seed, workers)):
        warnings.warn(
            f"seed= does not make the epochs of {name!r} repeatable: {why}. Until then its consumers cannot go on in "
            "the middle of an epoch, neither from a saved state nor after a restart.",
            RuntimeWarning,
            stacklevel=3,
        )
    producer = begin(loader, settings, seed=seed, workers=workers, origin=origin)
    producer.prove()
    if options.rebalance:
        producer.rebalance()
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
        loader: As `serve`.
        settings: What was chosen; checked already.
        seed: As `serve`.
        workers: As `serve`.
        origin: As `serve`.
        primed: Whether the first batch is loaded at once, before anybody asks.

    Raises:
        NameInUse, TypeError, ValueError: As `serve`.
    """
    core = Core(settings)
    server = None
    try:
        core.source = as_source(loader, core.arena, core.slots.pipe, seed=seed, workers=workers)
        core.unordered = "" if core.source.order else why_unordered(loader, seed, workers)
        core.slots.in_pipe = slots_for(core.source)
        core.dispatch.admission.repeatable = bool(core.source.order)
        if not primed:
            core.step(ev.Withdrawn(0))
            core.abandoned = False
        address = registry.new_address(settings.name)
        token = registry.new_token()
        server = Server(core, address, token)
        feeder = Feeder(core, core.source)
        entry = registry.register(settings.name, address, origin or registry.describe_origin(), token)
        server.look_for_entry = functools.partial(registry.put_back, entry)
    except BaseException:
        if server is not None:
            server.close()
        core.slots.close()
        core.arena.close()
        raise
    feeder.start()
    core.controller = controller_of(core, feeder.native_id or 0)
    server.start()
    return Producer(core, feeder, server, entry)
