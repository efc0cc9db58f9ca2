"""Another batch size than the loader's: views inside a slot, one copy where a batch straddles two.

The rest of a loader batch that does not fill the user's is copied into warm scratch at once, so that its slot goes
back without waiting for the next batch. Where a consumer takes a part of the samples,
its rows are gathered there too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tsnb.errors import BatchNotShareable
from tsnb.stream.consumer.batches.parts import own_rows
from tsnb.stream.consumer.batches.unpacking import Delivered
from tsnb.stream.memory.arena import aligned
from tsnb.stream.memory.scratch import ScratchPool

__all__ = ["DRAWN_BYTES", "Rebatcher", "chosen", "cut", "part", "share"]


Rows = npt.NDArray[np.int64]
DRAWN_BYTES = 4
"""Of what a batch tells of a row, in `Delivered.drawn` and in `Delivered.weights`."""
AT_ONCE_BYTES = 1 << 30
"""Room for a batch that is made at once. It doubles for a larger one, as its samples come: an epoch may have fewer."""


class Rebatcher:
    """Cuts and joins loader batches into batches of `batch_size` samples, in order, losing none.

    Args:
        batch_size: Samples in each batch that comes out.
        scratch: Where batches that straddle two are put together.
    """

    def __init__(self, batch_size: int, scratch: ScratchPool) -> None:
        self._batch_size = batch_size
        self._scratch = scratch
        self._joint: Delivered | None = None  # being put together; the first `_filled` rows are there
        self._filled = 0
        self._room = 0  # rows for which it has room
        self.copied = 0
        """Batches put together from parts so far."""

    def feed(self, delivered: Delivered, own: Rows | None = None) -> Iterator[Delivered]:
        """Take the next loader batch; give every batch that is complete with it.

        Args:
            delivered: The loader batch.
            own: The rows of it that are wanted, in order; None: all of them.

        Raises:
            BatchNotShareable: It cannot be cut, or does not fit to the one before.
        """
        rows = delivered.require_rows(
            f"batch_size={self._batch_size}", "Leave batch_size out to take the loader's own batches"
        )
        start = 0
        if own is not None and len(own) == rows:
            own = None
        elif own is not None:
            rows = len(own)
        while start < rows:
            if own is None and self._joint is None and rows - start >= self._batch_size:
                stop = start + self._batch_size
                yield cut(delivered, start, stop)
            else:
                stop = min(rows, start + self._batch_size - self._filled)
                self._join(delivered, slice(start, stop) if own is None else own[start:stop], stop - start)
                if self._filled == self._batch_size and self._joint is not None:
                    whole, self._joint, self._filled = self._joint, None, 0
                    yield whole
            start = stop

    def rest(self) -> Delivered | None:
        """Return the rest at the epoch's end: fewer than `batch_size` samples, or nothing."""
        joint, filled = self._joint, self._filled
        self._joint, self._filled = None, 0
        return None if joint is None else cut(joint, 0, filled)

    def _join(self, part: Delivered, taken: slice | Rows, rows: int) -> None:
        if self._joint is None:
            self._joint = self._empty_like(part, self._first_room(part, rows))
            self.copied += 1
        if self._joint.layout.spec != part.layout.spec:
            raise self._misfit("their structure differs")
        while self._filled + rows > self._room:
            self._joint = self._grown(self._joint)
        joint = self._joint
        told = bool(part.drawn) and len(joint.drawn) == DRAWN_BYTES * self._filled
        for index, (into, leaf) in enumerate(zip(joint.leaves, part.leaves, strict=True)):
            if isinstance(leaf, list):
                into.extend(leaf[taken] if isinstance(taken, slice) else [leaf[row] for row in taken])
                continue
            if into.shape[1:] != leaf.shape[1:] or into.dtype != leaf.dtype:
                raise self._misfit(
                    f"part {index} changes from {tuple(into.shape[1:])} to {tuple(leaf.shape[1:])}"
                )
            room = into[self._filled : self._filled + rows]
            if not isinstance(leaf, torch.Tensor):
                room[...] = leaf[taken]
            elif isinstance(taken, slice):
                room.copy_(leaf[taken])
            else:
                _gather(leaf, taken, room)
        joint.drawn = joint.drawn + _column(part.drawn, taken) if told else b""
        joint.weights = joint.weights + _column(part.weights, taken) if told else b""
        self._filled += rows

    def _first_room(self, part: Delivered, rows: int) -> int:
        """Return for how many rows to make room before a first part of so many."""
        row_bytes = sum(_row_bytes(leaf) for leaf in part.leaves if not isinstance(leaf, list))
        return min(self._batch_size, max(rows, AT_ONCE_BYTES // max(1, row_bytes)))

    def _empty_like(self, part: Delivered, rows: int) -> Delivered:
        """Return room for so many rows of the user's batch, in one block of scratch.

        Raises:
            BatchNotShareable: There is no memory for them.
        """
        sizes = [0 if isinstance(x, list) else _row_bytes(x) * rows for x in part.leaves]
        padded = [aligned(size) for size in sizes]
        try:
            block, _ = self._scratch.take(max(1, sum(padded)))
        except (OSError, OverflowError):
            raise BatchNotShareable(
                f"batch_size={self._batch_size} needs {sum(sizes):,} bytes for {rows:,} samples, and there is no "
                "memory for them. Use a smaller batch_size."
            ) from None
        leaves: list[Any] = []
        offset = 0
        for leaf, room in zip(part.leaves, padded, strict=True):
            leaves.append([] if isinstance(leaf, list) else _room(block, offset, leaf, rows))
            offset += room
        joint = Delivered(part.layout, leaves, rows, shared=False)
        joint.private = part.private
        self._room = rows
        return joint

    def _grown(self, joint: Delivered) -> Delivered:
        """Return room for up to twice as many rows, with those that are there."""
        grown = self._empty_like(joint, min(self._batch_size, 2 * self._room))
        for into, leaf in zip(grown.leaves, joint.leaves, strict=True):
            if isinstance(leaf, list):
                into.extend(leaf)
            else:
                into[: self._filled] = leaf[: self._filled]
        grown.drawn, grown.weights = joint.drawn, joint.weights
        return grown

    def _misfit(self, why: str) -> BatchNotShareable:
        return BatchNotShareable(
            f"batch_size={self._batch_size} cannot join loader batches: {why}. Leave batch_size out to "
            "take the loader's own batches."
        )


def _gather(leaf: torch.Tensor, rows: Rows, room: torch.Tensor) -> None:
    """Copy some rows."""
    try:
        torch.index_select(leaf, 0, torch.from_numpy(rows), out=room)
    except (RuntimeError, NotImplementedError):  # a dtype for which torch has no such kernel
        for into, row in enumerate(rows.tolist()):
            room[into].copy_(leaf[row])


def chosen(delivered: Delivered, mask: npt.NDArray[np.bool_]) -> Rows:
    """Return the rows of a loader batch that belong to a part of the samples.

    Args:
        delivered: The batch, with the indices of its samples.
        mask: As `parts.Part.mask`.

    Raises:
        BatchNotShareable: It does not tell which samples its rows are.
    """
    if not delivered.leaves and not delivered.drawn:
        return np.empty(0, np.int64)  # nobody takes any of its samples, so they were not prepared
    rows = delivered.require_rows("subset= or fold=", "Leave it out to take the loader's own batches")
    drawn = np.frombuffer(delivered.drawn, "<u4")
    if len(drawn) != rows or (rows and int(drawn.max()) >= len(mask)):
        count = f"{len(drawn)} samples" if delivered.drawn else "samples whose index is unknown"
        raise BatchNotShareable(
            f"subset= and fold= need one row per sample, and loader batch {delivered.seq} has {rows} "
            f"rows for {count}. Return one row per sample from the collate_fn, in their order, let the "
            "sampler return integers, and use batches of at most 30,000 rows. Or leave subset= and "
            "fold= out."
        )
    return own_rows(mask, drawn)


def cut(delivered: Delivered, start: int, stop: int) -> Delivered:
    """Return some rows of a batch, as views."""
    leaves = [leaf[start:stop] for leaf in delivered.leaves]
    rows = Delivered(delivered.layout, leaves, stop - start, shared=delivered.shared)
    rows.memory, rows.private = delivered.memory, delivered.private
    rows.drawn = _column(delivered.drawn, slice(start, stop))
    rows.weights = _column(delivered.weights, slice(start, stop))
    return rows


def _column(told: bytes, taken: slice | Rows) -> bytes:
    """Return what is told of some rows, `DRAWN_BYTES` each; nothing where nothing is."""
    if isinstance(taken, slice):
        return told[DRAWN_BYTES * taken.start : DRAWN_BYTES * taken.stop]
    return np.frombuffer(told, "<u4")[taken].tobytes() if told else b""


def _row_bytes(leaf: Any) -> int:
    return int(math.prod(leaf.shape[1:]) * leaf.itemsize)


def _room(block: Any, offset: int, like: Any, rows: int) -> Any:
    """Return an array of so many rows, without gaps, its dimensions in the order in which those of `like` lie."""
    shape = (rows, *like.shape[1:])
    count = rows * (_row_bytes(like) // like.itemsize)
    if isinstance(like, torch.Tensor):
        if not count:
            return torch.empty(shape, dtype=like.dtype)
        flat = torch.frombuffer(block, dtype=like.dtype, count=count, offset=offset)
        if like.is_contiguous():
            return flat.view(shape)
        return flat.as_strided(shape, _without_gaps(shape, like.stride(), 1))
    if not count:
        return np.empty(shape, like.dtype)
    strides = None if like.flags.c_contiguous else _without_gaps(shape, like.strides, like.itemsize)
    return np.ndarray(shape, like.dtype, block, offset, strides)


def _without_gaps(shape: tuple[int, ...], strides: tuple[int, ...], unit: int) -> tuple[int, ...]:
    """Return strides without gaps or overlaps, for the dimensions in the order in which others lie."""
    made = [0] * len(shape)
    for axis in sorted(range(len(shape)), key=lambda axis: (abs(strides[axis]), -axis)):
        made[axis], unit = unit, unit * shape[axis]
    return tuple(made)


def share(rows: int, rank: int, world_size: int) -> slice:
    """Return which rows of a batch are a rank's: of n those from r*n//w to (r+1)*n//w for rank r of w.

    Where the batch has fewer rows than there are ranks, those without a row get one that another has too: every rank
    must have something to compute on, or the others would wait for it.

    Args:
        rows: Of the batch.
        rank: 0 to world_size - 1.
        world_size: Ranks that share the batch.
    """
    start, stop = rank * rows // world_size, (rank + 1) * rows // world_size
    return slice(start, max(stop, min(start + 1, rows)))


def part(whole: Delivered, rank: int, world_size: int) -> Delivered:
    """Return a rank's own rows of a batch, as views: its `share`.

    Args:
        whole: The batch for all ranks.
        rank: 0 to world_size - 1.
        world_size: Ranks that share the batch.

    Raises:
        BatchNotShareable: Its parts have no common first dimension.
    """
    rows = whole.require_rows(
        f"rank={rank}, world_size={world_size}", "Pass shard=False to give the whole batch to all ranks"
    )
    its = share(rows, rank, world_size)
    own = cut(whole, its.start, its.stop)
    own.seq, own.rows = whole.seq, whole.rows
    return own
