"""How a consumer wants its batches, how many it will get so, what it has taken, and what a rank is told.

Every rank of a group takes every batch of the stream and keeps a slice of it (`rebatching.part`), so all see the same
batches in the same order, and make the same number of steps.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tsnb.errors import JoinRefused, TsnbError
from tsnb.stream.consumer.batches.parts import Part
from tsnb.stream.consumer.place import Loop
from tsnb.stream.protocol.messages import Welcome

__all__ = [
    "Options",
    "Stats",
    "batches_left",
    "epoch_length",
    "epoch_samples",
    "full_batch_size",
    "incomplete",
    "ranks_hint",
    "require_fit",
    "require_rank",
]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How one consumer wants its batches; see `tsnb.attach`."""

    batch_size: int | None = None
    drop_last: bool = False
    device: str | torch.device | None = None
    transform: Callable[[Any], Any] | None = None
    private: bool = False
    on_lag: str = "wait"
    join: str = "epoch"
    reconnect_s: float | None = None
    prefetch_to_device: int = 0
    share_on_device: bool = False
    rank: int = 0
    world_size: int = 1
    shard: bool = True
    guard: bool = False
    part: Part | None = None
    inputs: bool = False
    rotation: tuple[str, int, int] | None = None
    """With whom it takes turns, the batches of a turn, and how many have theirs at once; None: it takes none."""

    def check(self) -> None:
        """Refuse invalid options.

        Raises:
            ValueError: A number is too small, a word unknown, or two options do not go together.
        """
        for option, given, least, of in (
            ("batch_size", self.batch_size, 1, "samples"),
            ("prefetch_to_device", self.prefetch_to_device, 0, "batches"),
            ("rank", self.rank, 0, "this rank"),
            ("world_size", self.world_size, 1, "ranks"),
        ):
            if given is None and option == "batch_size":
                continue
            if not isinstance(given, int) or isinstance(given, bool) or given < least:
                raise ValueError(f"{option}={given!r} is invalid. Pass a number of {of}, {least} or more.")
        if self.rank >= self.world_size:
            raise ValueError(
                f"rank={self.rank} is invalid with world_size={self.world_size}: ranks count from 0 to "
                'world_size - 1. Pass both: rank=int(os.environ["RANK"]), '
                'world_size=int(os.environ["WORLD_SIZE"]).'
            )
        if self.world_size > 1 and (self.on_lag == "skip" or self.share_on_device):
            option = 'on_lag="skip"' if self.on_lag == "skip" else "share_on_device=True"
            raise ValueError(
                f"{option} cannot be used by the ranks of a group, which all take the same batches, "
                "each on its own device. Leave it out."
            )
        for option, word, words in (
            ("join", self.join, ("epoch", "now", "here")),
            ("on_lag", self.on_lag, ("wait", "skip")),
        ):
            if word not in words:
                raise ValueError(f"{option}={word!r} is invalid. Pass {' or '.join(map(repr, words))}.")
        if self.reconnect_s is not None and not self.reconnect_s >= 0:
            raise ValueError(
                f"reconnect_s={self.reconnect_s!r} is invalid. Pass a number of seconds, 0 or more."
            )
        self._check_sharing()

    def _check_sharing(self) -> None:
        if self.share_on_device and (self.batch_size is not None or self.device is None):
            raise ValueError(
                "share_on_device=True hands out the loader's own batches on a device. Leave "
                "batch_size= out and pass device=, or leave share_on_device= out."
            )
        if self.share_on_device and self.part is not None:
            raise ValueError(
                "share_on_device=True hands out the loader's own batches, but subset= and fold= take "
                "parts of them. Leave one of them out."
            )

    @property
    def sharded(self) -> bool:
        """Whether it keeps a part of each batch only, as one rank of several."""
        return self.shard and self.world_size > 1

    @property
    def stream_batch_size(self) -> int | None:
        """Samples of the stream in one of its batches, those of the other ranks included; None: as the loader gives."""
        return self.batch_size * self.world_size if self.batch_size and self.sharded else self.batch_size

    @property
    def cut(self) -> str:
        """How a rank cuts batches, in words; the same for all ranks of a group. Empty where there is no group."""
        if self.world_size < 2:
            return ""
        cut = f"batch_size={self.batch_size}, drop_last={self.drop_last}, shard={self.shard}"
        return cut if self.part is None else f"{cut}, {self.part.words}"

    @property
    def attachment(self) -> tuple[object, ...]:
        """What a connection was made for, so that other values need another one.

        Prefetching is part of it: a connection that has copied ahead holds locked memory, over which a loop's own
        `.to(device, non_blocking=True)` would read a slot after it was given back.
        """
        part = None if self.part is None else self.part.words
        ahead = self.prefetch_to_device > 0
        return (
            self.on_lag,
            self.shared_device,
            self.rank,
            self.world_size,
            self.cut,
            part,
            self.rotation,
            ahead,
            self.inputs,
        )

    @property
    def shared_device(self) -> torch.device | None:
        """The device on which batches are wanted to be shared with others."""
        wanted = self.share_on_device and self.device is not None
        return torch.device(self.device) if wanted and self.device is not None else None


