"""What a consumer tells its user once: that a shared batch was changed in place, that too many are held."""

from __future__ import annotations

import warnings
import weakref
import zlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tsnb.errors import SharedBatchWarning
from tsnb.stream.consumer.batches.unpacking import Delivered
from tsnb.stream.protocol.layout import Layout
from tsnb.stream.protocol.messages import HeldUp
from tsnb.stream.protocol.tree import leaf_paths, users_frame
from tsnb.stream.this_process import this_process

__all__ = ["Notices"]

MAX_CHANGES = 20
"""At most so many changed batches are named with `guard=True`; more would tell the user nothing new."""
MAX_LOOKED_AT = 10_000
"""Elements of the user's containers that are looked at for the one that hoards."""


_begun: set[str] = set()
"""Streams that a consumer of this process has begun an epoch of."""


class Notices:
    """Looks at what the user does with the batches. Each thing is said once in a consumer's life.

    A change in place is seen by torch's own count of a tensor's changes, and by a few words of the batch's memory that
    are compared at the next step (`Layout.samples`); with `guard=True` by checksums of all of it.

    Args:
        name: The consumer's.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._given: list[tuple[int, weakref.ref[torch.Tensor], int]] = []
        self._sampled: tuple[weakref.ref[Any], tuple[bytes, ...]] | None = None
        self._guarded: list[_Guarded] = []
        self._layout: Any = None
        self._written = False
        self._hoarding = False
        self._refused = False
        self._changes = 0

    def rename(self, name: str) -> None:
        """Speak of another consumer from now on: this process is a clone."""
        self._name = name

    def given(self, delivered: Delivered, *, guard: bool = False) -> None:
        """Remember a batch that the user is about to get.

        Args:
            delivered: The batch.
            guard: Whether to take checksums of all of it.
        """
        self._given.clear()
        self._sampled = None
        if guard and delivered.memory is not None:
            self._guard(delivered)
        if self._written or not delivered.shared:
            return
        layout = self._layout = delivered.layout
        for index, leaf in enumerate(delivered.leaves):
            if isinstance(leaf, torch.Tensor) and not leaf.is_inference():
                self._given.append((index, weakref.ref(leaf), leaf._version))
        over = delivered.memory() if delivered.memory is not None else None
        if over is not None and delivered.memory is not None:
            self._sampled = delivered.memory, layout.samples[1].unpack_from(over)

    def look_for_writes(self) -> None:
        """Warn if the batch that was given last has been changed in place since, as far as that can be seen."""
        if self._guarded:
            self._compare()
        for index, ref, version in self._given:
            leaf = ref()
            if leaf is not None and leaf._version != version:
                path = leaf_paths(self._layout.spec)[index]
                self._warn_of_write(
                    f"{path} was modified in place (by a method whose name ends in _, by +=, or by "
                    "x[...] = ...)."
                )
                return
        if self._sampled is None:
            return
        over = self._sampled[0]()  # while the user has it, and no longer
        owners, words = self._layout.samples
        if over is not None and (now := words.unpack_from(over)) != self._sampled[1]:
            changed = next(o for o, a, b in zip(owners, now, self._sampled[1], strict=True) if a != b)
            self._warn_of_write(
                f"{_path(self._layout, changed)} was modified in place while {self._name!r} used it. "
                "Torch did not notice: the write went through x.numpy(), x.data or DLPack, or came "
                "from another trial of the stream."
            )

    def _warn_of_write(self, what: str) -> None:
        self._written = True
        self._given.clear()
        self._sampled = None
        self._warn(
            f"{what} {self._name!r} shares this memory with the stream's other trials, so they see the "
            "change. Write x = x / 255 instead of x /= 255, or attach with private=True to get copies. "
            "This warning is shown once."
        )

    def _guard(self, delivered: Delivered) -> None:
        memory, layout = delivered.memory, delivered.layout
        over = memory() if memory is not None else None
        if memory is not None and over is not None and all(g.memory is not memory for g in self._guarded):
            self._guarded.append(_Guarded(memory, over, layout, delivered.seq, _checksums(layout, over)))

    def _compare(self) -> None:
        """Compare the checksums of all guarded batches; forget those that are no longer referenced."""
        for guarded in self._guarded:
            over, guarded.over = guarded.over or guarded.memory(), None
            if over is None or self._changes >= MAX_CHANGES:
                continue
            sums = _checksums(guarded.layout, over)
            changed = [i for i, (a, b) in enumerate(zip(sums, guarded.sums, strict=True)) if a != b]
            guarded.sums = sums
            if changed:
                self._changes += 1
                paths = ", ".join(_path(guarded.layout, i) for i in changed[:8])
                self._warn(
                    f"Batch {guarded.seq} of the epoch was modified in place while {self._name!r} used "
                    f"it, at {paths}. The cause is this trial's loop or another trial of the stream. "
                    "To find it, attach one trial after the other with private=True. Such copies may "
                    "be modified."
                )
        over = None
        self._guarded = [g for g in self._guarded if g.memory() is not None]

    def look_for_hoarding(self, hold: int, arena: range) -> None:
        """Warn that batches are copied from now on, because so many are held.

        Args:
            hold: Those that one consumer may hold in shared memory.
            arena: The addresses of the shared memory in this process.
        """
        if self._hoarding:
            return
        self._hoarding = True
        keeper = _keeper(arena)
        self._warn(
            f"{self._name!r} keeps more than the {hold} batches that one trial may keep in shared "
            "memory. Further batches are copied into this process, so that other trials do not have to "
            f"wait. {keeper} Keep numbers (loss.item()) or copies of what you need (x[0].clone()), not "
            "batches. This warning is shown once."
        )

    def device_refused(self, why: str) -> None:
        """Warn that batches are not shared on the device."""
        if not self._refused:
            self._refused = True
            self._warn(
                f"{self._name!r} cannot share batches on its device: {why}. Each trial copies its "
                "batches from shared CPU memory to the device instead. To silence this warning, pass "
                "share_on_device=False."
            )

    def lacks_ranks(self, why: str) -> None:
        """Ranks of its group may never come."""
        self._warn(why, RuntimeWarning)

    def drawn_beside(self, stream: str) -> None:
        """Warn that the loader draws from the same generators as the training: both are in this process."""
        self._warn(
            f"The loader of {stream!r} draws random numbers in this process, from the generators that "
            "your training uses, and at other times than a plain loop. Equal seeds therefore do not "
            "give equal numbers. Pass num_workers=1 or more to the DataLoader, or serve it from "
            "another process with `tsnb serve`.",
            RuntimeWarning,
        )

    def held_up(self, told: HeldUp, stream: str, batches: int | None) -> None:
        """Warn that this consumer waits for others to end their epoch. Said at most twice for each wait.

        Args:
            told: By the producer.
            stream: The stream's name.
            batches: Loader batches in an epoch, where known.
        """
        of = f" of {batches}" if batches is not None else ""
        still = ""
        if told.still_s >= told.stall_timeout_s / 2:
            still = (
                f" These trials have requested no batch for {told.still_s:.0f} s. After "
                f"{told.stall_timeout_s:.0f} s (stall_timeout_s), they time out and the next pass starts."
            )
        if this_process.in_turn and not still:
            return  # a sweep has started it when it had its turn, and nobody is to do anything about it
        advice = (
            "To shorten the wait, end the loops you do not need, or serve with a larger late_join=."
            if batches is not None
            else (
                "The loader has no length. If the loader never ends, no other pass starts. Attach with "
                "join='here' to start with the batch that the other trials take now. Or serve finite "
                "epochs, for example tsnb.serve(lambda epoch: itertools.islice(loader, 1000))."
            )
        )
        self._warn(
            f"{self._name!r} waits for the next pass of {stream!r}, because pass {told.epoch + 1} is "
            f"already at batch {told.published}{of}. Trials in that pass: {told.holders}.{still} {advice}",
            RuntimeWarning,
        )

    def begins(self, epoch: int, stream: str, *, anywhere: bool) -> None:
        """Say in a trial's output that its first epoch is not the stream's first: it gets other batches than others.

        One of a sweep, or of a plan, has missed nothing of its own: it begins when it has its turn, and a sweep tells
        which of those that begin together do not have the same batches.

        Args:
            epoch: The one that begins, from 0.
            stream: The stream's name.
            anywhere: Whether any epoch was wanted, not one that this consumer has left before.
        """
        first = stream not in _begun
        _begun.add(stream)
        if first and anywhere and epoch and this_process.name is not None and not this_process.in_turn:
            print(  # noqa: T201 (a trial's own output is where its user looks)
                f"note: {self._name!r} begins with pass {epoch + 1} of {stream!r}: earlier passes went to "
                "other trials.",
                flush=True,
            )

    def begins_within(self, epoch: int, batch: int, stream: str, *, here: bool) -> None:
        """Warn that the epoch that begins is not given from its start.

        Args:
            epoch: Its number.
            batch: The first that is given.
            stream: The stream's name.
            here: Whether this consumer has asked for that.
        """
        why = (
            "as requested with join='here'"
            if here
            else (
                "because the loader has no length and has returned more samples than its dataset has, so "
                "it may never end. To start with the first batch, attach earlier, or serve with "
                "late_join=1"
            )
        )
        self._warn(
            f"{self._name!r} starts with batch {batch} of pass {epoch + 1} of {stream!r}, {why}.",
            RuntimeWarning,
        )

    def given_another(self, saved: int, given: int, stream: str) -> None:
        """Warn if the epoch that begins is not the one at whose start a saved state stands."""
        if given != saved:
            self._warn(
                f"{self._name!r} loaded a state from the start of pass {saved + 1}, but {stream!r} is now "
                f"at pass {given + 1}. The trial gets a whole pass with other batches. For the same batches, "
                "serve the loader again with the same seed=, as a new stream for this trial.",
                RuntimeWarning,
            )

    def _warn(self, text: str, category: type[Warning] = SharedBatchWarning) -> None:
        warnings.warn(text, category, stacklevel=users_frame()[1])


@dataclass
class _Guarded:
    """A batch whose checksums were taken."""

    memory: weakref.ref[Any]
    over: Any
    """The same, kept until the next step: what the loop let go of is looked at once."""
    layout: Layout
    seq: int
    sums: list[int]


def _checksums(layout: Layout, over: Any) -> list[int]:
    memory: Any = np.frombuffer(over, np.uint8)
    return [zlib.crc32(memory[slice(*a.extent)]) for a in layout.arrays]


def _path(layout: Layout, array: int) -> str:
    """Return where an array stands in a batch."""
    paths = zip(leaf_paths(layout.spec), layout.leaf_words, strict=True)
    return [path for path, word in paths if word == "a"][array]


def _keeper(arena: range) -> str:
    """Say which variable of the user's loop keeps batches, where one does."""
    frame, _ = users_frame()
    if frame is None:
        return ""
    places = [frame.f_locals] if frame.f_locals is frame.f_globals else [frame.f_locals, frame.f_globals]
    for variables in places:
        for name, value in list(variables.items()):
            if not name.startswith("_") and isinstance(value, (list, tuple, dict, deque, set)):
                kept = sum(_keeps(x, arena) for x in _elements(value))
                if kept > 1:
                    where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                    return f"The variable {name!r} (a {type(value).__name__}, at {where}) keeps them."
    return "The cause may be a list of batches, or of losses that still have their graph."


def _keeps(value: Any, arena: range) -> bool:
    if isinstance(value, torch.Tensor):
        inside = value.device.type == "cpu" and value.numel() > 0 and value.data_ptr() in arena
        return inside or value.grad_fn is not None
    return hasattr(value, "__array_interface__") and value.__array_interface__["data"][0] in arena


def _elements(value: Any) -> Iterable[Any]:
    """Yield what containers hold, those inside them too, as far as is reasonable."""
    waiting, seen = [value], 0
    while waiting and seen < MAX_LOOKED_AT:
        item = waiting.pop()
        seen += 1
        if isinstance(item, Mapping):
            waiting.extend(list(item.values())[:MAX_LOOKED_AT])
        elif isinstance(item, (list, tuple, deque, set)):
            waiting.extend(list(item)[:MAX_LOOKED_AT])
        else:
            yield item
