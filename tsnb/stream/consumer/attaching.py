"""`attach`: find a stream by name and get a consumer of it; one of each name in a process.

A trial that was put on a device knows it by another name than its notebook does: `device_here` translates.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tsnb.config import check_name, require_platform
from tsnb.discovery import registry
from tsnb.discovery.promises import is_promised
from tsnb.errors import NameInUse, ProducerGone, TsnbError
from tsnb.stream.consumer.attachment import Attachment, rest_siblings
from tsnb.stream.consumer.batches.parts import Part
from tsnb.stream.consumer.consumer import Consumer
from tsnb.stream.consumer.counts import CpuTime, Total, Totals
from tsnb.stream.consumer.finding import LOOK_S, RETURN_S, find
from tsnb.stream.consumer.options import Options, ranks_hint
from tsnb.stream.this_process import this_process

__all__ = [
    "attach",
    "branch_all",
    "consumers",
    "cpu_time",
    "detach_all",
    "device_here",
    "log_losses",
    "name_in_clone",
    "rest_all",
    "totals",
]

_HELD_OUT = "-held-out"
AHEAD = 2
"""Batches that are copied to a GPU ahead by default. A copy that is made when the loop asks waits for all kernels given
before: behind one of 20 ms it returned after 25 ms, from locked memory and ahead after 0.1 ms (H200, 64 MiB)."""
DYING_S = 0.5
"""A process that is killed keeps its sockets for a moment; the next one of that name waits this out."""

_consumers: dict[tuple[str, str], Attachment] = {}
"""This process's consumers by (producer's name, consumer's name). Strong references: between two loops of
`for epoch in ...: for batch in tsnb.attach(...)` nothing else keeps the consumer, and it must not lose its place."""

_totals = Totals()
"""What this process's consumers did, those that are not kept any more included."""


