"""Trials that need different samples of one data set: a loader for each, or their parts of one stream.

What is isolated: preparing samples. Trials do no training; they touch the first and the last value of a batch. JPEG
photos are decoded and made small at each access, one process of its own a trial, one worker a loader. So private
loaders use all cores, and one shared loader no more than one and what trials need; with a worker a core ("shared, 2
workers" on two cores) it uses them all, too.

- *folds*: cross-validation. Each of five trials takes four fifths of the photos in each epoch, and after the last one
  the fifth that was held out. "private": five processes with two loaders each over `Subset`s. "shared": five processes
  that attach with `fold=(k, 5)` and `held_out=True` to one producer.
- *curve*: a learning curve. Trials on 10, 30 and 100 % of the photos, nested; private loaders or `subset=`.
- *overlap*: three parts that overlap and leave samples out. From the second epoch on exactly their union is prepared.
- *order*: whether the order in which a consumer gets its samples is uniform: how often which eighth of its samples came
  in which eighth of its epoch, over many epochs, by a chi-square test (49 degrees of freedom). Beside it the rule by
  which Joader's published sampler picks the next sample of a set (`random_pick`: a block of 128 numbers at random, and
  of that the lowest that is left), written anew here.

CPU seconds are those of all processes and their workers from the moment that all have started; imports are not in them.

    python -m benchmarks.subsets [--photos 400] [--epochs 8] [--repeats 3] [--json FILE] [--quick]

The figures are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import random
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset

import tsnb
from tsnb.stream.consumer.batches.parts import Part

NAME = "benchmark-subsets"
SMALL, BATCH, FOLDS = 48, 20, 5
SIDE = 640
"""Pixels a side of a photo."""
SHARES = (0.1, 0.3, 1.0)
EIGHTHS = 8
BLOCK = 128
"""Numbers in one block of Joader's bitmaps."""

CORES = max(2, len(os.sched_getaffinity(0)))
WAYS = {"private": 0, "shared": 1, f"shared, {CORES} workers": CORES}
"""Workers of the shared loader; 0: there is none."""

_context = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Row:
    """One way of feeding the trials of one scenario."""

    scenario: str
    """ "folds" or "curve"."""
    way: str
    """ "private", "shared", or "shared, 2 workers"."""
    prepared: int
    """Calls of `__getitem__`, of all trials together."""
    cpu_s: float
    """Seconds of CPU of all processes."""
    wall_s: float
    """Until the last trial had its last batch."""


@dataclass(frozen=True)
class Order:
    """Whether an order is uniform."""

    whose: str
    """A consumer's part, or the other rule."""
    samples: int
    """In the part."""
    statistic: float
    """Chi-square; 49 on average where the order is uniform."""
    p: float
    """How often a uniform order would give that or more."""


