"""`grow`: a data set that others add to while it is used. Files that appear in a folder, lines of a file, or a listing.

What was found stands in an index (`growth_index`); `arrivals` below finds what is new, and takes nothing that is half
written:

- a file of a folder counts once nobody has written to it for `settle_s`, and it is not empty. Names that begin with a
  dot or end in .tmp or .part never count: whoever writes such a name and renames it at the end can say `settle_s=0`
- a line of a file counts once its end is there
- what a function lists counts at once
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from tsnb.errors import TsnbError
from tsnb.samples.growth_index import GrowthIndex, SampleRecord
from tsnb.samples.labels import Labels

__all__ = ["Grown", "grow", "grown_inside"]

UNFINISHED = (".tmp", ".part")
"""How names of files end that are being written."""
LOOK_S = 0.1
"""How often `Grown.wait` looks."""
READ_BYTES = 1 << 24
"""Of a growing file is read at a time."""


class Grown(Dataset[Any]):
    """A data set that grows; made by `tsnb.grow`.

    `len()` is the number of samples that `refresh` has seen: it never changes behind a DataLoader's back.

    Attributes:
        labels: The class of each sample; None: it does not tell, or this is a worker's copy.
    """

    def __init__(
        self,
        source: _Folder | _Lines | _Listing,
        parse: Callable[[Any], Any],
        index: GrowthIndex,
        label: Callable[[Any], Any] | None = None,
    ) -> None:
        self._source = source
        self._parse = parse
        self._index = index
        self._samples = index.count()
        self._known: set[bytes] = set()
        self._listed = 0  # of the index's samples that `_known` has
        self._lock = threading.Lock()
        self.labels = None if label is None else Labels(label, lambda number: source.fetch(index, number))

    def __getstate__(self) -> dict[str, Any]:
        """Travel without the lock, and without what only a writer needs."""
        return {**self.__dict__, "_lock": None, "_known": set(), "_listed": 0, "labels": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> Any:
        """Return `parse` of one sample.

        Raises:
            IndexError: There is no such sample.
            FileNotFoundError: Its file has gone.
            TsnbError: Its file is not the one that was taken.
        """
        if index < 0:
            index += self._samples
        with self.source_first():
            return self._parse(self._source.fetch(self._index, index))

    @contextlib.contextmanager
    def source_first(self) -> Iterator[None]:
        """Within it, where the folder or file has gone, an error is that one: index and log may lie inside.

        Raises:
            TsnbError: It has gone.
        """
        try:
            yield
        except (OSError, TsnbError):
            self._source.check()
            raise

    def refresh(self) -> int:
        """Look for new samples; return how many there are now. Any process may, one at a time writes them down.

        Raises:
            TsnbError: The folder or file has gone, or what had been taken of it has changed; or the index cannot be
                written: a full disk.
        """
        with self._lock, self.source_first():
            self._refresh()
        return self._samples

    def _refresh(self) -> None:
        with self._index.writing(wait=False) as mine:
            if mine:
                count = self._index.count()
                if self._source.keyed:
                    self._known.update(self._index.keys(self._listed, count))
                    self._listed = count
                self._source.take(self._index, self._known)
            self._samples = self._index.count()

    def wait(self, samples: int = 1, timeout_s: float | None = None) -> bool:
        """Wait until there are so many samples; return whether there are.

        Args:
            samples: How many.
            timeout_s: Seconds; None waits for good.

        Raises:
            TsnbError: As `refresh`.
            ValueError: `samples` is not a number.
        """
        if not isinstance(samples, int):
            raise ValueError(f"wait({samples!r:.40}): give a number of samples.")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self.refresh() < samples:
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S)
        return True

    @property
    def identity(self) -> str:
        """Equal for the same index only."""
        return self._index.identity

    @property
    def words(self) -> str:
        """What it grows from."""
        return self._source.words

    @property
    def directory(self) -> str:
        """Where the index lies."""
        return self._index.directory

    def __repr__(self) -> str:
        return f"<tsnb.grow({self._source.words}): {self._samples:,} samples>"


DEEP = 8
"""Wrappers in wrappers that are looked into."""
WIDE = 1000
"""Values that are looked at, lists' included: a loader holds few, and a list of samples is no wrapper."""


