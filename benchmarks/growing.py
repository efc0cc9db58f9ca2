"""Data that grows: what finding a sample costs beside decoding it.

    python -m benchmarks.growing --index    # where a sample lies: this index, a search, a learned index

Times are the best of several runs in one process; on a busy machine compare the ratios. Not measured: disks (all files
are in the page cache).
"""

from __future__ import annotations

import argparse
import bisect
import io
import os
import random
import tempfile
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from tsnb.samples.growth_index import GrowthIndex

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


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--index", action="store_true", help="where a sample lies, and nothing else")
    parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for way, seconds in lookups().items():
        print(f"{way:<50} {seconds * 1e6:10.1f} us")


if __name__ == "__main__":
    main()