@dataclass(frozen=True)
class Stats:
    """What a consumer has taken so far."""

    batches: int
    """Loader batches."""
    samples: int
    """Samples that the loop has got: its own of those batches."""
    epochs: int
    """Epochs taken to their end."""
    inside_s: float
    """Seconds spent inside epochs: waiting, and in the loop's own code."""
    copied: int
    """Batches that had to be copied: `private`, past the hold, or straddling two loader batches."""
    held: int
    """Slots of the arena that are kept by batches still referenced in this process."""
    waited_s: float
    """Seconds spent waiting for batches, for whatever reason."""
    skipped: int = 0
    """Loader batches that were given up (`on_lag="skip"`)."""
    reconnects: int = 0
    """How often the producer was started again, and this consumer went on."""
    on_device: int = 0
    """Loader batches that were read from memory shared on the device (`share_on_device`)."""


def epoch_length(stream: Welcome, options: Options) -> int:
    """Return a consumer's batches in an epoch.

    Args:
        stream: What the producer says of it.
        options: How the consumer wants its batches.

    Raises:
        TypeError: The loader does not say how many there are.
    """
    length = _epoch_length(stream, options)
    if length is not None:
        return length
    if options.part is not None and stream.indexed is not None:
        raise TypeError(
            f"The number of samples per epoch is unknown, because an epoch of {stream.name!r} does not "
            "have each sample exactly once (its sampler repeats or leaves out samples, or "
            "drop_last=True does). So this subset has no len(). Iterate over it: it ends with the "
            "epoch."
        )
    raise TypeError(
        f"The loader of {stream.name!r} does not say how many samples an epoch has, so this consumer "
        "has no len(). Iterate over it: it ends with the epoch."
    )