def grown_inside(loader: Any) -> tuple[Any, Grown] | None:
    """Return the outermost object of a loader that wraps a data set that grows, and that; None where none does.

    Args:
        loader: Anything; a DataLoader over the data set itself wraps nothing.
    """
    outer = loader.dataset if isinstance(loader, DataLoader) else loader
    if isinstance(outer, Grown):
        return None
    seen: set[int] = set()
    layer = [outer]
    for _ in range(DEEP):
        inner = itertools.islice((value for each in layer for value in _held(each)), WIDE)
        layer = []
        for value in inner:
            if isinstance(value, Grown):
                return outer, value
            if id(value) not in seen:
                seen.add(id(value))
                layer.append(value)
    return None


_PLAIN = (
    str,
    bytes,
    int,
    float,
    type(None),
    type,
    types.ModuleType,
    types.FunctionType,
    torch.Tensor,
    np.ndarray,
)
"""What holds no data set."""


def _held(value: Any) -> Iterator[Any]:
    """Give what a wrapper holds: attributes, and what is in lists of them."""
    if isinstance(value, (list, tuple)):
        found: Iterable[Any] = value
    else:
        found = (value if isinstance(value, dict) else getattr(value, "__dict__", {})).values()
    return (each for each in itertools.islice(found, WIDE) if not isinstance(each, _PLAIN))


class _Folder:
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


class _Lines:
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


class _Listing:
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


def grow(
    source: str | os.PathLike[str] | Callable[[], Sequence[str]],
    parse: Callable[[Any], Any],
    *,
    index: str | os.PathLike[str] | None = None,
    settle_s: float = 1.0,
    label: Callable[[Any], Hashable] | None = None,
) -> Grown:
    """Return a data set that grows while it is used: a folder of files, the lines of a file, or what a function lists.

    In a plain `DataLoader` it has the samples of the last `refresh()`. Served by `tsnb.serve`, new samples enter the
    running epoch, at seeded places among those that have not been given yet, or the next one (docs/growing.md).

    Args:
        source: A folder: each file in it, or in a folder of it, is a sample. A file: each line is one. A function: each
            text that it lists is one, and it may be called at any time.
        parse: Makes the sample: of the file's path, of the line as bytes without its end, or of the listed text. Called
            in the DataLoader's workers.
        index: Directory for the index. Left out: `.tsnb-index` in the folder, or beside the file with its name.
        settle_s: Seconds for which a file must not have been written to before it is taken. 0 is for folders where
            every file is renamed into its place: from a name that begins with a dot or ends in .tmp or .part.
        label: Tells a sample's class, for rounds that balance them (`select="balanced"`): a function of what `parse`
            gets, that returns a text or a number. Called once for each sample, where the stream is served.

    Returns:
        A map-style data set; samples keep their numbers for good.

    Raises:
        TsnbError: The folder or file is not there, or its index cannot be kept.
        TypeError: `parse` or `label` cannot be called.
        ValueError: `settle_s` is negative, or a function is given without `index=`.
    """
    if not callable(parse):
        raise TypeError(
            f"parse= must be a function that makes a sample, and a {type(parse).__name__} cannot be called."
        )
    if label is not None and not callable(label):
        raise TypeError(
            f"label= must be a function that tells a sample's class, and a {type(label).__name__} cannot be called."
        )
    if not isinstance(settle_s, (int, float)) or not settle_s >= 0:
        raise ValueError(f"settle_s={settle_s!r}: give seconds, 0 or more.")
    if callable(source):
        if index is None:
            raise ValueError(
                "samples that a function lists need a place for their index: tsnb.grow(list_keys, parse=..., "
                'index="my-index").'
            )
        found: _Folder | _Lines | _Listing = _Listing(source)
        place = os.fspath(index)
    else:
        if not isinstance(source, (str, os.PathLike)):
            kind = type(source).__name__
            raise TypeError(
                f"tsnb.grow expected a folder, a file or a function that lists samples, and got a {kind}."
            )
        path = Path(source).absolute()
        lines = path.is_file()
        beside = path.with_name(f".{path.name}.tsnb-index") if lines else path / ".tsnb-index"
        place = os.fspath(beside if index is None else index)
        found = _Lines(str(path)) if lines else _Folder(str(path), settle_s)
    grown = Grown(found, parse, GrowthIndex(str(Path(place).absolute())), label)
    grown.refresh()
    return grown
