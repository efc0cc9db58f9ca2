"""Heads over one frozen trunk: computed by each trial, once for all, once for all epochs, or by a script of one's own.

What is isolated: the frozen part. Pictures lie in memory and cost next to nothing to prepare; a head is one linear
layer. Each trial is a process of its own with one torch thread, and so is the stream.

- *own trunk*: the trials share one stream of pictures, and each computes the trunk itself.
- *then*: `tsnb.serve(loader, then=trunk)`; trials take features.
- *then, cache*: the same with `cache=`; from the second epoch on no trunk runs.
- *script*: a program without tsnb goes through a loader once, writes features to a file, and then starts the same
  heads on the file, each with a loader of its own over it.

A process's start is apart from its work. To start, a process imports what it needs, makes a network and takes one step
of an optimizer: the first optimizer of a process imports a second's worth of torch's compiler. Work begins when all
processes have started, and ends with the last trial. `CPU` is the work of all processes, `start` their CPU seconds
before it. `later epoch` is the median time of an epoch from the second on, of the slowest trial.

Each loader has as many workers, and the script as many threads, as `--workers` says. Ways take turns in each repeat.
The order of samples is the same for the three streams. So the losses of the first trial are compared between them: the
largest difference of an epoch's mean loss is printed.

    python -m benchmarks.above [--samples 1500] [--heads 8] [--epochs 3] [--workers 2] [--repeats 3]
                                [--json FILE] [--quick]

The figures are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import tsnb

NAME = "benchmark-above"
SIDE, BATCH, CLASSES, FEATURES = 48, 50, 10, 128
WAYS = ("own trunk", "then", "then, cache", "script")

_context = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Row:
    """One way, once."""

    way: str
    wall_s: float
    """Until the last trial has ended."""
    cpu_s: float
    """CPU seconds of all processes from the end of their start on."""
    start_s: float
    """CPU seconds of all processes until then."""
    later_epoch_s: float
    """The median time of an epoch from the second on, of the slowest trial."""
    losses: list[float]
    """The first trial's mean loss in each epoch."""


class Pictures(Dataset[Any]):
    """Pictures in memory, whose class can be learned."""

    def __init__(self, samples: int) -> None:
        draws = np.random.default_rng(0)
        classes = draws.normal(size=(CLASSES, 3, SIDE, SIDE)).astype(np.float32)
        self.labels = draws.integers(0, CLASSES, samples)
        noise = draws.normal(size=(samples, 3, SIDE, SIDE)).astype(np.float32)
        self.pictures = ((classes[self.labels] + noise) * 20 + 128).clip(0, 255).astype(np.uint8)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(self.pictures[index]).float() / 128 - 1, int(self.labels[index])


