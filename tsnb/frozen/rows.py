"""Batches as rows of bytes, and back: what is kept of a frozen part's results, by sample.

    row     =  the sample's part of each array of the batch, one after the other, each at a 64-byte boundary
    form    =  the batch's tree; of each array its kind, dtype and shape without the first dimension

All rows of a stream have one form, so a row is as long as any other, and its place follows from its number. The form
lies behind the last sample's row, as a row of its own. No allocation and no lock is needed for a row, as in
`caching.memory`, whose states say which rows are there.

A batch of which all rows are kept is put together from them. Of any other batch only the missing samples go through
the loader's `collate_fn` and the frozen part.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from tsnb.caching.memory import CHOSEN, OFF, UNSEEN, WHOLE, WRITTEN, SampleMemory
from tsnb.stream.loader.leaves import DTYPE_WORDS, classify
from tsnb.stream.protocol.tree import flatten, unflatten
from tsnb.text.printable import one_line

__all__ = ["FORM_BYTES", "FeatureRow", "FeatureRows", "Unkeepable"]

FORM_BYTES = 1 << 16
"""Room for the form: a batch of hundreds of arrays."""
_ALIGN = 64
_DTYPES = {word: dtype for dtype, word in DTYPE_WORDS.items()}


class Unkeepable(Exception):
    """A batch cannot be kept by sample; says why, as a sentence about it goes on."""


class FeatureRow(NamedTuple):
    """A sample on its way to the batch: prepared, or what was kept of it."""

    number: int
    sample: Any
    record: np.ndarray[Any, Any] | None
    """uint8 [bytes]; None: the sample was prepared."""
    kept: FeatureRows
    """Where its row is kept."""


class Column(NamedTuple):
    """One array of a batch."""

    kind: str
    """`tensor` or `numpy`."""
    dtype: str
    shape: tuple[int, ...]
    """Without the first dimension."""
    offset: int
    """Bytes from the row's start."""
    size: int
    """Bytes in a row."""


