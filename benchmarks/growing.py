"""Data that grows: what finding a sample costs, how fast selected samples come, and how soon a round begins.

    python -m benchmarks.growing --index      # where a sample lies: this index, a search, a learned index
    python -m benchmarks.growing --rate       # samples a second: in sequence, shuffled, in rounds of selected ones
    python -m benchmarks.growing --trigger    # from a file's rename to the first batch of the round that it begins

Each by itself; without any of them all three, and with `--quick` so few samples that it only shows whether they run.

`--index`: the best of several runs in one process. `--rate`: two streams over the same samples, one in sequence and
one shuffled, in turns; medians over the repeats, and each way against the sequence of the same run. What is isolated:
the order of the samples. The first batches of each epoch do not count, as they were prepared before. `--trigger`: a
round of each new file, `settle_s=0`, while the trial waits for it. On a busy machine compare the ratios. Not measured:
disks (all files are in the page cache).
"""

from __future__ import annotations

import argparse
import bisect
import io
import os
import random
import statistics
import tempfile
import threading
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

import tsnb
from tsnb.growing.index import GrowthIndex

SAMPLES = 1_000_000
LEAVES = 1024
LOOKUPS = 2000


def best_s(call: Callable[[int], Any], numbers: list[int]) -> float:
    """Return the seconds of one call: the best of seven runs over all numbers."""
    return min(timeit.repeat(lambda: [call(i) for i in numbers], number=1, repeat=7)) / len(numbers)


class Learned:
    """Two levels of linear models over sorted keys, each with its largest error, as a learned index has them."""

    def __init__(self, keys: np.ndarray[Any, Any]) -> None:
        places, line = np.arange(len(keys)), np.polyfit(keys.astype(float), np.arange(len(keys)), 1)
        self._root = float(line[0]) * LEAVES / len(keys), float(line[1]) * LEAVES / len(keys)
        self._keys = keys.tolist()
        self._leaves: list[tuple[float, float, int]] = []
        leaf = np.clip((self._root[0] * keys + self._root[1]).astype(int), 0, LEAVES - 1)
        for number in range(LEAVES):
            own = places[leaf == number]
            if len(own) < 2:
                self._leaves.append((0.0, float(own[0]) if len(own) else 0.0, 1))
                continue
            slope, base = np.polyfit(keys[own].astype(float), own, 1)
            wrong = int(np.abs(slope * keys[own] + base - own).max()) + 2
            self._leaves.append((float(slope), float(base), wrong))

    def find(self, key: int) -> int:
        """Return the place of a key."""
        number = min(LEAVES - 1, max(0, int(self._root[0] * key + self._root[1])))
        slope, base, wrong = self._leaves[number]
        guess = int(slope * key + base)
        return bisect.bisect_left(self._keys, key, max(0, guess - wrong), max(0, guess + wrong))