def trunk_of() -> nn.Module:
    """Return the frozen part: some convolutions, always the same."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    wide = [3, 32, 64, FEATURES]
    for before, after in pairwise(wide):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    trunk = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return trunk.eval().requires_grad_(False)


def loader_of(dataset: Dataset[Any], *, workers: int, shuffle: bool = True) -> DataLoader[Any]:
    """Return a loader as any way has it."""
    return DataLoader(dataset, BATCH, shuffle=shuffle, num_workers=workers, persistent_workers=workers > 0)


def train(
    batches: Any, number: int, epochs: int, trunk: nn.Module | None = None
) -> tuple[list[float], list[float]]:
    """Train a head; return each epoch's seconds, and its mean loss."""
    torch.manual_seed(number)
    head = nn.Linear(FEATURES, CLASSES)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.01 * (1 + number))
    took, losses = [], []
    for _ in range(epochs):
        began, found = time.monotonic(), []
        for inputs, labels in batches:
            features = inputs
            if trunk is not None:
                with torch.no_grad():
                    features = trunk(inputs)
            loss = nn.functional.cross_entropy(head(features), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            found.append(loss.item())
        took.append(time.monotonic() - began)
        losses.append(statistics.fmean(found))
    return took, losses


def warm_up() -> None:
    """Import what a process needs, and take one step: what torch imports with a first optimizer belongs to a start."""
    _ = tsnb.attach, tsnb.serve  # both are imported when they are first named
    head = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    nn.functional.cross_entropy(head(torch.ones(1, 1)), torch.zeros(1, dtype=torch.long)).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def used_s() -> float:
    """Return this process's CPU seconds, and those of its children that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def trial(
    way: str, number: int, epochs: int, start: Any, ready: Any, there: Any, file: Path, said: Any
) -> None:
    """Run one head in a process of its own."""
    torch.set_num_threads(1)
    trunk = trunk_of() if way == "own trunk" else None
    warm_up()
    before = used_s()
    start.wait()
    ready.wait()  # the stream is served, or the file is written
    if way == "script":
        stored = np.load(file)
        dataset = TensorDataset(torch.from_numpy(stored["features"]), torch.from_numpy(stored["labels"]))
        took, losses = train(loader_of(dataset, workers=0), number, epochs)
    else:
        with tsnb.attach(f"head-{number}", NAME) as consumer:
            there.wait()  # all begin with the same epoch, so losses can be compared
            took, losses = train(consumer, number, epochs, trunk)
    said.put((number, took, losses, before, used_s() - before))


def produce(
    way: str, pictures: Pictures, workers: int, start: Any, ready: Any, over: Any, file: Path, said: Any
) -> None:
    """Serve the stream, or write the file."""
    torch.set_num_threads(workers if way == "script" else 1)
    trunk, loader = trunk_of(), loader_of(pictures, workers=workers)
    warm_up()
    before = used_s()
    start.wait()
    if way == "script":
        with torch.inference_mode():
            found = [(trunk(x), y) for x, y in loader_of(pictures, workers=workers, shuffle=False)]
        features, labels = (torch.cat(part).numpy() for part in zip(*found, strict=True))
        np.savez(file, features=features, labels=labels)
        ready.set()
    else:
        options: dict[str, Any] = {} if way == "own trunk" else {"then": trunk}
        options |= {"cache": "64MiB"} if way == "then, cache" else {}
        with tsnb.serve(loader, NAME, seed=1, late_join=1.0, **options):
            ready.set()
            over.wait()
    del loader
    said.put((-1, [], [], before, used_s() - before))


def measure(way: str, pictures: Pictures, workers: int, heads: int, epochs: int) -> Row:
    """Run one way once."""
    start, said = _context.Barrier(heads + 2), _context.Queue()
    ready, over, there = _context.Event(), _context.Event(), _context.Barrier(heads)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "features.npz"
        producer = _context.Process(
            target=produce, args=(way, pictures, workers, start, ready, over, file, said)
        )
        trials = [
            _context.Process(target=trial, args=(way, number, epochs, start, ready, there, file, said))
            for number in range(heads)
        ]
        for process in (producer, *trials):
            process.start()
        start.wait()
        began = time.monotonic()
        told = [said.get() for _ in range(heads + (way == "script"))]
        wall_s = time.monotonic() - began
        over.set()
        if way != "script":
            told.append(said.get())
        for process in (producer, *trials):
            process.join()
    found = {number: (took, losses) for number, took, losses, *_ in told}
    later = [max(found[n][0][epoch] for n in range(heads)) for epoch in range(1, epochs)]
    start_s, cpu_s = (sum(used) for used in list(zip(*told, strict=True))[3:])
    return Row(way, wall_s, cpu_s, start_s, statistics.median(later), found[0][1])


def table(rows: Sequence[Row]) -> str:
    """Return medians, spread and ratios as Markdown."""
    lines = [
        "| way | wall clock | sooner | CPU | less | later epoch | sooner | start (CPU) |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for way in WAYS:
        cells = []
        for column in ("wall_s", "cpu_s", "later_epoch_s"):
            mine = [getattr(row, column) for row in rows if row.way == way]
            base = [getattr(row, column) for row in rows if row.way == WAYS[0]]
            middle = statistics.median(mine)
            cells.append(f"{middle:.2f} s ({min(mine):.2f} to {max(mine):.2f})")
            cells.append(f"{statistics.median(base) / middle:.1f}x")
        cells.append(f"{statistics.median(row.start_s for row in rows if row.way == way):.2f} s")
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(lines)


def apart(rows: Sequence[Row]) -> float:
    """Return the largest difference of an epoch's mean loss between a stream with `then` and one without."""
    base = next(row.losses for row in rows if row.way == "own trunk")
    return max(
        abs(mine - other)
        for row in rows
        if row.way in ("then", "then, cache")
        for mine, other in zip(row.losses, base, strict=True)
    )


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=1500)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="few pictures, once: does it run")
    given = parser.parse_args()
    if given.quick:
        given.samples, given.heads, given.epochs, given.repeats = 200, 2, 2, 1
    pictures = Pictures(given.samples)
    rows = [
        measure(way, pictures, given.workers, given.heads, given.epochs)
        for _ in range(given.repeats)
        for way in WAYS
    ]
    print(
        f"{given.heads} heads, {given.samples} pictures, {given.epochs} epochs, {given.workers} workers; "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} now; median (least to most) of {given.repeats}\n"
    )
    print(table(rows))
    print(f"\nlargest difference of a mean loss between the streams: {apart(rows):.2g}")
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