def attach(
    name: str | None = None,
    stream: str | None = None,
    *,
    batch_size: int | None = None,
    drop_last: bool = False,
    device: str | torch.device | None = None,
    transform: Callable[[Any], Any] | None = None,
    join: str = "epoch",
    on_lag: str = "wait",
    private: bool = False,
    reconnect_s: float | None = None,
    prefetch_to_device: int | None = None,
    share_on_device: bool = False,
    rank: int = 0,
    world_size: int = 1,
    shard: bool = True,
    guard: bool = False,
    subset: Any = None,
    fold: Sequence[int] | None = None,
    held_out: bool = False,
    inputs: bool = False,
) -> Consumer:
    """Attach to a stream and iterate its batches like a `DataLoader`.

    Each iteration takes one epoch. A second call with the same name in this process returns the same consumer.

    Example:
        >>> consumer = tsnb.attach("my-model", "digits")
        >>> for images, labels in consumer:
        ...     ...

    Args:
        name: Name shown in the panel. Defaults to the trial's name, outside a trial to a new one.
        stream: Name of the stream. Defaults to the only stream of this notebook or script, else the only one that
            runs.
        batch_size: Samples per batch, or per batch and rank with ranks. Defaults to the loader's own batches.
        drop_last: Whether an epoch's last batch is left out if it is not full. Defaults to False.
        device: Device to which tensors are copied, for example "cuda:0". Defaults to the trial's device, else
            shared memory.
        transform: Function applied to each batch in this process. Defaults to None.
        join: Epoch to begin with: "epoch", "now" or "here" (docs/what-can-be-served.md). Defaults to "epoch".
        on_lag: Behaviour when this trial is slower: "wait" lets the others wait, "skip" lets it miss batches.
            Defaults to "wait".
        private: Whether batches are copies that may be changed in place. Defaults to False.
        reconnect_s: Seconds to wait for a restart if the stream's process dies. Defaults to the stream's own.
        prefetch_to_device: Batches copied to the GPU ahead. Defaults to 2 with a GPU as `device`.
        share_on_device: Whether trials on one GPU share one copy of each batch. Experimental. Defaults to False.
        rank: Rank of this process in a distributed job. Defaults to 0.
        world_size: Number of ranks. Defaults to 1, no group.
        shard: Whether each rank gets its own part of each batch. Pass False for pipeline or tensor parallel
            training. Defaults to True.
        guard: Whether checksums reveal changes of a batch in place. Reads each batch twice more. Defaults to False.
        subset: Samples to take: indices, a mask, or a function (docs/cross-validation.md). Defaults to all.
        fold: Cross-validation split `(k, n)` or `(k, n, seed)`: all samples but fold k of n. Defaults to None.
        held_out: Whether to take the samples of fold k instead. Defaults to False.
        inputs: Whether batches also hold the inputs of the stream's frozen part (docs/frozen.md). Defaults to False.

    Returns:
        The consumer. Every iteration over it takes one epoch.

    Raises:
        ProducerNotFound: If no stream has that name, or none is named and there is not exactly one.
        NameInUse: If a live consumer in another process has that name.
        ProducerGone: If the stream stops during this call.
        JoinRefused: If the stream does not take this consumer.
        ValueError: If an option is out of range or unknown, the subset or fold does not exist in the dataset, a
            group has no name, or this process does not see the device.
        UnsupportedPlatform: If this is neither Linux nor macOS.
    """
    require_platform()
    chosen = _checked_name(name, held_out=held_out)
    wants_part = subset is not None or fold is not None or held_out
    part = Part(subset, fold, held_out=held_out) if wants_part else None
    place = device_here(device)
    on_gpu = place is not None and torch.device(place).type == "cuda"
    ahead = prefetch_to_device if prefetch_to_device is not None else AHEAD * (on_gpu and not share_on_device)
    options = Options(
        batch_size=batch_size if batch_size is not None else this_process.batch_size,
        drop_last=drop_last, device=place, transform=transform, private=private, on_lag=on_lag, join=join,
        reconnect_s=reconnect_s, prefetch_to_device=ahead, share_on_device=share_on_device,
        rank=rank, world_size=world_size, shard=shard, guard=guard, part=part, inputs=inputs,
    )  # fmt: skip
    options.check()
    if not (name or this_process.name):
        _look_for_ranks(world_size)
    shown = chosen if world_size == 1 else f"{chosen}[{rank}]"
    entry = find(stream or this_process.stream, shown, _consumers)
    options = _with_turns(options, entry.stream if isinstance(entry, Attachment) else entry.name, shown)
    if isinstance(entry, Attachment):
        return _again(entry, options).face
    rest_siblings(entry.name, shown)
    mine = _consumers.get((entry.name, shown))
    if mine is not None and mine.address != entry.address:
        mine.close_if_gone(taken_over=True)
    if mine is not None and not mine.closed and mine.options.attachment == options.attachment:
        return _again(mine, options).face
    if mine is not None:
        if not mine.closed:
            _require_same_thread(mine)
        mine.close()
    for other in consumers():
        other.close_if_gone()
        if other.closed:
            _forget(other)
    _look_for_stream_named(name, stream, entry.name)
    _totals.attaching()
    consumer = _new_consumer(entry, chosen, options)
    _consumers[entry.name, shown] = consumer
    if this_process.attached is not None:
        this_process.attached(consumer)
    return consumer.face


def _with_turns(options: Options, stream: str, name: str) -> Options:
    """Return options by which a consumer takes turns with its sweep's others, where it is the one to do so.

    That is the first one on the stream: with a second one beside it (for the samples that are held out, say) each would
    wait for the other's turn to be over.

    Raises:
        ValueError: It is one that skips, or a rank.
    """
    rotation = this_process.rotation
    if rotation is None or stream != this_process.stream:
        return options
    mine = _consumers.get((stream, name))
    if any(of == stream and c is not mine and not c.closed for (of, _), c in _consumers.items()):
        return options
    if options.on_lag == "skip" or options.world_size > 1:
        what = 'on_lag="skip"' if options.on_lag == "skip" else f"world_size={options.world_size}"
        raise ValueError(
            f"{what} cannot be combined with rotate=. Trials that take turns each receive all batches, "
            "one window at a time. Leave it out, or start the sweep without rotate=."
        )
    return replace(options, rotation=rotation)


def _again(mine: Attachment, options: Options) -> Attachment:
    """Return a consumer that exists, wanted in a possibly new way."""
    _require_same_thread(mine)
    mine.options = options
    return mine


def consumers() -> list[Attachment]:
    """Return this process's consumers, and detached ones until their name is taken again."""
    return list(dict.fromkeys(_consumers.values()))


def totals() -> list[Total]:
    """Return what this process's consumers did, those that were closed or replaced included: each counts once."""
    with _totals.changing:
        return _totals.with_open((_key(consumer), _total(consumer)) for consumer in consumers())


