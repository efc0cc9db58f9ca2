"""What entered which epoch of a stream where: kept on disk, so that every epoch can be given again, by a successor too.

A file of int64 in rows of six, after a head of one row: magic, seed, and what the file's name says (`name_of`). It is
only appended to, but for one number: each epoch's *mark*, the batches that have been ordered of it so far. It is raised
in the memory map before they are ordered, and new samples only ever enter at the mark or after. So a producer that is
killed at any moment has a successor that orders the same batches again, up to the mark, before it lets anything enter.

    epoch begins     BEGUN, epoch, mark, samples of the data set, 0, 0
    samples enter    ENTERED, epoch, place, first, count, 0
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tsnb.errors import TsnbError
from tsnb.samples.growth_order import Arrivals

__all__ = ["GrowthLog"]

MAGIC = 0x31676F6C6E7367
ROW = 6
ROW_BYTES = 8 * ROW
BEGUN, ENTERED = 1, 2
OVER = 1 << 60
"""The mark of an epoch that has come to its end: nothing enters any more."""
LOCK_S = 10.0
"""How long to wait for a producer that is just ending."""


class GrowthLog:
    """The log of one stream, for the one producer that serves it.

    Args:
        directory: Where the data set's index lies.
        name: The stream's.
        facts: What decides about the order besides: batch size, shuffling. Other facts have a log of their own.
        seed: The stream's; None: one is drawn, and kept.

    Attributes:
        seed: The stream's.
        identity: Equal for the same log only.

    Raises:
        TsnbError: It cannot be written, or another producer writes it.
    """

    def __init__(self, directory: str, name: str, facts: str, seed: int | None) -> None:
        digest = hashlib.blake2b(f"{name} {facts} {seed}".encode(), digest_size=6).hexdigest()
        self._path = Path(directory, f"{name}-{digest}.log")
        self.identity = digest
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise TsnbError(
                f"the log of what enters the epochs of {name!r} cannot be kept in {directory} "
                f"({error.strerror or error}): give tsnb.grow an index= that you can write to."
            ) from None
        try:
            self._lock(name)
            if os.fstat(self._file).st_size < ROW_BYTES:
                drawn = int.from_bytes(os.urandom(7), "little") if seed is None else seed
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, np.array([MAGIC, drawn, 0, 0, 0, 0], "<i8").tobytes(), 0)
        except BaseException:
            os.close(self._file)
            raise
        self._map = self._mapped()
        self.seed = int(self._map[0, 1])
        self._begun: dict[int, int] = {}  # epoch -> its row
        self._entered: dict[int, list[Arrivals]] = {}
        self._read(1)

    def _lock(self, name: str) -> None:
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                # not flock: the loader's workers, which outlive a killed producer for a moment, would have it too
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() > deadline:
                    raise TsnbError(
                        f"another producer writes the log of {name!r} ({self._path}): stop that one, or serve under "
                        "another name."
                    ) from None
                time.sleep(0.05)
            else:
                return

    def _mapped(self) -> npt.NDArray[np.int64]:
        rows = os.fstat(self._file).st_size // ROW_BYTES
        return np.memmap(self._path, "<i8", "r+", 0, (rows, ROW))

    def _read(self, first: int) -> None:
        for row in range(first, len(self._map)):
            kind, epoch, place, start, count, _ = (int(number) for number in self._map[row])
            if kind == BEGUN:
                self._begun[epoch] = row
                self._entered[epoch] = []
            elif kind == ENTERED and epoch in self._entered:
                self._entered[epoch].append(Arrivals(place, start, count))

    def _append(self, *numbers: int) -> None:
        known = len(self._map)
        row = np.array(numbers, "<i8").tobytes()
        if os.pwrite(self._file, row, known * ROW_BYTES) < len(row):
            raise TsnbError(f"no room for the log {self._path}: free some, then start the stream again.")
        self._map = self._mapped()
        self._read(known)

    def close(self) -> None:
        """Let another producer write it."""
        os.close(self._file)

    @property
    def next_epoch(self) -> int:
        """The number of the first epoch that has not begun."""
        return max(self._begun, default=-1) + 1

    def begin(self, epoch: int, samples: int) -> None:
        """Note that an epoch begins, if it has not begun before.

        Args:
            epoch: Its number.
            samples: Those of the data set now.

        Raises:
            OSError, TsnbError: A full disk.
        """
        if epoch not in self._begun:
            self._append(BEGUN, epoch, 0, samples, 0, 0)

    def samples(self, epoch: int) -> int:
        """Return the samples of the data set when an epoch began."""
        return int(self._map[self._begun[epoch], 3])

    def entries(self, epoch: int) -> list[Arrivals]:
        """Return what has entered an epoch, in order."""
        return list(self._entered[epoch])

    def enter(self, epoch: int, entry: Arrivals) -> None:
        """Note that samples enter, before they do.

        Raises:
            OSError, TsnbError: A full disk.
        """
        self._append(ENTERED, epoch, entry.place, entry.first, entry.size, 0)

    def mark(self, epoch: int) -> int:
        """Return how many batches of an epoch have been ordered; more than any epoch has where it is over."""
        return int(self._map[self._begun[epoch], 2])

    def raise_mark(self, epoch: int, batches: int) -> None:
        """Note, before they are ordered, that so many batches of an epoch are."""
        row = self._begun[epoch]
        self._map[row, 2] = max(batches, int(self._map[row, 2]))
