"""What a data set grows from: a folder, a file of lines, or a listing.

Each takes nothing that is half written:

- a file of a folder counts once nobody has written to it for `settle_s`, and it is not empty. Names that begin with a
  dot or end in .tmp or .part never count: a program that writes such a name and renames it at the end can say
  `settle_s=0`
- a line of a file counts once its end is there
- what a function lists counts at once

Others may write to the folder, too. A folder or file that this user cannot read is left out, with a word about the
first one. A link counts if it is this user's or root's, or leads to what its owner has: anybody could put one that
leads to a private file. That is so for every link on the way, that to the folder or file itself included. Folders that
links lead to again and again are listed a few times.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tsnb.errors import TsnbError
from tsnb.growing.index import GrowthIndex, SampleRecord
from tsnb.private.files import open_foreign

__all__ = ["GrowingFolder", "GrowingLines", "GrowingListing"]

_log = logging.getLogger("tsnb")

_LEFT_OUT = frozenset(
    {errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR}
)
"""Errors of one folder or file that concern no other."""
_UNREADABLE = "you may not read it"
_LOOPS = "it is a link to a folder that contains it"
_STRANGE_LINK = "is another user's link to a file that this user does not own"
MOST_LINKS = 40
"""Links on one way, as Linux has it."""
ALIKE = 8
"""How often a folder is listed that several links lead to."""

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
        self._told: set[str] = set()
        self.words = repr(path)
        self.check()

    def check(self) -> None:
        """Raise if it is not there.

        Raises:
            TsnbError: It is not.
        """
        if not Path(self._path).is_dir():
            raise TsnbError(
                f"The folder {self._path!r} of a growing dataset does not exist. Create it, mount it "
                "again, or pass the right one: tsnb.data.grow(FOLDER, parse=...)."
            )
        _check_source(self._path)

    def take(self, index: GrowthIndex, known: set[bytes]) -> None:
        """Write down the files that are new and whole."""
        _check_source(self._path)
        found = sorted(self._settled(known, index.directory))
        if found:
            index.append_keys([key for _, key, _ in found], [size for _, _, size in found])
            known.update(key for _, key, _ in found)

    def _settled(self, known: set[bytes], index: str) -> Iterator[tuple[int, bytes, int]]:
        """Give when each was written last, its name below the folder, and its size."""
        now = time.time_ns()
        for name, entry in self._files():
            key = os.fsencode(name)
            if key in known or entry.path.startswith(f"{index}/"):
                continue
            try:
                status = self._status(entry)
            except OSError as error:
                self._pass_over(entry.path, error)
                continue
            if not stat.S_ISREG(status.st_mode) or not status.st_size:
                continue
            if not os.access(entry.path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
                self._leave_out(entry.path, _UNREADABLE)
            elif self._still(name, status, now):
                yield status.st_mtime_ns, key, status.st_size

    def _pass_over(self, path: str, error: OSError) -> None:
        """Leave out what cannot be looked at, if that concerns nothing else; else raise the error."""
        if error.errno not in _LEFT_OUT:
            raise error
        if error.errno != errno.ENOENT:  # it has been renamed, and is found elsewhere
            self._leave_out(
                path, _UNREADABLE if error.errno == errno.EACCES else error.strerror or str(error)
            )

    def _leave_out(self, path: str, why: str) -> None:
        """Say once for each reason that something is left out."""
        if why not in self._told:
            self._told.add(why)
            _log.warning(
                "%.300s is left out of the dataset that grows from %r: %s. Further files with this "
                "problem are not listed.",
                path,
                self._path,
                why,
            )

    def _still(self, name: str, status: os.stat_result, now: int) -> bool:
        """Whether nobody has written to it for a while: ctime, which no copy sets back."""
        age_s = (now - status.st_ctime_ns) * 1e-9
        if age_s >= self._settle_s or not self._settle_s:
            self._seen.pop(name, None)
            return True
        if age_s >= 0:
            return False
        # a file server's clock is ahead: two looks of our own
        state = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        before, since = self._seen.get(name, (None, 0.0))
        if before != state:
            self._seen[name] = state, time.monotonic()
            return False
        return time.monotonic() - since >= self._settle_s

    def _files(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Give what is in the folder and the folders in it, by its name below the folder.

        Raises:
            OSError: The folder itself cannot be read, or the disk fails.
        """
        listed: Counter[tuple[int, int]] = Counter()
        # each with those that it lies in; a list of its own, since folders may lie thousands deep
        todo: list[tuple[str, tuple[tuple[int, int], ...], bool]] = [("", (), False)]
        while todo:
            below, above, linked = todo.pop()
            path = f"{self._path}/{below}" if below else self._path
            try:
                here = _identity(path)
                listed[here] += linked
                if here in above or listed[here] > ALIKE:
                    self._leave_out(
                        path, _LOOPS if here in above else f"more than {ALIKE} links lead to one folder"
                    )
                    continue
                with os.scandir(path) as entries:
                    found = [each for each in entries if not _unfinished(each.name)]
            except OSError as error:
                if not below:
                    raise
                self._pass_over(path, error)
                continue
            for entry in found:
                if self._is_folder(entry):
                    todo.append((f"{below}{entry.name}/", (*above, here), linked or entry.is_symlink()))
                else:
                    yield below + entry.name, entry

    def _is_folder(self, entry: os.DirEntry[str]) -> bool:
        """Tell whether an entry is a folder, or a link to one that counts."""
        try:  # what is no link is known without asking the system
            return stat.S_ISDIR(self._status(entry).st_mode) if entry.is_symlink() else entry.is_dir()
        except OSError as error:
            self._pass_over(entry.path, error)
            return False

    def _status(self, entry: os.DirEntry[str]) -> os.stat_result:
        """Return what an entry is, or leads to.

        Raises:
            OSError: It has gone, or may not be looked at; or it is a link that does not count.
        """
        status = entry.stat()
        if entry.is_symlink() and _strange_link(entry.path):
            raise PermissionError(errno.EPERM, _STRANGE_LINK, entry.path)
        return status

    def fetch(self, index: GrowthIndex, number: int) -> str:
        """Return a sample's path.

        Raises:
            IndexError: There is no such sample.
            FileNotFoundError: It has gone.
            TsnbError: It is another file now.
        """
        record = index.record(number)
        name = os.fsdecode(index.keys(number, number + 1)[0])
        path = f"{self._path}/{name}"
        try:
            strange = _strange_link(path)  # what was a file may be a link by now
            if strange:
                raise TsnbError(f"{strange} {_STRANGE_LINK}. Remove it, or create it yourself.")
            size = Path(path).stat().st_size
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{path} no longer exists, but it is sample {number} of a dataset that can only grow. "
                f"Put it back. To leave it out for good, delete the index {index.directory} and start "
                "again."
            ) from None
        if size != record.size:
            raise TsnbError(
                f"{path} had {record.size:,} bytes when it was added and has {size:,} now. Write files "
                "under another name (.tmp, .part) and rename them, or use a larger settle_s= than "
                f"{self._settle_s:g}. Then delete the index {index.directory} and start again."
            )
        return path


