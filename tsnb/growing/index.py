"""The index of a data set that grows: which samples there are, in the order in which they were found. Append-only.

A directory with two files, made by the first who opens it:

    samples   32 bytes: b"tsnbgrw1", an identity of 16 bytes, 8 bytes of nothing; then for each sample three int64:
              offset, length, bytes. In `keys` (a file or a listing's key), or in the growing file itself (a line).
    keys      the keys, one after the other

One process writes at a time (a lock on `samples`), any number read, from a memory map. A sample's key is written before
its record, and a record counts once all of its bytes are there: so a writer that is killed at any moment leaves an
index that is whole, and the next writer goes on after the last whole record. Offsets are looked up by position:
less than a microsecond where a sample takes milliseconds to decode, so a learned index has nothing to gain.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tsnb.config import way_out
from tsnb.errors import TsnbError
from tsnb.private.directories import Unsafe, make_private
from tsnb.private.files import open_private

__all__ = ["GrowthIndex", "SampleRecord", "kept_in"]

MAGIC = b"tsnbgrw1"
HEAD_BYTES = 32
RECORD_BYTES = 24
_ELSEWHERE = "pass another index= to tsnb.data.grow, on a writable disk with free space"


@contextlib.contextmanager
def kept_in(path: Path) -> Iterator[None]:
    """Within it an error of the system is told with a file of an index, and the way out.

    Raises:
        TsnbError: The disk is full, say.
    """
    try:
        yield
    except OSError as error:
        raise TsnbError(
            f"{path} cannot be read or written ({error.strerror or error}). {way_out(error, _ELSEWHERE)}"
        ) from None


class SampleRecord(NamedTuple):
    """Where one sample lies."""

    offset: int
    """Where its key begins in `keys`, or the sample itself in the growing file."""
    length: int
    """Bytes of the key, or of the sample."""
    size: int
    """Bytes of the sample's file when it was taken; 0: not known."""


