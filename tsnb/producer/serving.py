"""`serve`: put a loader behind a name, on this machine."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from typing import Any

from tsnb import registry
from tsnb.config import check_balance, check_name, require_platform
from tsnb.producer import events as ev
from tsnb.producer.core import Core, Settings
from tsnb.producer.dataloader import is_plain, why_not_persistent
from tsnb.producer.feeder import Feeder, slots_for
from tsnb.producer.loading import as_source, why_one_epoch
from tsnb.producer.repeating import why_unordered
from tsnb.producer.server import Server
from tsnb.producer.steering import controller_of
from tsnb.producer.stream import Producer

__all__ = ["begin", "serve"]


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
    guard: bool = False,
    least_band: int = 0,
    in_step: bool = False,
) -> Producer:
    """Serve a loader to any number of consumers of this machine, which attach by its name.

    Returns once the loader's first batch lies ready, so a loader that cannot work fails here; of an iterator it warns
    that it may give one epoch only. `tsnb.serve` is this
    for several machines as well, and explains the arguments.

    Args:
        loader: As `tsnb.serve`, and what follows.
        name: Unique among this user's producers.
        window: In loader batches.
        rubber_band: Share of an epoch, 0 to 1.
        patience_s: Seconds.
        seed: 0 or more.
        workers: 0 or more.
        max_batch_bytes: Room for one batch.
        reconnect_s: Seconds; 0: nobody starts it again.
        first_epoch: Its number.
        rebalance: Whether cores and torch threads are moved.
        origin: Who serves it.
        mode: One of `config.MODES`.
        weights: By consumer name.
        guard: Whether all consumers take checksums of what they are given.
        least_band: As `Settings`.
        in_step: As `Settings`.

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
    settings = Settings(
        name, window, rubber_band, patience_s, max_batch_bytes, reconnect_s, first_epoch,
        *check_balance(mode, weights), least_band, bool(guard), in_step,
    )  # fmt: skip
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
    if rebalance:
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
