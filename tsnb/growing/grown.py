"""`grow`: a data set that others add to while it is used. Files that appear in a folder, lines of a file, or a listing.

What was found stands in an index (`index`); `sources` finds what is new.
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
from tsnb.growing.index import GrowthIndex
from tsnb.growing.labels import Labels
from tsnb.growing.sources import GrowingFolder, GrowingLines, GrowingListing

__all__ = ["Grown", "grow", "grown_inside"]

LOOK_S = 0.1
"""How often `Grown.wait` looks."""


class Grown(Dataset[Any]):
    """A data set that grows; made by `tsnb.data.grow`.

    `len()` is the number of samples that `refresh` has seen: it never changes behind a DataLoader's back.

    Attributes:
        labels: The class of each sample; None: it does not tell, or this is a worker's copy.
    """

    def __init__(
        self,
        source: GrowingFolder | GrowingLines | GrowingListing,
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
            raise ValueError(f"wait({samples!r:.40}) is invalid. Pass a number of samples.")
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
        return f"<tsnb.data.grow({self._source.words}): {self._samples:,} samples>"


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


def grow(
    source: str | os.PathLike[str] | Callable[[], Sequence[str]],
    parse: Callable[[Any], Any],
    *,
    index: str | os.PathLike[str] | None = None,
    settle_s: float = 1.0,
    label: Callable[[Any], Hashable] | None = None,
) -> Grown:
    """Make a dataset of files or lines that grows while it is used.

    Served by `tsnb.serve`, new samples enter the running epoch or the next one (docs/growing-data.md). In a plain
    `DataLoader` the dataset has the samples of its last `refresh()`.

    Example:
        >>> loader = DataLoader(tsnb.data.grow("photos", parse), batch_size=2)

    Args:
        source: Folder whose files are samples (subfolders too), file whose lines are samples, or function that
            lists strings. The function may be called at any time.
        parse: Function that makes a sample from the file's path, the line as bytes without its end, or the listed
            string. Workers call it.
        index: Directory of the index. Defaults to `.tsnb-index` in the folder or next to the file.
        settle_s: Seconds without a write before a file counts. 0 is for folders where files are renamed into place,
            from names that begin with a dot or end in .tmp or .part. Defaults to 1.
        label: Function that returns a sample's class, a string or a number, from what `parse` gets. For rounds with
            `select="balanced"`. Defaults to None.

    Returns:
        A map-style dataset whose samples keep their numbers.

    Raises:
        TsnbError: If the folder or file does not exist, another user's link leads to files that this user does not
            own, or the index cannot be kept.
        TypeError: If `parse` or `label` cannot be called.
        ValueError: If `settle_s` is negative, or a function is given without `index=`.
    """
    if not callable(parse):
        raise TypeError(f"parse= must be a function that creates a sample, got {type(parse).__name__}.")
    if label is not None and not callable(label):
        raise TypeError(
            f"label= must be a function that returns the class of a sample, got {type(label).__name__}."
        )
    if not isinstance(settle_s, (int, float)) or not settle_s >= 0:
        raise ValueError(f"settle_s={settle_s!r} is invalid. Pass a number of seconds, 0 or more.")
    if callable(source):
        if index is None:
            raise ValueError(
                "A function that lists samples needs a place for their index. Pass index=, for example "
                'tsnb.data.grow(list_keys, parse=..., index="my-index").'
            )
        found: GrowingFolder | GrowingLines | GrowingListing = GrowingListing(source)
        place = os.fspath(index)
    else:
        if not isinstance(source, (str, os.PathLike)):
            kind = type(source).__name__
            raise TypeError(
                f"tsnb.data.grow expects a folder, a file or a function that lists samples, got {kind}."
            )
        path = Path(source).absolute()
        lines = path.is_file()
        beside = path.with_name(f".{path.name}.tsnb-index") if lines else path / ".tsnb-index"
        place = os.fspath(beside if index is None else index)
        found = GrowingLines(str(path)) if lines else GrowingFolder(str(path), settle_s)
    grown = Grown(found, parse, GrowthIndex(str(Path(place).absolute())), label)
    grown.refresh()
    return grown