def cpu_time() -> CpuTime | None:
    """Return what this process has computed since its first consumer attached; None: none has."""
    return _totals.cpu_time()


def _key(consumer: Attachment) -> tuple[str, str]:
    return consumer.stream, consumer.name


def _total(consumer: Attachment) -> Total:
    place = consumer.epoch, consumer.epoch_batches_taken
    attached_s = time.monotonic() - consumer.since_s
    return Total.of(consumer.stream, *place, consumer.stats(), consumer.begun, attached_s, consumer.paused_s)


def _forget(consumer: Attachment) -> None:
    """Keep what a closed consumer did, and not the consumer."""
    with _totals.changing:
        keys = [key for key, other in _consumers.items() if other is consumer]
        for key in keys:
            del _consumers[key]
        if keys:
            _totals.keep(_key(consumer), _total(consumer))


def log_losses(losses: Any) -> None:
    """Report the loss of each sample of the last batch of this loop.

    For loops over `tsnb.attach(...)` that do not keep the consumer. See `Consumer.report`.

    Example:
        >>> with tsnb.serve(DataLoader(tsnb.data.grow("photos", parse), 2), name="photos"):
        ...     for batch in tsnb.attach("cnn", "photos"):
        ...         tsnb.data.log_losses(torch.rand(len(batch)))

    Args:
        losses: One finite number per row, in order: a tensor on any device, an array or a list.

    Raises:
        TypeError, ValueError: If `losses` has another type or another number of rows. Nothing was reported.
        TsnbError: If there is no batch to report, its losses were reported before, the stream's dataset does not
            grow, the rows' samples are unknown, or this thread has several loops or none.
    """
    mine = [c for c in _consumers.values() if c.given is not None and c.thread == threading.get_ident()]
    found = list(dict.fromkeys(mine))
    if len(found) != 1:
        there = " and ".join(f"{c.name!r}" for c in found)
        raise TsnbError(
            (
                "tsnb.data.log_losses cannot tell whose losses these are, because this thread runs the "
                f"loops of {there}. Call consumer.report(losses) on the consumer that tsnb.attach returned."
            )
            if found
            else (
                "tsnb.data.log_losses reports the losses of the last batch of a loop, and no loop over a "
                "stream runs in this thread. Call it inside the loop, right after you compute the losses "
                "of a batch."
            )
        )
    found[0].report(losses)


def _new_consumer(entry: registry.Entry, name: str, options: Options) -> Attachment:
    """Attach; wait a moment for a holder of the name that is just being killed, or for a stream that comes back."""
    deadline, until_s = time.monotonic() + DYING_S, time.monotonic() + RETURN_S
    while True:
        try:
            return Attachment(entry, name, options)
        except ProducerGone:  # it ends: its entry goes in a moment, or another stream has the name by now
            coming = is_promised(entry.name)  # first: a promise is withdrawn once the stream is there
            former, entry = entry, next((e for e in registry.entries() if e.name == entry.name), entry)
            if time.monotonic() > until_s or (entry.address == former.address and not coming):
                raise
            if entry.address == former.address:
                time.sleep(LOOK_S)
        except NameInUse as error:
            if time.monotonic() > deadline:
                advice = ranks_hint() if options.world_size == 1 else ""
                raise NameInUse(f"{error} {advice}".rstrip()) from None
            time.sleep(0.05)


def name_in_clone(known: str, name: str, own: str) -> str:
    """Return what a consumer of the parent's is called in a clone.

    Args:
        known: The consumer's name.
        name: The clone's.
        own: The parent's.
    """
    suffix = known.removeprefix(own) if known.startswith(own) else f"-{known}"
    return f"{name[: 64 - len(suffix)]}{suffix}"


def branch_all(former: Sequence[Attachment], name: str, own: str) -> None:
    """Have consumers go on in this process, a clone, at their places, while the parent stands still.

    The trial's own is called as the clone is, one that was named after the trial ("cnn-held-out") alike, and any
    other one by both names. Code that attaches by the former name gets them, too.

    Args:
        former: The parent's consumers.
        name: The clone's name.
        own: The parent's.

    Raises:
        NameInUse, JoinRefused, ProducerGone, ConsumerTimedOut, TimeoutError: As `Attachment.branch`.
    """
    for consumer in former:
        known = consumer.name
        if not consumer.closed:
            consumer.branch(name_in_clone(known, name, own))
        _consumers[consumer.stream, known] = _consumers[consumer.stream, consumer.name] = consumer