def photo() -> bytes:
    """Return a JPEG of 500 x 375 pixels."""
    noise = np.random.default_rng(0).integers(0, 255, (94, 125, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).resize((500, 375)).save(file, "JPEG", quality=90)
    return file.getvalue()


def lookups() -> dict[str, float]:
    """Return the seconds of finding one of a million samples, in three ways, and of decoding one."""
    chooser = random.Random(0)
    numbers = [chooser.randrange(SAMPLES) for _ in range(LOOKUPS)]
    keys = np.sort(np.random.default_rng(0).integers(0, 1 << 40, SAMPLES))
    learned, listed, jpeg = Learned(keys), keys.tolist(), photo()
    assert all(listed[learned.find(listed[i])] == listed[i] for i in numbers)
    with tempfile.TemporaryDirectory() as directory:
        index = GrowthIndex(directory)
        with index.writing():
            index.append_lines(np.arange(SAMPLES) * 101, np.full(SAMPLES, 100))
        index.record(0)
        return {
            "where a sample lies, by its number (this index)": best_s(index.record, numbers),
            "np.searchsorted in sorted keys": best_s(lambda i: np.searchsorted(keys, keys[i]), numbers),
            "a learned index of two levels": best_s(lambda i: learned.find(listed[i]), numbers),
            "decoding one JPEG of 500 x 375": best_s(
                lambda _: np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB")), numbers[:50]
            ),
        }


WAYS = ("in sequence", "shuffled", "a round, recent", "a round, hard:0.3")
WINDOW = 4
NOT_COUNTED = 2 * WINDOW
"""Batches of each epoch's beginning: those of the window, and what workers prepare ahead."""


class Size(NamedTuple):
    """How much is measured."""

    photos: int
    rows: int
    repeats: int
    files: tuple[int, ...]
    """In the folder while rounds are triggered."""
    rounds: int


WHOLE, QUICK = Size(1200, 200_000, 3, (100, 10_000), 20), Size(80, 1600, 1, (20,), 2)


def decoded(path: str) -> torch.Tensor:
    """Return a photo's pixels, uint8 [375, 500, 3]."""
    return torch.from_numpy(np.array(Image.open(path).convert("RGB")))


def row_of(line: bytes) -> torch.Tensor:
    """Return four numbers."""
    return torch.tensor([float(word) for word in line.split()])


def photos_in(folder: Path, count: int) -> Any:
    """Return a data set of so many JPEG files."""
    jpeg = photo()
    for number in range(count):
        (folder / f"{number:06}.jpg").write_bytes(jpeg)
    return tsnb.data.grow(folder, decoded, settle_s=0)


def rows_in(folder: Path, count: int) -> Any:
    """Return a data set of so many lines of one file."""
    (folder / "rows.txt").write_text("".join(f"{i} 1.5 {i / 7:.3f} 2\n" for i in range(count)))
    return tsnb.data.grow(folder / "rows.txt", row_of)


def pace(consumer: Any, *, reports: bool = False) -> float:
    """Take one epoch; return its samples a second, those after `NOT_COUNTED`.

    Args:
        consumer: Attached.
        reports: Whether to report a loss of each sample.
    """
    began_s, counted, draws = 0.0, 0, random.Random(0)
    for number, batch in enumerate(consumer):
        if number > NOT_COUNTED:
            counted += len(batch)
        elif number == NOT_COUNTED:
            began_s = time.monotonic()
        if reports:
            consumer.report([draws.random() for _ in range(len(batch))])
    return counted / (time.monotonic() - began_s)


def rates(grown: Any, repeats: int, batch_size: int) -> dict[str, list[float]]:
    """Return samples a second by way, one number a repeat.

    Args:
        grown: The samples; from 0.3 of them a round has more batches than are left out.
        repeats: Each takes every way once, in turns.
        batch_size: Samples in a batch.
    """
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    part = round(0.3 * len(grown))

    def stream(name: str, shuffle: bool) -> Any:
        loader = DataLoader(grown, batch_size, shuffle=shuffle, num_workers=1, persistent_workers=True)
        return tsnb.serve(loader, name=name, window=WINDOW, seed=0)

    with stream("rate-sequence", False), stream("rate-shuffled", True):
        first, second = tsnb.attach("one", "rate-sequence"), tsnb.attach("two", "rate-shuffled")
        pace(first)
        pace(second, reports=True)
        for _ in range(repeats):
            found["in sequence"].append(pace(first))
            found["shuffled"].append(pace(second))
            for way, select in (("a round, recent", f"recent:{part}"), ("a round, hard:0.3", "hard:0.3")):
                tsnb.data.rounds("rate-shuffled", tsnb.data.interval("0.1s"), select=select)
                pace(second)  # the epoch whose first batches had been prepared before
                found[way].append(pace(second))
            tsnb.data.rounds("rate-shuffled", None)
            pace(second)  # the same
        first.close()
        second.close()
    return found


def delays(files: int, rounds: int) -> list[float]:
    """Return the seconds from a file's rename into the folder to the first batch of the round that it begins.

    Args:
        files: In the folder at the beginning.
        rounds: How many to measure.
    """
    found = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "incoming")
        folder.mkdir()
        for number in range(files):
            (folder / f"{number:06}").write_text(str(number))
        loader = DataLoader(tsnb.data.grow(folder, _number, settle_s=0), 64, num_workers=0)
        with tsnb.serve(loader, name="trigger", window=WINDOW), tsnb.attach("one", "trigger") as consumer:
            for _ in consumer:
                pass
            tsnb.data.rounds("trigger", tsnb.data.every(1), select="new")
            draws = random.Random(0)
            for number in range(files, files + rounds):
                written = _write_later(folder, number, 0.5 + draws.random())
                for batch in consumer:
                    found.append(time.monotonic() - written[0])
                    assert batch.tolist() == [number]
            tsnb.data.rounds("trigger", None)
    return found


def _number(path: str) -> int:
    return int(Path(path).read_text())


def _write_later(folder: Path, number: int, after_s: float) -> list[float]:
    """Have a file appear after some seconds, while the caller waits for its round; returns when, once it has."""
    written: list[float] = []

    def write() -> None:
        beside = folder / f"{number:06}.tmp"
        beside.write_text(str(number))
        written.append(time.monotonic())
        beside.rename(folder / f"{number:06}")

    timer = threading.Timer(after_s, write)
    timer.daemon = True
    timer.start()
    return written


def print_index() -> None:
    """Print where a sample lies."""
    for way, seconds in lookups().items():
        print(f"{way:<50} {seconds * 1e6:10.1f} us")


def print_rates(size: Size) -> None:
    """Print samples a second of photos and of tiny rows."""
    made: tuple[tuple[str, Callable[[Path, int], Any], int, int], ...] = (
        ("JPEG of 500 x 375", photos_in, size.photos, 16 if size is WHOLE else 2),
        ("rows of four numbers", rows_in, size.rows, 256 if size is WHOLE else 32),
    )
    for kind, make, count, batch_size in made:
        with tempfile.TemporaryDirectory() as place:
            found = rates(make(Path(place), count), size.repeats, batch_size)
        sequence = statistics.median(found[WAYS[0]])
        for way, each in found.items():
            middle = statistics.median(each)
            spread = f"{min(each):,.0f} to {max(each):,.0f}"
            print(f"{kind:<22} {way:<20} {middle:12,.0f} samples/s  {middle / sequence:6.1%}  ({spread})")


def print_delays(size: Size) -> None:
    """Print how soon a round begins."""
    for files in size.files:
        found = sorted(delays(files, size.rounds))
        middle = statistics.median(found)
        print(
            f"{files:>7,} files: {middle:.2f} s in the middle, {found[-1]:.2f} s at most, {len(found)} rounds"
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--index", action="store_true", help="where a sample lies")
    parser.add_argument("--rate", action="store_true", help="how fast selected samples come")
    parser.add_argument("--trigger", action="store_true", help="how soon a round begins")
    parser.add_argument("--quick", action="store_true", help="few samples: only to see that it works")
    given = parser.parse_args()
    size = QUICK if given.quick else WHOLE
    every = not (given.index or given.rate or given.trigger)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if given.index or every:
        print_index()
    if given.rate or every:
        print_rates(size)
    if given.trigger or every:
        print_delays(size)


if __name__ == "__main__":
    main()