class Form(NamedTuple):
    """What all batches of a stream have in common."""

    spec: Any
    columns: tuple[Column, ...]
    size: int
    """Bytes of a row."""
    tied: bool = False
    """Whether the rows are of use to their own stream alone: they come from weights for which no key stands."""

    def encode(self) -> bytes:
        """Return it as bytes; equal forms give equal ones."""
        return json.dumps([*self], separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Form:
        """Read what `encode` wrote: a worker of the same producer."""
        spec, columns, size, tied = json.loads(data)
        return cls(spec, tuple(Column(k, d, tuple(s), o, n) for k, d, s, o, n in columns), size, tied)


def split(batch: Any, count: int) -> tuple[Form, np.ndarray[Any, Any]]:
    """Take a batch apart into rows.

    Args:
        batch: What the frozen part made.
        count: Its samples.

    Returns:
        Its form, and uint8 [count, form.size].

    Raises:
        Unkeepable: It is more than arrays with one row per sample.
    """
    leaves, spec = flatten(batch, classify)
    columns, parts, place = [], [], 0
    for leaf in leaves:
        kind, word, plain = _plain(leaf, count)
        size = plain.shape[1]
        columns.append(Column(kind, word, tuple(leaf.shape[1:]), place, size))
        parts.append(plain)
        place += -(-size // _ALIGN) * _ALIGN
    form = Form(json.loads(json.dumps(spec)), tuple(columns), max(place, _ALIGN))
    rows = np.zeros((count, form.size), np.uint8)
    for column, part in zip(columns, parts, strict=True):
        rows[:, column.offset : column.offset + column.size] = part
    return form, rows


def _plain(leaf: Any, count: int) -> tuple[str, str, np.ndarray[Any, Any]]:
    """Return an array's kind, its dtype in a word, and its bytes: uint8 [count, bytes in a row]."""
    if not isinstance(leaf, (torch.Tensor, np.ndarray)):
        raise Unkeepable(f"holds a {type(leaf).__name__}, and only arrays with one row per sample are kept")
    if not leaf.ndim or leaf.shape[0] != count:
        raise Unkeepable(f"has an array of shape {tuple(leaf.shape)} for {count} samples")
    if isinstance(leaf, torch.Tensor):
        plain = leaf.detach().resolve_conj().resolve_neg().contiguous().reshape(count, -1)
        found = plain.view(torch.uint8).numpy() if plain.numel() else np.empty((count, 0), np.uint8)
        return "tensor", DTYPE_WORDS[leaf.dtype], found
    if leaf.dtype.hasobject or leaf.dtype.names is not None:
        raise Unkeepable(f"has an array of dtype {leaf.dtype}")
    rows = np.ascontiguousarray(leaf).reshape(count, -1)
    return "numpy", leaf.dtype.str, rows.view(np.uint8) if rows.size else np.empty((count, 0), np.uint8)


def joined(form: Form, rows: np.ndarray[Any, Any]) -> Any:
    """Return the batch of these rows, uint8 [samples, form.size]."""
    return unflatten(form.spec, iter([_array(column, rows) for column in form.columns]))


def _array(column: Column, rows: np.ndarray[Any, Any]) -> Any:
    count = len(rows)
    shape = (count, *column.shape)
    flat = np.ascontiguousarray(rows[:, column.offset : column.offset + column.size])
    if column.kind == "numpy":
        return flat.view(column.dtype).reshape(shape) if flat.size else np.empty(shape, column.dtype)
    dtype = _DTYPES[column.dtype]
    return torch.from_numpy(flat).view(dtype).reshape(shape) if flat.size else torch.empty(shape, dtype=dtype)


def _stacked(records: list[Any]) -> np.ndarray[Any, Any]:
    return np.stack(records)


class FeatureRows:
    """The rows of a stream in the memory that all its workers share.

    Args:
        memory: Fit for one sample more than the data set has: the form is its last.
    """

    def __init__(self, memory: SampleMemory) -> None:
        self._memory = memory
        self._form: Form | None = None

    @property
    def samples(self) -> int:
        """In the data set."""
        return self._memory.samples - 1

    @property
    def tied(self) -> bool:
        """Whether the rows that there are belong to the stream that has stored them."""
        return self._memory.states[self.samples] == WRITTEN and self._known().tied

    def room_for(self, size: int) -> int:
        """Return the bytes that all samples would take, as far as there is room; for rows of this size."""
        return min(self._memory.room_bytes, FORM_BYTES + size * self.samples)

    def take(self, number: int) -> np.ndarray[Any, Any] | None:
        """Return a sample's row, uint8 [bytes]; None where it is not kept."""
        return self._memory.read(number)

    def batch(
        self, rows: list[FeatureRow], computed: Callable[[list[Any]], Any], tied: Callable[[], bool]
    ) -> Any:
        """Return the batch of some samples, from their rows where those are kept.

        Args:
            rows: The samples.
            computed: Makes a batch of prepared samples.
            tied: Whether they are of use to this stream alone; asked once they are computed.

        Raises:
            Unkeepable: Only some rows are kept, and the others have another form.
        """
        missing = [row for row in rows if row.record is None]
        if not missing:
            return joined(self._known(), _stacked([row.record for row in rows]))
        made = computed([row.sample for row in missing])
        try:
            form, records = split(made, len(missing))
            self._keep(form, missing, records, tied)
        except Unkeepable as why:
            self.give_up(f"the batch {why}")
            if len(missing) == len(rows):
                return made
            raise
        if len(missing) == len(rows):
            return made
        at = iter(records)
        return joined(form, _stacked([next(at) if row.record is None else row.record for row in rows]))

    def _known(self) -> Form:
        if self._form is None:
            told = self._memory.read(self.samples)
            assert told is not None  # it was written before the first row
            self._form = Form.decode(told.tobytes().rstrip(b" "))
        return self._form

    def _keep(
        self, form: Form, rows: list[FeatureRow], records: np.ndarray[Any, Any], tied: Callable[[], bool]
    ) -> None:
        memory = self._memory
        if memory.phase == OFF:
            return
        if memory.states[self.samples] != WRITTEN:
            text = form._replace(tied=tied()).encode()
            if len(text) > FORM_BYTES:
                raise Unkeepable("has too many arrays")
            self._write(self.samples, 0, text.ljust(FORM_BYTES))
        if form != self._known()._replace(tied=False):
            raise Unkeepable(
                "has rows of another form than the batches before it (texts of several lengths, say)"
            )
        end = memory.used_bytes or memory.room_bytes
        for row, record in zip(rows, records, strict=True):
            place = FORM_BYTES + row.number * form.size
            if memory.states[row.number] == UNSEEN and place + form.size <= end:
                self._write(row.number, place, record.tobytes())

    def _write(self, number: int, place: int, record: bytes) -> None:
        memory = self._memory
        memory.offsets[number], memory.sizes[number], memory.forms[number] = place, len(record), WHOLE
        memory.states[number] = CHOSEN
        memory.write(number, record)

    def give_up(self, why: str) -> None:
        """Keep nothing from now on."""
        if self._memory.phase != OFF:
            self._memory.why = one_line(why, 400)
            self._memory.phase = OFF
