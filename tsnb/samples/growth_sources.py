"""What a data set grows from: a folder, a file of lines, or a listing.

Each takes nothing that is half written:

- a file of a folder counts once nobody has written to it for `settle_s`, and it is not empty. Names that begin with a
  dot or end in .tmp or .part never count: a program that writes such a name and renames it at the end can say
  `settle_s=0`
- a line of a file counts once its end is there
- what a function lists counts at once
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tsnb.errors import TsnbError
from tsnb.samples.growth_index import GrowthIndex, SampleRecord

__all__ = ["GrowingFolder", "GrowingLines", "GrowingListing"]

UNFINISHED = (".tmp", ".part")
"""How names of files end that are being written."""
READ_BYTES = 1 << 24
"""Of a growing file is read at a time."""


class GrowingFolder:
    """Files of a folder and the folders in it; the sample is the file's path."""

    keyed = True

    def __init__(self, path: str, settle_s: float) -> None:
        self._path = path
        self._settle_s = settle_s
        self._seen: dict[
            str, tuple[tuple[int, int, int], float]
        ] = {}  # from a clock ahead of ours: as it was, when
        self.words = repr(path)
        self.check()

    def check(self) -> None:
        """Raise if it is not there.

        Raises:
            TsnbError: It is not.
        """
        if not Path(self._path).is_dir():
            raise TsnbError(
                f"the folder {self._path!r} that a data set grows from is not there: make it, or mount it again, or "
                "name the right one with tsnb.grow(FOLDER, parse=...)."
            )

    def take(self, index: GrowthIndex, known: set[bytes]) -> None:
        """Write down the files that are new and whole."""
        found = sorted(self._settled(known, index.directory))
        if found:
            index.append_keys([key for _, key, _ in found], [size for _, _, size in found])
            known.update(key for _, key, _ in found)

    def _settled(self, known: set[bytes], index: str) -> Iterator[tuple[int, bytes, int]]:
        """Give when each was written last, its name below the folder, and its size."""
        now = time.time_ns()
        for name, entry in self._files(self._path, ""):
            key = os.fsencode(name)
            if key in known or entry.path.startswith(f"{index}/"):
                continue
            try:
                stat = entry.stat()
            except FileNotFoundError:  # it has been renamed
                continue
            if stat.st_size and self._still(name, stat, now):
                yield stat.st_mtime_ns, key, stat.st_size

    def _still(self, name: str, stat: os.stat_result, now: int) -> bool:
        """Whether nobody has written to it for a while: ctime, which no copy sets back."""
        age_s = (now - stat.st_ctime_ns) * 1e-9
        if age_s >= self._settle_s or not self._settle_s:
            self._seen.pop(name, None)
            return True
        if age_s >= 0:
            return False
        # a file server's clock is ahead: two looks of our own
        state = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        before, since = self._seen.get(name, (None, 0.0))
        if before != state:
            self._seen[name] = state, time.monotonic()
            return False
        return time.monotonic() - since >= self._settle_s

    def _files(self, path: str, below: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.startswith(".") or entry.name.endswith(UNFINISHED):
                    continue
                if entry.is_dir():
                    try:
                        yield from self._files(entry.path, f"{below}{entry.name}/")
                    except FileNotFoundError:  # a folder in it has been renamed
                        continue
                elif entry.is_file():
                    yield below + entry.name, entry

    def fetch(self, index: GrowthIndex, number: int) -> str:
        """Return a sample's path.

        Raises:
            IndexError: There is no such sample.
            FileNotFoundError: It has gone.
            TsnbError: It is another file now.
        """
        record = index.record(number)
        path = f"{self._path}/{os.fsdecode(index.keys(number, number + 1)[0])}"
        try:
            size = Path(path).stat().st_size
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{path} has gone: it is sample {number} of a data set that only grows. Put it back; or to leave it "
                f"out for good, delete the index {index.directory} and begin anew."
            ) from None
        if size != record.size:
            raise TsnbError(
                f"{path} had {record.size:,} bytes when it was taken and has {size:,} now. Write files under another "
                f"name (.tmp, .part) and rename them, or use a larger settle_s= than {self._settle_s:g}; then delete "
                f"the index {index.directory} and begin anew."
            )
        return path