class Photos(Dataset[Any]):
    """JPEG files in memory, decoded and made small at each access; counts the calls."""

    def __init__(self, photos: int) -> None:
        draws = np.random.default_rng(0)
        self.files = [_photo(draws) for _ in range(16)]
        self.photos = photos
        self.calls = torch.zeros(photos, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return self.photos

    def __getitem__(self, index: int) -> Any:
        self.calls[index] += 1  # one loader never prepares the same sample twice at once
        picture = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        small = picture.resize((SMALL, SMALL), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.asarray(small).copy()), index


class Numbers(Dataset[int]):
    """Sample i is i."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        return index


def _photo(draws: np.random.Generator) -> bytes:
    coarse = draws.integers(0, 255, (SIDE // 8, SIDE // 8, 3), np.uint8)
    picture = Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    noisy = np.asarray(picture, np.int16) + draws.integers(-12, 13, (SIDE, SIDE, 3))
    file = io.BytesIO()
    Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=85)
    return file.getvalue()


def loader_of(dataset: Dataset[Any], workers: int = 1) -> DataLoader[Any]:
    """Return a loader as any way has it."""
    return DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)


# -- trials -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """What one trial takes."""

    options: dict[str, Any]
    """Of `tsnb.attach`, for what it trains on."""
    held_out: bool
    """Whether it takes the held-out fold at its end."""

    def masks(self, photos: int) -> list[npt.NDArray[np.bool_]]:
        """Return what it trains on, and what it validates on if it does."""
        parts = [Part(self.options.get("subset"), self.options.get("fold"))]
        parts += [Part(fold=self.options["fold"], held_out=True)] if self.held_out else []
        return [part.mask(photos) for part in parts]


def scenarios(photos: int) -> dict[str, list[Trial]]:
    """Return the trials of each scenario."""
    order = np.random.default_rng(1).permutation(photos)
    return {
        "folds": [Trial({"fold": (k, FOLDS)}, True) for k in range(FOLDS)],
        "curve": [Trial({"subset": order[: int(share * photos)]}, False) for share in SHARES],
    }


def take(batches: Any, epochs: int) -> None:
    """Stand in for training."""
    for _ in range(epochs):
        for images, labels in batches:
            images[0, 0, 0, 0].item(), labels[-1].item()


def private(photos: Photos, trial: Trial, _number: int, epochs: int, start: Any) -> int:
    """Run one trial with loaders of its own; return the calls."""
    photos.calls = torch.zeros_like(photos.calls).share_memory_()  # type: ignore[no-untyped-call]
    parts: list[Any] = [Subset(photos, np.flatnonzero(m).tolist()) for m in trial.masks(len(photos))]
    start.wait()
    for part, times in zip(parts, (epochs, 1), strict=False):
        take(loader_of(part), times)
    return int(photos.calls.sum())


def shared(_photos: Photos, trial: Trial, number: int, epochs: int, start: Any) -> int:
    """Run one trial on the common stream; its calls are the producer's."""
    start.wait()
    train = tsnb.attach(f"train-{number}", stream=NAME, **trial.options)
    held = None
    if trial.held_out:
        held = tsnb.attach(f"held-{number}", stream=NAME, **trial.options, held_out=True)
    start.wait()  # all are there
    take(train, epochs)
    train.close()
    if held is not None:
        take(held, 1)
        held.close()
    return 0


def used_s() -> float:
    """Return this process's CPU seconds, and those of its children that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def _reporting(run: Callable[..., int], said: Any, *arguments: Any) -> None:
    torch.set_num_threads(1)
    before = used_s()
    calls = run(*arguments)
    said.put((calls, before))
    # persistent workers end with their loader's last reference, which has gone with `run`
    said.put((0, -used_s()))


def _produce(photos: Photos, workers: int, said: Any, up: Any, over: Any) -> None:
    torch.set_num_threads(1)
    before = used_s()
    with tsnb.serve(loader_of(photos, workers), name=NAME, seed=1):
        up.set()
        over.wait()
    said.put((int(photos.calls.sum()), before - used_s()))


def measure(scenario: str, way: str, trials: Sequence[Trial], photos: Photos, epochs: int) -> Row:
    """Run one scenario in one way, each trial in a process of its own."""
    photos.calls.zero_()
    start, said = _context.Barrier(len(trials) + 1), _context.Queue()
    up, over = _context.Event(), _context.Event()
    producer = None
    if workers := WAYS[way]:
        producer = _context.Process(target=_produce, args=(photos, workers, said, up, over))
        producer.start()
        up.wait()
    run = shared if producer is not None else private
    processes = [
        _context.Process(target=_reporting, args=(run, said, photos, trial, number, epochs, start))
        for number, trial in enumerate(trials)
    ]
    for process in processes:
        process.start()
    start.wait()
    began = time.monotonic()
    if producer is not None:
        start.wait()
    told = [said.get() for _ in range(2 * len(processes))]
    wall_s = time.monotonic() - began
    for process in processes:
        process.join()
    if producer is not None:
        over.set()
        told.append(said.get())
        producer.join()
    return Row(scenario, way, sum(calls for calls, _ in told), -sum(cpu for _, cpu in told), wall_s)


def overlap(photos: Photos, epochs: int) -> tuple[int, int, int]:
    """Return the samples of three parts together, of their union, and the calls an epoch from the second on."""
    order = np.random.default_rng(2).permutation(len(photos))
    half = len(photos) // 2
    parts = [order[:half], order[half // 2 : half + half // 2], order[half : half + half // 2]]
    photos.calls.zero_()
    with tsnb.serve(loader_of(photos), name=NAME, seed=1, window=64):
        consumers = [tsnb.attach(f"c{k}", stream=NAME, subset=part) for k, part in enumerate(parts)]
        calls = []
        for _ in range(epochs):
            before = int(photos.calls.sum())
            loops = [iter(consumer) for consumer in consumers]
            for loop, part in zip(loops, parts, strict=True):
                assert sorted(i for _, labels in loop for i in labels.tolist()) == sorted(part.tolist())
            calls.append(int(photos.calls.sum()) - before)
    union = len(set(np.concatenate(parts).tolist()))
    if set(calls[1:]) != {union}:
        raise SystemExit(f"calls an epoch {calls[1:]}, and the union has {union} samples")
    return sum(map(len, parts)), union, calls[-1]


# -- orders -----------------------------------------------------------------------------------------------------


def uniformity(whose: str, orders: list[list[int]]) -> Order:
    """Test whether orders of the same samples are uniform permutations."""
    samples = len(orders[0])
    eighth = {number: place * EIGHTHS // samples for place, number in enumerate(sorted(orders[0]))}
    counts = np.zeros((EIGHTHS, EIGHTHS))
    for order in orders:
        for place, number in enumerate(order):
            counts[eighth[number], place * EIGHTHS // samples] += 1
    expected = counts.sum(1, keepdims=True) * counts.sum(0, keepdims=True) / counts.sum()
    # rows and columns are fixed in every epoch, so counts vary a little less than drawn ones
    statistic = float(((counts - expected) ** 2 / expected).sum()) * (samples - 1) / samples
    half = torch.tensor([(EIGHTHS - 1) ** 2 / 2, statistic / 2], dtype=torch.float64)
    return Order(whose, samples, statistic, float(torch.special.gammaincc(half[0], half[1])))


def ours(samples: int, epochs: int) -> list[Order]:
    """Test the orders of three consumers of one real stream."""
    parts: dict[str, dict[str, Any]] = {
        "a third, at random": {"subset": np.random.default_rng(3).permutation(samples)[: samples // 3]},
        "fold 0 of 5": {"fold": (0, FOLDS)},
        "held out of fold 0 of 5": {"fold": (0, FOLDS), "held_out": True},
    }
    orders: dict[str, list[list[int]]] = {name: [] for name in parts}
    loader = DataLoader(Numbers(samples), 64, shuffle=True)
    with tsnb.serve(loader, name=NAME, seed=1, window=64):
        consumers = [tsnb.attach(f"c{k}", stream=NAME, **part) for k, part in enumerate(parts.values())]
        for _ in range(epochs):
            loops = [iter(consumer) for consumer in consumers]
            for name, loop in zip(parts, loops, strict=True):
                orders[name].append([i for batch in loop for i in batch.tolist()])
    return [uniformity(name, found) for name, found in orders.items()]


def published_rule(samples: int, epochs: int) -> Order:
    """Test the orders that Joader's published picker gives one job on the same third of the samples."""
    chosen = np.random.default_rng(3).permutation(samples)[: samples // 3].tolist()
    draws, orders = random.Random(1), []
    for _ in range(epochs):
        blocks: dict[int, list[int]] = {}
        for number in sorted(chosen, reverse=True):
            blocks.setdefault(number // BLOCK, []).append(number)
        order = []
        while blocks:
            block = draws.choice(list(blocks))
            order.append(blocks[block].pop())
            if not blocks[block]:
                del blocks[block]
        orders.append(order)
    return uniformity("a third, by Joader's published picker", orders)


# -- tables -----------------------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> str:
    """Return medians, spread and ratios as Markdown."""
    lines = [
        "| trials | way | samples prepared | CPU | against shared | wall clock | against shared |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for scenario in dict.fromkeys(row.scenario for row in rows):
        for way in WAYS:
            mine = [row for row in rows if (row.scenario, row.way) == (scenario, way)]
            base = [row for row in rows if (row.scenario, row.way) == (scenario, "shared")]
            cpu, wall = _spread([row.cpu_s for row in mine]), _spread([row.wall_s for row in mine])
            ratios = [
                statistics.median(getattr(row, column) for row in mine)
                / statistics.median(getattr(row, column) for row in base)
                for column in ("cpu_s", "wall_s")
            ]
            prepared = statistics.median(row.prepared for row in mine)
            lines.append(
                f"| {scenario} | {way} | {prepared:,.0f} | {cpu} | {ratios[0]:.1f}x | {wall} | {ratios[1]:.1f}x |"
            )
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} s ({min(values):.1f} to {max(values):.1f})"


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--photos", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="few photos, once: does it run")
    given = parser.parse_args()
    if given.quick:
        given.photos, given.epochs, given.repeats = 60, 3, 1
    photos = Photos(given.photos)
    rows = [
        measure(scenario, way, trials, photos, given.epochs)
        for _ in range(given.repeats)
        for scenario, trials in scenarios(given.photos).items()
        for way in WAYS
    ]
    load = os.getloadavg()[0]
    print(
        f"{given.photos} photos, {given.epochs} epochs and one validation of folds; {os.cpu_count()} cores, load "
        f"{load:.1f} now; median (least to most) of {given.repeats}\n"
    )
    print(table(rows))
    together, union, calls = overlap(photos, 4)
    print(
        f"\noverlap: three parts of {together} samples together, {union} in their union, {calls} prepared an epoch"
    )
    orders = [*ours(512, 60 if given.quick else 300), published_rule(512, 60 if given.quick else 300)]
    print("\n| order of | samples | chi-square (49 expected) | p |\n|---|--:|--:|--:|")
    for order in orders:
        print(f"| {order.whose} | {order.samples} | {order.statistic:,.0f} | {order.p:.2g} |")
    if given.json:
        found = {
            "rows": [asdict(row) for row in rows],
            "union": union,
            "calls": calls,
            "orders": [asdict(o) for o in orders],
        }
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
