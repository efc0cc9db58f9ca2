"""Finds which files a loader's samples are in, how much of them the page cache holds, and what the disk costs.

A copy of the user's loader fetches some samples in workers of its own, and throws them away:

    learn   an audit hook in the worker hears of each file that is opened, and asks for the share of it in the page
            cache before it is read (`cachestat(2)`, Linux 6.5; before that `mincore(2)`)
    warm    the same samples once more: their files are in memory now
    cold    the files are put out of the page cache (`posix_fadvise(DONTNEED)`, no root needed), and the same samples
            are fetched by one worker; once more by several, which meet in front of the disk

The last two only where they are asked for: other programs that read the same files wait for the disk then, too. Nothing
is written to a file; what another program has written and not yet put on the disk is put there.

Files that were opened before (an HDF5 file, a memory map) are found among the worker's open and mapped files. Files
that a C library opens are not seen; their bytes are (`/proc/self/io`), so `Storage.unseen` tells of them.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, NamedTuple

from torch.utils.data import DataLoader, IterableDataset

from tsnb.machine import clocks
from tsnb.machine.disks import cached_bytes, put_out
from tsnb.stalling.measuring import rows
from tsnb.stalling.silence import awaited
from tsnb.stalling.storage import Storage, busy_of
from tsnb.stream.loader.workers import WorkerStart, going_through
from tsnb.stream.producer.failures import forget

__all__ = ["storage_of"]

SAMPLES = 192
"""Samples that are looked at; fewer where they take longer than the seconds given."""
LEAST = 16
"""Fewer say nothing."""
EMPTIED = 0.9
"""Share of the files' bytes that have to leave the page cache for a reading to count as cold."""
LOOKS = 3
"""Samples after which the worker's open and mapped files are looked through: that takes longer than most samples."""
_MAPPED_BYTES = 1 << 20
"""Smaller mapped files are locales and caches of libraries."""
_CODE = (".py", ".pyc", ".pyi", ".so", ".pth", ".mo")
_ELSEWHERE = ("/proc/", "/sys/", "/dev/", "/usr/lib", "/lib", "/etc/")


class Fetched(NamedTuple):
    """One sample, as its worker saw it."""

    key: Any
    """Its index."""
    rows: int
    """Samples in it, where the dataset gives whole batches."""
    begin_s: float
    """By a clock that all processes share."""
    end_s: float
    no_core_s: float
    """In which the worker was ready and had no core."""
    files: dict[str, tuple[int, int | None]]
    """Bytes, and of these in the page cache (None: not told), of each file that was opened."""
    read_bytes: int
    """Bytes read by calls of the system."""
    held: dict[str, int]
    """Files that were open or mapped before, and their bytes."""


class _Listener:
    """The audit hook of one worker process: hooks cannot be removed, and a worker ends."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[int, int | None]] = {}
        self._on = False

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """Take note of a file that is about to be opened for reading."""
        if event != "open" or not self._on:
            return
        self._on = False  # what is done here opens files, too
        try:
            self._note(args[0], args[2] if len(args) > 2 else 0)
        except (OSError, TypeError, ValueError):  # a hook that raises would fail the user's own open
            pass
        finally:
            self._on = True

    def _note(self, name: Any, flags: Any) -> None:
        if isinstance(name, int) or (isinstance(flags, int) and flags & os.O_ACCMODE == os.O_WRONLY):
            return
        path = os.path.realpath(os.fsdecode(name))
        found = Path(path).stat()
        if path not in self.files and stat.S_ISREG(found.st_mode) and not _is_code(path):
            self.files[path] = (found.st_size, cached_bytes(path))

    def __enter__(self) -> _Listener:
        self.files = {}
        self._on = True
        return self

    def __exit__(self, *_: object) -> None:
        self._on = False


_listener: _Listener | None = None


def _listening() -> _Listener:
    """Return this worker's listener."""
    global _listener
    if _listener is None:
        _listener = _Listener()
        sys.addaudithook(_listener.hear)
    return _listener


def _is_code(path: str) -> bool:
    return path.endswith(_CODE) or path.startswith(_ELSEWHERE)


class _Fetching:
    """Stands in for the dataset, in a worker: fetches a sample, and gives what that took instead of it."""

    def __init__(self, dataset: Any, *, whole_batches: bool, learning: bool) -> None:
        self._dataset = dataset
        self._whole_batches = whole_batches
        self._learning = learning
        self._looks = LOOKS if learning else 0

    def __getitem__(self, key: Any) -> Fetched:
        several = getattr(self._dataset, "__getitems__", None)
        return self._watched(key, lambda: several([key]) if several else self._dataset[key])

    def _watched(self, key: Any, fetch: Callable[[], Any]) -> Fetched:
        look, self._looks = self._looks > 0, self._looks - 1
        before = (_open_files(), _mapped()) if look else None
        read = _read_bytes() if self._learning else 0
        waited_s, begin_s = clocks.waited_s(), time.monotonic()
        with _listening() if self._learning else nullcontext(_Listener()) as heard:
            sample = fetch()
        end_s, no_core_s = time.monotonic(), clocks.waited_s() - waited_s
        read_bytes = _read_bytes() - read if self._learning else 0
        held = _used(*before) if before else {}
        number = rows(sample) if self._whole_batches else 1
        return Fetched(key, number, begin_s, end_s, no_core_s, heard.files, max(0, read_bytes), held)