class GrowthIndex:
    """One process's view of an index.

    Args:
        directory: Where it lies, for this user alone (`tsnb.private.directories`); made if it is not there.

    Raises:
        TsnbError: The directory cannot be made, holds something else, or other users could change it.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._samples = Path(directory, "samples")
        self._keys = Path(directory, "keys")
        self._map: npt.NDArray[np.int64] = np.empty((0, 3), np.int64)
        self._make()
        with os.fdopen(open_private(self._samples, os.O_RDONLY), "rb") as file:
            head = file.read(HEAD_BYTES)
        if head[: len(MAGIC)] != MAGIC or len(head) < HEAD_BYTES:
            raise TsnbError(
                f"{directory} is not an index of tsnb.data.grow, or belongs to another version of "
                "tsnb. Pass another directory as index=."
            )
        self.identity = head[8:24].hex()
        """Equal for the same index only."""

    def __getstate__(self) -> dict[str, Any]:
        """Travel by the directory's name: memory maps stay where they are."""
        return {**self.__dict__, "_map": np.empty((0, 3), np.int64)}

    def _make(self) -> None:
        try:
            # a link of another user's would have the index written into a file of this user's
            make_private(Path(self.directory), tighten=True)
            # an archive may hold an index, too, with a link or a pipe in place of a file
            with os.fdopen(open_private(self._samples, os.O_RDWR | os.O_CREAT), "r+b") as file:
                if os.fstat(file.fileno()).st_size >= HEAD_BYTES:
                    return
                with self.writing():
                    if os.fstat(file.fileno()).st_size < HEAD_BYTES:  # else another process was quicker
                        file.write(MAGIC + os.urandom(16) + bytes(8))
                        file.flush()
        except Unsafe as unsafe:
            raise TsnbError(
                f"The index of the growing dataset cannot be stored in {self.directory}, where other "
                f"users could change it: {unsafe}. Pass your own directory as index=."
            ) from None
        except OSError as error:
            raise TsnbError(
                f"The index of the growing dataset cannot be stored in {self.directory} "
                f"({error.strerror or error}). {way_out(error, _ELSEWHERE)}"
            ) from None

    @contextlib.contextmanager
    def writing(self, *, wait: bool = True) -> Iterator[bool]:
        """Be the one process that writes; gives whether it is.

        Args:
            wait: For another one to be done, if one writes now.

        Raises:
            TsnbError: The index cannot be written to.
        """
        with kept_in(self._samples):
            descriptor = open_private(self._samples, os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            except OSError:  # a file system without locks
                with kept_in(self._samples):
                    raise
            try:
                yield True
            finally:
                fcntl.flock(
                    descriptor, fcntl.LOCK_UN
                )  # not by the close: a child that was forked meanwhile has it too
        finally:
            os.close(descriptor)

    def count(self) -> int:
        """Return how many samples there are now, whoever wrote them.

        Raises:
            TsnbError: The index has gone.
        """
        with kept_in(self._samples):
            return max(0, self._samples.stat().st_size - HEAD_BYTES) // RECORD_BYTES

    def append_keys(self, keys: Sequence[bytes], sizes: Sequence[int]) -> None:
        """Append samples that are found by a key. Only while `writing`.

        Raises:
            TsnbError: They cannot be written: a full disk. What was written of them does not count.
        """
        last = self.record(self.count() - 1) if self.count() else SampleRecord(0, 0, 0)
        begin = last.offset + last.length
        lengths = np.fromiter(map(len, keys), np.int64, len(keys))
        records = np.empty((len(keys), 3), np.int64)
        records[:, 0] = begin + np.cumsum(lengths) - lengths
        records[:, 1] = lengths
        records[:, 2] = sizes
        _write_at(self._keys, begin, b"".join(keys))
        self._append(records)

    def append_lines(self, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        """Append samples that lie in the growing file itself. Only while `writing`.

        Raises:
            TsnbError: As `append_keys`.
        """
        self._append(np.stack([offsets, lengths, np.zeros_like(offsets)], axis=1))

    def _append(self, records: npt.NDArray[np.int64]) -> None:
        _write_at(self._samples, HEAD_BYTES + RECORD_BYTES * self.count(), records.astype("<i8").tobytes())

    def record(self, index: int) -> SampleRecord:
        """Return where a sample lies.

        Raises:
            IndexError: There is no such sample yet.
        """
        if index >= len(self._map):
            self._look_again()
        if not 0 <= index < len(self._map):
            raise IndexError(f"Sample {index} does not exist. The dataset has {len(self._map)} samples.")
        return SampleRecord(*self._map[index].tolist())

    def _look_again(self) -> None:
        count = self.count()
        if count > len(self._map):
            self._map = np.asarray(
                np.memmap(self._samples, "<i8", "r", HEAD_BYTES, (count, 3))
            )  # plain: 10x quicker

    def keys(self, first: int, stop: int) -> list[bytes]:
        """Return the keys of some samples.

        Raises:
            TsnbError: The index has gone.
        """
        if first >= stop:
            return []
        begin, end = self.record(first), self.record(stop - 1)
        with kept_in(self._keys), os.fdopen(open_private(self._keys, os.O_RDONLY), "rb") as file:
            stop_byte = end.offset + end.length
            if not 0 <= begin.offset <= stop_byte <= os.fstat(file.fileno()).st_size:
                raise TsnbError(f"The index {self.directory} is damaged. Delete it and start again.")
            file.seek(begin.offset)
            text = file.read(stop_byte - begin.offset)
        found = self._map[first:stop]
        starts = (found[:, 0] - begin.offset).tolist()
        return [
            text[start : start + length] for start, length in zip(starts, found[:, 1].tolist(), strict=True)
        ]


def _write_at(path: Path, offset: int, content: bytes) -> None:
    with kept_in(path):
        descriptor = open_private(path, os.O_WRONLY | os.O_CREAT)
        try:
            left = memoryview(content)
            while left:
                written = os.pwrite(descriptor, left, offset)
                left, offset = left[written:], offset + written
        finally:
            os.close(descriptor)