def _check_source(path: str) -> None:
    """Check the way to a folder or file that a data set grows from.

    Raises:
        TsnbError: A link on it does not count.
        OSError: It has gone.
    """
    strange = _strange_link(path)
    if strange:
        raise TsnbError(
            f"{strange} {_STRANGE_LINK}. If you trust it, pass the path that it leads to: "
            f"{os.path.realpath(path)}."
        )


def _strange_link(path: str) -> str | None:
    """Return the first link on the way to an absolute path that does not count; None where all do.

    Links that a link leads through are on the way, too: one's own link may lead to another user's.

    Raises:
        OSError: The path has gone, or its links loop.
    """
    here, links = "/", 0
    rest = path.split("/")[::-1]
    while rest:
        part = rest.pop()
        if part in {"", "."}:
            continue
        if part == "..":  # of a path without links
            here = os.path.dirname(here)  # noqa: PTH120 (a Path a sample costs more)
            continue
        place = f"{here.rstrip('/')}/{part}"
        status = os.lstat(place)
        if not stat.S_ISLNK(status.st_mode):
            here = place
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if status.st_uid not in {0, os.geteuid(), os.stat(place).st_uid}:  # noqa: PTH116
            return place
        target = os.readlink(place)  # noqa: PTH115
        here = "/" if target.startswith("/") else here
        rest += target.split("/")[::-1]
    return None


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116 (four times a second)
    return status.st_dev, status.st_ino


def _unfinished(name: str) -> bool:
    return name.startswith(".") or name.endswith(UNFINISHED)


class GrowingLines:
    """Lines of one file; the sample is the line, as bytes, without its end."""

    keyed = False

    def __init__(self, path: str) -> None:
        self._path = path
        self.words = repr(path)
        self.check()

    def check(self) -> None:
        """Raise if it is not there.

        Raises:
            TsnbError: It is not.
        """
        if not Path(self._path).is_file():
            raise TsnbError(
                f"The file {self._path!r} of a growing dataset does not exist. Put it back, or pass "
                "the right one: tsnb.data.grow(FILE, parse=...)."
            )
        _check_source(self._path)

    def take(self, index: GrowthIndex, _known: set[bytes]) -> None:
        """Write down the lines whose end is there."""
        count = index.count()
        last = index.record(count - 1) if count else SampleRecord(0, -1, 0)
        _check_source(self._path)
        begin = last.offset + last.length + 1
        with open_foreign(self._path) as file:
            size = os.fstat(file.fileno()).st_size
            if size < begin:
                raise TsnbError(
                    f"{self._path} had {begin:,} bytes and has {size:,} now, but a growing dataset can "
                    f"only get longer. Put the file back, or delete the index {index.directory} and "
                    "start again."
                )
            file.seek(begin)
            while chunk := file.read(READ_BYTES):
                ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")).astype(np.int64) + begin
                if not len(ends):
                    if len(chunk) < READ_BYTES:
                        return
                    raise TsnbError(
                        f"{self._path} has a line of more than {READ_BYTES >> 20} MiB at byte "
                        f"{begin:,}. Split it into shorter lines."
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
        _check_source(self._path)
        with open_foreign(self._path) as file:
            file.seek(record.offset)
            line = file.read(record.length)
        if len(line) < record.length:
            raise TsnbError(
                f"{self._path} has become shorter, so sample {number} is missing. Put the file back, "
                f"or delete the index {index.directory} and start again."
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
                f"The function that lists samples returned {wrong[0]!r:.80}. Let it return a list of "
                "strings, all different, one per sample. parse= gets that string."
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