class _FetchingStream(_Fetching, IterableDataset[Fetched]):
    """The same for a dataset that is gone through."""

    def __iter__(self) -> Iterator[Fetched]:
        given = iter(self._dataset)
        for number in range(sys.maxsize):
            try:
                yield self._watched(number, lambda: next(given))
            except StopIteration:
                return


def _read_bytes() -> int:
    """Return the bytes that this process has read by calls of the system."""
    try:
        return int(Path("/proc/self/io").read_text(encoding="ascii").split(maxsplit=2)[1])
    except (OSError, ValueError, IndexError):
        return 0


def _open_files() -> dict[tuple[str, str], int]:
    """Return how far each regular file that is open for reading has been read, by its path and descriptor."""
    places = {}
    own = Path("/proc/self/fd")
    for link in list(own.iterdir()) if own.exists() else ():
        try:
            path = str(link.readlink())
            if fcntl.fcntl(int(link.name), fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
                continue  # a log, whose end other processes move
            if path.startswith("/") and not _is_code(path) and Path(path).is_file():
                places[path, link.name] = os.lseek(int(link.name), 0, os.SEEK_CUR)
        except (OSError, ValueError):
            continue
    return places


def _used(places: dict[tuple[str, str], int], pages: dict[str, int]) -> dict[str, int]:
    """Return the files that were open before and have been read on, and the mapped ones that were touched since."""
    moved = {key[0] for key, place in _open_files().items() if places.get(key, place) != place}
    touched = {path for path, size in _mapped().items() if size > pages.get(path, 0)}
    return {path: Path(path).stat().st_size for path in moved | touched}


def _mapped() -> dict[str, int]:
    """Return the mapped files, and how many kB of each this process has.

    A forked process begins with none of their pages, but for private maps that were written to: of those it has all
    that its parent had, whatever it uses itself.
    """
    try:
        lines = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found: dict[str, int] = {}
    path = ""
    for line in lines:
        words = line.split(maxsplit=5)
        if line.startswith("Rss:"):
            if path:
                found[path] = found.get(path, 0) + int(words[1])
        elif not words[0].endswith(":"):  # the head of a mapping
            low, _, high = words[0].partition("-")
            path = words[5] if len(words) == 6 and int(high, 16) - int(low, 16) >= _MAPPED_BYTES else ""
            ours = path.startswith(("/usr", sys.prefix, sys.base_prefix)) or ".so" in path or _is_code(path)
            path = path if path.startswith("/") and not ours and Path(path).is_file() else ""
    return found


def storage_of(loader: Any, seconds: float, *, cold: bool = False) -> Storage | None:
    """Find the files that a loader reads, in workers of its own; None if it is not a DataLoader, or opens no file.

    Args:
        loader: The user's; not changed.
        seconds: How long each pass may take, about.
        cold: Also measure what the disk costs. The files of the samples leave the page cache for that.
    """
    if not isinstance(loader, DataLoader):
        return None
    keys = _keys(loader)
    try:
        learned = _fetch(loader, keys, 1, seconds, learning=True)
    except Exception as error:  # noqa: BLE001  # the user's: what measures the loader next tells of it
        forget(error)
        return None
    if not any(each.files or each.held for each in learned):
        return None
    told = _learned(loader, learned)
    if not cold:
        return told
    if keys is None:
        return replace(told, why_not="an IterableDataset need not fetch the same samples twice")
    return _measured(loader, learned, told, seconds)


def _keys(loader: DataLoader[Any]) -> list[Any] | None:
    """Return the first keys of an epoch as the loader's own sampler gives them, each once; None: it has no sampler."""
    if isinstance(loader.dataset, IterableDataset):
        return None
    if loader.batch_size is None and loader.batch_sampler is None:
        return list(islice(loader.sampler, SAMPLES))
    drawn = (key for batch in loader.batch_sampler or () for key in batch)
    return list(dict.fromkeys(islice(drawn, SAMPLES)))


def _whole(batch: Any) -> Any:
    return batch


def _fetch(
    loader: DataLoader[Any], keys: list[Any] | None, workers: int, seconds: float, *, learning: bool = False
) -> list[Fetched]:
    """Fetch samples in workers, and throw them away."""
    whole = loader.batch_size is None and loader.batch_sampler is None
    dataset = (_Fetching if keys is not None else _FetchingStream)(
        loader.dataset, whole_batches=whole, learning=learning
    )
    found: list[Fetched] = []
    began = 0.0
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")  # for a moment, on purpose
        watching: DataLoader[Any] = DataLoader(
            dataset,  # type: ignore[arg-type]  # torch asks for no more than a __getitem__
            batch_size=None,
            sampler=keys,
            num_workers=workers,
            collate_fn=_whole,
            worker_init_fn=WorkerStart(loader.worker_init_fn),
            multiprocessing_context=loader.multiprocessing_context,
            timeout=loader.timeout,
        )
        with going_through(watching) as given:
            for each in awaited(islice(given, SAMPLES)):
                began = began or time.monotonic()  # starting a worker is not in it
                found.append(each)
                if len(found) >= LEAST and time.monotonic() - began > seconds:
                    break
    return found


def _learned(loader: DataLoader[Any], learned: list[Fetched]) -> Storage:
    """Draw from what was seen what a sample reads, and what an epoch does."""
    samples = sum(each.rows for each in learned)
    files = {path: told for each in learned for path, told in each.files.items()}
    held = {path: size for each in learned for path, size in each.held.items() if path not in files}
    opened = sum(size for each in learned for size, _ in each.files.values())
    read = sum(each.read_bytes for each in learned)
    # part of a large file is read by calls; a mapped file is read without any
    needed: float = min(opened, read) if read > opened / 10 else opened
    length = _samples_in(loader)
    own = sum(size for size, _ in files.values())
    total: float | None = own + sum(held.values())
    if files and len(files) > 0.9 * sum(len(each.files) for each in learned):  # files of a sample's own
        total = None if length is None else own / samples * length + sum(held.values())
    if held:
        needed += max(read - opened, sum(held.values()) / length * samples if length else 0)
    in_cache = [(size, cached) for size, cached in files.values()]
    in_cache += [(size, cached_bytes(path)) for path, size in held.items()]
    known = [(size, cached) for size, cached in in_cache if cached is not None]
    size = sum(size for size, _ in known)
    return Storage(
        needed / max(1, samples),
        sum(len(each.files) for each in learned) / max(1, samples),
        total,
        sum(cached for _, cached in known) / size if len(known) == len(in_cache) and size else None,
        0.0 if held else max(0.0, 1 - opened / read) if read > opened + len(learned) * 65536 else 0.0,
        samples,
    )


def _samples_in(loader: DataLoader[Any]) -> int | None:
    """Return the samples of an epoch, where the dataset says how many it has."""
    try:
        return len(loader.dataset)  # type: ignore[arg-type]  # a dataset need not have a length
    except TypeError:
        return None


def _measured(loader: DataLoader[Any], learned: list[Fetched], told: Storage, seconds: float) -> Storage:
    """Fetch the same samples from memory, from the disk by one worker, and by several at once."""
    keys = [each.key for each in learned]
    paths = {path for each in learned for path in (*each.files, *each.held)}
    warm = _fetch(loader, keys, 1, 3 * seconds)
    stayed = put_out(paths)
    if stayed is None or stayed > 1 - EMPTIED:
        left = (
            "the system does not report it" if stayed is None else f"{stayed:.0%} of their bytes stayed there"
        )
        return replace(told, why_not=f"the files could not be removed from the page cache ({left})")
    cold = _fetch(loader, keys, 1, 3 * seconds)
    put_out(paths)
    several = max(2, loader.num_workers)
    crowd = _fetch(loader, keys, several, 3 * seconds)
    if min(len(warm), len(cold), len(crowd)) < LEAST:
        return replace(told, why_not=f"fewer than {LEAST} samples were read")
    # the first samples open what later ones find open, and start what runs once
    more = [_taken_s(slow) - _taken_s(fast) for fast, slow in zip(warm[2:], cold[2:], strict=False)]
    more = [each / max(1, told.samples / len(learned)) for each in more]
    wait_s = max(0.0, mean(more))
    off = 2 * stdev(more) / len(more) ** 0.5 / wait_s if wait_s else 1.0
    prepare_s = mean(_taken_s(each) / each.rows for each in warm[2:])
    # between two samples a worker hands one over; its waits for a core are in neither figure
    between_s = max(0.0, median(b.begin_s - a.end_s for a, b in pairwise(cold[2:])))
    crowd_s = mean(_taken_s(each) / each.rows for each in crowd[several:])
    wall_s = (crowd_s + between_s) / several
    measured = replace(told, wait_s=wait_s, off=min(1.0, off))
    return replace(measured, busy_s=busy_of(wait_s, wall_s, several, prepare_s + between_s, measured))


def _taken_s(each: Fetched) -> float:
    return max(0.0, each.end_s - each.begin_s - each.no_core_s)