def detach_all() -> None:
    """Close every consumer of this process; a trial kernel calls it when its cell has ended."""
    while found := consumers():
        try:
            found[-1].close()
        finally:
            _forget(found[-1])


def rest_all(*, failed: bool = False) -> None:
    """Stop others waiting for this process's consumers between epochs; a notebook calls it after each cell.

    Args:
        failed: The cell was interrupted or raised: the loops it left behind are ended.
    """
    for consumer in [each for each in _consumers.values() if not each.closed]:
        consumer.rest(failed=failed)


def _require_same_thread(mine: Attachment) -> None:
    """Refuse a second live loop.

    In the same thread the older loop cannot be running: it was abandoned, or it encloses this call and will be
    told. In another thread that is alive it may be.
    """
    if (mine.iterating and not mine.in_reach) or mine.busy_elsewhere:
        raise NameInUse(
            f"The name {mine.name!r} is in use on stream {mine.stream!r}, in another thread of this "
            "process. Attach with another name."
        )


def _look_for_stream_named(name: str | None, stream: str | None, taken: str) -> None:
    """Warn where the only word that was given names a stream: it names the trial, and may be meant as the stream."""
    if not name or stream is not None:
        return
    if name == taken or any(entry.name == name for entry in registry.entries()):
        warnings.warn(
            f"tsnb.attach({name!r}) names the trial {name!r} and reads stream {taken!r}. A stream is also called "
            f"{name!r}. To read that stream, pass stream={name!r}.",
            UserWarning,
            stacklevel=3,
        )


def _look_for_ranks(world_size: int) -> None:
    """Refuse a group without a name: its ranks would not find each other by names that are made up.

    Raises:
        ValueError: This is one of them.
    """
    if world_size > 1:
        raise ValueError(
            f"The {world_size} ranks of a group find each other by name. Attach all of them with the "
            'same name, for example tsnb.attach("bert", rank=..., world_size=...).'
        )
    if advice := ranks_hint():
        warnings.warn(
            f"Every rank takes all batches of the stream by itself. {advice}", UserWarning, stacklevel=3
        )


def _checked_name(name: object, *, held_out: bool) -> str:
    """Return the name of a trial, or refuse what the user took for it: the loader, most of all."""
    if name is not None and not isinstance(name, str):
        raise TypeError(
            f"tsnb.attach takes the name of a trial, got {type(name).__name__}. Serve a loader with "
            'tsnb.serve(loader, name="demo"), then read its batches from tsnb.attach().'
        )
    return check_name(name or _default_name(held_out=held_out), "trial")


def _default_name(*, held_out: bool) -> str:
    own = this_process.name or _own_name()
    return f"{own[: 64 - len(_HELD_OUT)]}{_HELD_OUT}" if held_out else own


def _own_name() -> str:
    word = re.sub(r"[^A-Za-z0-9]+", "-", Path(sys.argv[0]).stem if sys.argv else "").strip("-")[:40]
    return f"{word or 'python'}-{os.getpid()}"


os.register_at_fork(after_in_child=_consumers.clear)  # `native.forks`, 2
os.register_at_fork(after_in_child=_totals.forked)


def device_here(asked: str | torch.device | None) -> str | torch.device | None:
    """Return where batches go.

    Args:
        asked: What the user's own code says; None: nothing.

    Raises:
        ValueError: This process does not see a device of that name; says what it is called here.
    """
    own, outside = this_process.device, this_process.outside
    if asked is None:
        return own
    word = str(asked)
    if outside is not None and word == outside:
        return own  # the cell says what stands behind --device
    if word.startswith("mig:"):
        raise ValueError(
            f"device={word!r}: torch has no device of that name. Start the trial with --device {word} "
            "and leave device= out here. Inside the trial, the instance is called cuda:0."
        )
    if outside is None or not word.startswith("cuda"):
        return asked
    if own == "cpu":
        raise ValueError(
            f"device={word!r}: this trial was started with --device cpu and sees no GPU. Leave device= "
            f"out, or start it with --device {word}."
        )
    if own == "cuda:0" and word not in ("cuda", "cuda:0"):
        raise ValueError(
            f"device={word!r}: this trial was started with --device {outside}. It sees only that GPU, "
            'under the name cuda:0. Leave device= out, or pass device="cuda:0".'
        )
    return asked
