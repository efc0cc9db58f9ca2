"""What entered which epoch of a stream where: kept on disk, so that every epoch can be given again, by a successor too.

A file of int64 in rows of six, after a head of one row: magic, seed, and what the file's name says (`name_of`). It is
only appended to, but for one number: each epoch's *mark*, the batches that have been ordered of it so far. It is raised
in the memory map before they are ordered, and new samples only ever enter at the mark or after. So a producer that is
killed at any moment has a successor that orders the same batches again, up to the mark, before it lets anything enter.

    epoch begins     BEGUN, epoch, mark, samples of the data set, 0, 0
    round begins     BEGUN, epoch, mark, samples of the data set, the first of them that it has, seconds since 1970
                     the first is -1: those of a file of its own (`keep_selected`)
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
from tsnb.growing.inclusion import Selected
from tsnb.growing.index import kept_in
from tsnb.growing.order import Arrivals
from tsnb.private.files import open_private, read_private, write_private

__all__ = ["GrowthLog"]

MAGIC = 0x31676F6C6E7367
ROW = 6
ROW_BYTES = 8 * ROW
BEGUN, ENTERED = 1, 2
OVER = 1 << 60
"""The mark of an epoch that has come to its end: nothing enters any more."""
BY_FILE = -1
"""In place of a round's first sample."""
KEPT = 100
"""Rounds whose samples are kept in files: 12 bytes a sample."""
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
        next_epoch: The number of the first epoch that has not begun.
        given: How many of the data set's samples have been in an epoch, or could have been: those found since are new.

    Raises:
        TsnbError: It cannot be written, or another producer writes it.
    """

    def __init__(self, directory: str, name: str, facts: str, seed: int | None) -> None:
        digest = hashlib.blake2b(f"{name} {facts} {seed}".encode(), digest_size=6).hexdigest()
        self._path = Path(directory, f"{name}-{digest}.log")
        self._rounds = self._path.with_suffix(".rounds")
        self.identity = digest
        try:
            self._file = open_private(self._path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise TsnbError(
                f"The log of new samples of {name!r} cannot be stored in {directory} "
                f"({error.strerror or error}). Pass a writable index= to tsnb.data.grow."
            ) from None
        try:
            self._lock(name)
            if os.fstat(self._file).st_size < ROW_BYTES:
                drawn = int.from_bytes(os.urandom(7), "little") if seed is None else seed
                with kept_in(self._path):
                    os.ftruncate(self._file, 0)
                    os.pwrite(self._file, np.array([MAGIC, drawn, 0, 0, 0, 0], "<i8").tobytes(), 0)
        except BaseException:
            os.close(self._file)
            raise
        self._map = self._mapped()
        self.seed = int(self._map[0, 1])
        self._begun: dict[int, int] = {}  # epoch -> its row
        self._entered: dict[int, list[Arrivals]] = {}  # of the epoch begun last, and those asked for since
        self.next_epoch = 0
        self.given = 0
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
                        f"Another stream writes the log of {name!r} ({self._path}). Stop that stream, "
                        "or serve under another name."
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
                self._entered = {epoch: []}  # a stream of weeks has more of them than memory should hold
                self.next_epoch = max(self.next_epoch, epoch + 1)
                self.given = max(self.given, start)
            elif kind == ENTERED and epoch in self._begun:
                if epoch in self._entered:
                    self._entered[epoch].append(Arrivals(place, start, count))
                self.given = max(self.given, start + count)

    def _append(self, *numbers: int) -> None:
        known = len(self._map)
        row = np.array(numbers, "<i8").tobytes()
        with kept_in(self._path):
            written = 0
            while written < len(row):  # what has no room for all of it says why at the second try
                written += os.pwrite(self._file, row[written:], known * ROW_BYTES + written)
            self._map = self._mapped()
        self._read(known)

    def close(self) -> None:
        """Let another producer write it."""
        os.close(self._file)

    def begin(self, epoch: int, samples: int, first: int | None = None) -> None:
        """Note that an epoch begins, if it has not begun before.

        Args:
            epoch: Its number.
            samples: Those of the data set now.
            first: The first of them that a round has; None: it is not a round.

        Raises:
            TsnbError: A full disk.
        """
        if epoch not in self._begun:
            self._append(BEGUN, epoch, 0, samples, first or 0, int(time.time()) if first is not None else 0)

    def keep_selected(self, epoch: int, selected: Selected) -> None:
        """Keep which samples a round has, before it begins: in a file beside, whole or not there.

        Args:
            epoch: Its number.
            selected: Which, and their weights.

        Raises:
            TsnbError: A full disk.
        """
        path = self._file_of(epoch)
        text = selected.samples.astype("<i8").tobytes() + selected.weights.astype("<f4").tobytes()
        with kept_in(path):
            write_private(path, text)
            self._file_of(epoch - KEPT).unlink(missing_ok=True)

    def selected(self, epoch: int) -> Selected | None:
        """Return which samples a round has that was kept so; None where it was not.

        Raises:
            TsnbError: The file has gone, or is damaged.
        """
        if self.first(epoch) != BY_FILE:
            return None
        path = self._file_of(epoch)
        try:
            text = read_private(path)
        except FileNotFoundError:
            raise TsnbError(
                f"The samples of round {epoch + 1} are no longer stored ({path}): tsnb keeps the last "
                f"{KEPT} rounds. Start with a whole epoch."
            ) from None
        count, odd = divmod(len(text), 12)
        samples = np.frombuffer(text, "<i8", count).astype(np.int64)
        if odd or not count or samples.min() < 0 or samples.max() >= self.samples(epoch):
            raise TsnbError(f"{path} is damaged. Start with a whole epoch.")
        return Selected(samples, np.frombuffer(text, "<f4", count, 8 * count).astype(np.float32))

    def _file_of(self, epoch: int) -> Path:
        return self._path.with_suffix(f".{epoch}.round")

    def begun(self, epoch: int) -> bool:
        """Whether an epoch has begun, under this producer or one before."""
        return epoch in self._begun

    def is_round(self, epoch: int) -> bool:
        """Whether an epoch has selected samples, and no others enter."""
        return bool(self._map[self._begun[epoch], 5])

    def first(self, epoch: int) -> int:
        """Return the first of the samples that an epoch began with."""
        return int(self._map[self._begun[epoch], 4])

    @property
    def losses(self) -> Path:
        """Where the losses that trials report are kept."""
        return self._path.with_suffix(".losses")

    @property
    def age_s(self) -> float:
        """Seconds since the last round was chosen, by the system's clock; 0 where the last epoch was not a round."""
        last = self._begun.get(self.next_epoch - 1)
        chosen = int(self._map[last, 5]) if last is not None else 0
        return max(0.0, time.time() - chosen) if chosen else 0.0

    @property
    def rounds(self) -> str:
        """What the last producer was told about rounds; empty: nothing."""
        try:
            return read_private(self._rounds).decode(errors="replace")
        except FileNotFoundError:
            return ""

    @rounds.setter
    def rounds(self, text: str) -> None:
        with kept_in(self._rounds):
            write_private(self._rounds, text)

    def samples(self, epoch: int) -> int:
        """Return the samples of the data set when an epoch began."""
        return int(self._map[self._begun[epoch], 3])

    def entries(self, epoch: int) -> list[Arrivals]:
        """Return what has entered an epoch, in order."""
        if epoch not in self._entered:
            rows = self._map[self._begun[epoch] :]
            rows = rows[(rows[:, 0] == ENTERED) & (rows[:, 1] == epoch), 2:5]
            self._entered[epoch] = [Arrivals(*row) for row in rows.tolist()]
        return list(self._entered[epoch])

    def enter(self, epoch: int, entry: Arrivals) -> None:
        """Note that samples enter, before they do.

        Raises:
            TsnbError: A full disk.
        """
        self._append(ENTERED, epoch, entry.place, entry.first, entry.size, 0)

    def mark(self, epoch: int) -> int:
        """Return how many batches of an epoch have been ordered; more than any epoch has where it is over."""
        return int(self._map[self._begun[epoch], 2])

    def raise_mark(self, epoch: int, batches: int) -> None:
        """Note, before they are ordered, that so many batches of an epoch are."""
        row = self._begun[epoch]
        self._map[row, 2] = max(batches, int(self._map[row, 2]))
