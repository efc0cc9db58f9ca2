"""Rounds that choose by losses: the accuracy that a training has after so many samples.

    python -m benchmarks.choosing    # half a minute: all samples, even rounds of 0.3, hard:0.3 with weights and without

1,297 of scikit-learn's digits to train on, 500 to test, a small network, SGD with momentum; as they are, and with a
fifth of the training labels drawn anew ("wrong labels"). Rounds are drawn by `growing.inclusion`, as a stream draws
them; the stream itself is left out. What is isolated: which samples are taken. Medians over seeds.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits

from tsnb.growing.inclusion import hard
from tsnb.growing.losses import SampleLosses

TRAINING = 1297
SHARE = 0.3
WAYS = ("all", "even", "hard", "hard, without weights")
"""All samples in each epoch; rounds of a share of them drawn evenly; by losses; by losses, and every weight 1."""


class Point(NamedTuple):
    """Where a training stands."""

    samples: int
    """Trained on so far."""
    accuracy: float
    """On the samples for testing, 0 to 1."""


def training(way: str, wrong: float, seed: int, passes: float) -> list[Point]:
    """Train once; return where it stood after each round.

    Args:
        way: One of `WAYS`; the first epoch has all samples, however it goes on.
        wrong: Share of training labels that are drawn anew.
        seed: Of the split, the labels, the network and the order.
        passes: How many samples to train on, in epochs of all.
    """
    chooser = np.random.default_rng(seed)
    pixels, digits = load_digits(return_X_y=True)
    places = chooser.permutation(len(pixels))
    x, y = torch.tensor(pixels[places] / 16, dtype=torch.float32), torch.tensor(digits[places])
    drawn_anew = np.flatnonzero(chooser.random(TRAINING) < wrong)
    labels = y.clone()
    labels[drawn_anew] = torch.tensor(chooser.integers(0, 10, len(drawn_anew)))
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    known, stood, trained = SampleLosses(lambda: TRAINING), list[Point](), 0
    while trained < round(passes * TRAINING):
        samples, weights = _round(way if stood else "all", known, chooser, seed, len(stood))
        order = chooser.permutation(len(samples))
        for start in range(0, len(order), 32):
            rows = order[start : start + 32]
            losses = torch.nn.functional.cross_entropy(
                net(x[samples[rows]]), labels[samples[rows]], reduction="none"
            )
            known.note("net", samples[rows], losses.detach().numpy())
            optimizer.zero_grad()
            (losses * torch.tensor(weights[rows])).mean().backward()  # type: ignore[no-untyped-call]  # torch's
            optimizer.step()
        trained += len(samples)
        right = net(x[TRAINING:]).argmax(1) == y[TRAINING:]
        stood.append(Point(trained, float(right.float().mean())))
    return stood


def _round(
    way: str, known: SampleLosses, chooser: np.random.Generator, seed: int, number: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the samples of a round, and the weights to train with."""
    wanted = round(SHARE * TRAINING)
    if way == "all":
        return np.arange(TRAINING), np.ones(TRAINING, np.float32)
    if way == "even":
        return chooser.permutation(TRAINING)[:wanted], np.ones(wanted, np.float32)
    samples, weights = hard(known.mean(TRAINING), wanted, seed, number)
    return samples, weights if way == "hard" else np.ones_like(weights)


def at(stood: list[Point], passes: float) -> float:
    """Return the accuracy after so many samples, in epochs of all."""
    return [point.accuracy for point in stood if point.samples <= passes * TRAINING][-1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=15)
    parser.add_argument("--passes", type=float, nargs="+", default=[3.0, 5.0, 10.0])
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("samples trained on, in epochs of all:", *given.passes)
    for wrong in (0.0, 0.2):
        for way in WAYS:
            runs = [training(way, wrong, seed, max(given.passes)) for seed in range(given.seeds)]
            medians = [100 * float(np.median([at(run, passes) for run in runs])) for passes in given.passes]
            shown = "   ".join(f"{median:.1f} %" for median in medians)
            print(f"{100 * wrong:.0f} % wrong labels, {way:<24} {shown}")


if __name__ == "__main__":
    main()