def epoch_samples(stream: Welcome, options: Options) -> int:
    """Return the samples that a consumer gets in an epoch; of a rank, its own.

    Args:
        stream: What the producer says of it.
        options: How the consumer wants its batches.

    Raises:
        TypeError: The loader does not say how many there are.
    """
    samples = _epoch_samples(stream, options)
    if samples is None:
        raise TypeError(f"The loader of {stream.name!r} does not say how many samples an epoch has.")
    return -(-samples // options.world_size) if options.sharded else samples


def _epoch_samples(stream: Welcome, options: Options) -> int | None:
    if options.part is None:
        return stream.epoch_samples
    once = stream.each_once and stream.indexed is not None
    return options.part.count(stream.indexed) if once and stream.indexed is not None else None


def _epoch_length(stream: Welcome, options: Options) -> int | None:
    own, samples = options.stream_batch_size, _epoch_samples(stream, options)
    if options.part is not None:
        own = own or stream.batch_size
    if own is None and not (options.drop_last and samples is not None):
        return stream.epoch_batches
    if samples is None:
        return None
    size = own or stream.batch_size or 1
    return samples // size if options.drop_last else -(-samples // size)


def batches_left(stream: Welcome, options: Options, loop: Loop) -> int | None:
    """Return how many batches a loop has yet to be given.

    Args:
        stream: What the producer says of it.
        options: How the consumer wants its batches.
        loop: The loop.

    Returns:
        The number; None where that is not known.
    """
    if stream.grows:
        return None  # the length that was told last may be that of a later epoch
    length, place = _epoch_length(stream, options), loop.place
    if length is None or not place.begun:
        return None
    if options.part is None and options.stream_batch_size is None and not options.drop_last:
        return length - place.batch  # one that skips is given fewer
    return length - loop.given if loop.whole and options.on_lag == "wait" else None


def full_batch_size(stream: Welcome, options: Options) -> int | None:
    """Return the samples in a consumer's full batch, where known; for a rank those in the largest part of one.

    Args:
        stream: What the producer says of it.
        options: How the consumer wants its batches.
    """
    rows = options.stream_batch_size or stream.batch_size
    return -(-rows // options.world_size) if rows and options.sharded else rows


def require_fit(stream: Welcome, options: Options) -> None:
    """Refuse what this stream cannot give: a part of its samples, or full batches of a size that nobody knows.

    Args:
        stream: What the producer says of it.
        options: How the consumer wants its batches.

    Raises:
        JoinRefused: Its batches cannot tell which samples they hold, or do not hold the inputs.
        ValueError: The dataset does not have these samples; or nothing says how large batches should be.
    """
    if options.inputs and not stream.inputs:
        raise JoinRefused(
            f"inputs=True does not work on stream {stream.name!r}, whose batches do not hold the inputs beside the "
            "features. Serve it with then= and inputs=True (--inputs on a command line)."
        )
    unsized = options.stream_batch_size is None and stream.batch_size is None
    if options.drop_last and unsized:
        raise ValueError(
            f"drop_last=True needs a batch size, and the loader of {stream.name!r} has none. Pass "
            "batch_size= as well, or leave drop_last= out."
        )
    if options.part is None:
        return
    if stream.indexed is None:
        why = stream.unindexed or "its process does not say which samples a batch holds"
        raise JoinRefused(f"subset= and fold= do not work on stream {stream.name!r}: {why}.")
    options.part.mask(stream.indexed)
    if unsized:
        raise ValueError(
            f"The loader of {stream.name!r} has no batch size, and a subset of its samples needs one. "
            "Pass batch_size= with subset= or fold=."
        )


def incomplete(options: Options, group: str, stream: str, waited_s: float) -> str:
    """Return what to tell a rank that has waited long for an epoch.

    Args:
        options: The rank's.
        group: The group's name.
        stream: The producer's name.
        waited_s: For how long.
    """
    return (
        f"Rank {options.rank} of group {group!r} has waited {waited_s:.0f} s for an epoch. An epoch "
        f"starts when all {options.world_size} ranks have attached with that name and iterate, and "
        "none is still in the previous epoch. If other trials have passed the late-join window of an "
        "epoch, the group starts with the next one. See what each rank does with `tsnb status "
        f"{stream}`."
    )


def require_rank(options: Options, name: str) -> None:
    """Refuse to give accelerate a loader that it would divide between processes: it has no batch size to do so.

    Args:
        options: The consumer's.
        name: Its name.

    Raises:
        TsnbError: Accelerate runs several processes, and the consumer is no rank.
    """
    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    processes = getattr(state, "_shared_state", {}).get("num_processes") or 1
    if processes > 1 and options.world_size == 1:
        raise TsnbError(
            f"Accelerate runs {processes} processes, and cannot divide the batches of {name!r} between "
            "them. Attach in each process with rank=accelerator.process_index and "
            f"world_size={processes}. The stream then divides the batches."
        )


def ranks_hint() -> str:
    """Return how the ranks of a distributed job attach, if this process was started as one; else nothing."""
    ranks = os.environ.get("WORLD_SIZE", "")
    if not (ranks.isdecimal() and int(ranks) > 1):
        return ""
    return (
        f"This process is one of {ranks} ranks (WORLD_SIZE). To let them share the batches, attach "
        'each with the same name, rank=int(os.environ["RANK"]) and '
        'world_size=int(os.environ["WORLD_SIZE"]).'
    )