class GrowingLines:
    """Lines of one file; the sample is the line, as bytes, without its end."""

    keyed = False

    def __init__(self, path: str) -> None:
        self._path = path
        self.words = repr(path)

    def check(self) -> None:
        """Raise if it is not there.

        Raises:
            TsnbError: It is not.
        """
        if not Path(self._path).is_file():
            raise TsnbError(
                f"the file {self._path!r} that a data set grows from is not there: put it back, or name the right one "
                "with tsnb.grow(FILE, parse=...)."
            )

    def take(self, index: GrowthIndex, _known: set[bytes]) -> None:
        """Write down the lines whose end is there."""
        count = index.count()
        last = index.record(count - 1) if count else SampleRecord(0, -1, 0)
        begin = last.offset + last.length + 1
        with Path(self._path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < begin:
                raise TsnbError(
                    f"{self._path} had {begin:,} bytes and has {size:,} now, and a data set that grows only ever gets "
                    f"longer: put the file back, or delete the index {index.directory} and begin anew."
                )
            file.seek(begin)
            while chunk := file.read(READ_BYTES):
                ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")).astype(np.int64) + begin
                if not len(ends):
                    if len(chunk) < READ_BYTES:
                        return
                    raise TsnbError(
                        f"{self._path} has a line of more than {READ_BYTES >> 20} MiB at byte {begin:,}."
                    )
                starts = np.concatenate([[begin], ends[:-1] + 1])
                index.append_lines(starts, ends - starts)
                begin = int(ends[-1]) + 1
                file.seek(begin)

    def fetch(self, index: GrowthIndex, number: int) -> bytes:
        """Return a sample's line.

        Raises:
            IndexError: There is no such sample.
            TsnbError: The file is shorter than it was.
        """
        record = index.record(number)
        with Path(self._path).open("rb") as file:
            file.seek(record.offset)
            line = file.read(record.length)
        if len(line) < record.length:
            raise TsnbError(
                f"{self._path} has become shorter: sample {number} has gone. Put the file back, or delete the index "
                f"{index.directory} and begin anew."
            )
        return line


class GrowingListing:
    """What a function lists: the sample is the key."""

    keyed = True

    def __init__(self, list_keys: Callable[[], Sequence[str]]) -> None:
        self._list_keys = list_keys
        self.words = getattr(list_keys, "__qualname__", type(list_keys).__qualname__)

    def check(self) -> None:
        """Whether it is there the function itself says."""

    def take(self, index: GrowthIndex, known: set[bytes]) -> None:
        """Write down the keys that are new, in the order of the listing."""
        given: Any = self._list_keys()
        if isinstance(given, Iterable) and not isinstance(
            given, (str, bytes)
        ):  # a text is no list of its letters
            listed = list(given)
            wrong = [key for key in listed if not isinstance(key, str) or not key]
        else:
            listed, wrong = [], [given]
        if wrong:
            raise TsnbError(
                f"the function that lists samples gave {wrong[0]!r:.80}: let it return a list of texts, one for each "
                "sample, all different; parse= gets that text."
            )
        fresh = [
            key
            for name in dict.fromkeys(listed)
            if (key := name.encode("utf-8", "surrogateescape")) not in known
        ]
        if fresh:
            index.append_keys(fresh, [0] * len(fresh))
            known.update(fresh)

    def fetch(self, index: GrowthIndex, number: int) -> str:
        """Return a sample's key.

        Raises:
            IndexError: There is no such sample.
        """
        index.record(number)
        return index.keys(number, number + 1)[0].decode("utf-8", "surrogateescape")
