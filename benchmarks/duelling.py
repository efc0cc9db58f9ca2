"""Does a change help: what pairing gains, how often a verdict is wrong, and after how many seeds it comes.

Real trainings of an MLP on scikit-learn's digits, each epoch in an order of its own. A *pair* trains the incumbent
and an edit from one seed on the same batches, as the two arms of a block of `tsnb.duel` do; *apart* each has its own.
All of it runs in this process, so that a thousand trainings are few minutes. The statistics are those of `tsnb.duels`.

- `pairing`: the standard deviation of a difference, apart and in pairs. It decides how many seeds are needed.
- `null`: edits that change nothing but the random numbers that the arm draws. How many duels call a difference?
- `planted`: the incumbent plus a known gain, of 1 and 2 standard deviations of a seed.
- `rivals`: the careful person, who trains 27 seeds an arm apart and looks once, and one run each, keep if better.

Run `python -m benchmarks.duelling`; with --quick in a minute. With --times: how long duels take (`duelling_times`).
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from tsnb.duels.seeds import Block, Rules
from tsnb.duels.verdict import BETTER, NONE, OPEN, WORSE, judge

BATCH = 64
HELD_OUT = 597
"""Digits that the metric is taken of; 1,200 are trained on."""
RUNS = 27
"""Of an arm, of the careful person: 95 % power at one standard deviation, in a t-test at 5 % that is looked at once."""


@dataclass(frozen=True)
class Edit:
    """What is changed in the training."""

    rate: float = 0.1
    width: int = 32
    draws: bool = False
    """Draws other random numbers after the weights: as good as no change."""
    dropout: float = 0.2


INCUMBENT = Edit()
NOTHING = Edit(draws=True)
EDITS = {
    "null: other draws": NOTHING,
    "rate 0.1 -> 0.12": Edit(rate=0.12),
    "rate 0.1 -> 0.2": Edit(rate=0.2),
    "dropout 0.2 -> 0.1": Edit(dropout=0.1),
    "width 32 -> 64": Edit(width=64),
}


class Digits:
    """The data, shuffled once."""

    def __init__(self) -> None:
        found = load_digits()
        order = np.random.default_rng(0).permutation(len(found.target))
        pixels = torch.tensor(found.data[order] / 16, dtype=torch.float32)
        labels = torch.tensor(found.target[order])
        self.train = pixels[HELD_OUT:], labels[HELD_OUT:]
        self.held_out = pixels[:HELD_OUT], labels[:HELD_OUT]


def trained(data: Digits, edit: Edit, seed: int, order: int, epochs: int) -> float:
    """Return the loss on the held-out digits of one training."""
    torch.manual_seed(seed)
    one, two = torch.nn.Linear(64, edit.width), torch.nn.Linear(edit.width, 10)
    if edit.draws:
        torch.rand(7)
    optimizer = torch.optim.SGD([*one.parameters(), *two.parameters()], lr=edit.rate, momentum=0.9)
    orders = torch.Generator().manual_seed(order)
    pixels, labels = data.train
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(labels), generator=orders), BATCH):
            hidden = torch.dropout(torch.relu(one(pixels[rows])), edit.dropout, True)
            loss = cross_entropy(two(hidden), labels[rows])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
    with torch.inference_mode():
        return float(cross_entropy(two(torch.relu(one(data.held_out[0]))), data.held_out[1]))


def pairing(data: Digits, seeds: int, epochs: int) -> dict[str, tuple[float, float, float]]:
    """Return the mean difference of each edit, and its standard deviation apart and in pairs."""
    base = [trained(data, INCUMBENT, seed, seed, epochs) for seed in range(seeds)]
    found = {}
    for name, edit in EDITS.items():
        pairs = [trained(data, edit, seed, seed, epochs) - base[seed] for seed in range(seeds)]
        others = [trained(data, edit, 10_000 + seed, 10_000 + seed, epochs) for seed in range(seeds)]
        apart = math.sqrt(statistics.variance(others) + statistics.variance(base))
        found[name] = statistics.fmean(pairs), apart, statistics.stdev(pairs)
    return found


def pools(data: Digits, seeds: int, epochs: int) -> tuple[Any, Any]:
    """Return differences of pairs that a null edit made, and the incumbent's losses, [seeds] each."""
    base = [trained(data, INCUMBENT, seed, seed, epochs) for seed in range(seeds)]
    null = [trained(data, NOTHING, seed, seed, epochs) for seed in range(seeds)]
    return np.array(null) - np.array(base), np.array(base)


def decided(differences: Sequence[float], most: int = 40) -> tuple[str, int]:
    """Return the verdict of a duel, looked at after each pair, and after how many it came."""
    rules = Rules("loss", "min", most=most)
    blocks = [Block(at, at, 0.0, float(difference)) for at, difference in enumerate(differences[:most], 1)]
    verdict = judge(blocks, rules)  # as if looked at after each: what stands never changes
    return verdict.word, len(verdict.blocks)


def duels(pool: Any, gain: float, number: int, generator: Any) -> tuple[dict[str, int], float]:
    """Return how many of some duels had which verdict, and the median of the seeds that they took."""
    words, needed = dict.fromkeys((BETTER, WORSE, NONE, OPEN), 0), []
    for _ in range(number):
        word, blocks = decided(generator.permutation(pool)[:40] - gain)
        words[word] += 1
        needed.append(blocks)
    return words, statistics.median(needed)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few seeds and duels")
    parser.add_argument("--times", action="store_true", help="how long a duel on decoded JPEG takes instead")
    options = parser.parse_args(arguments)
    if options.times:
        from benchmarks.duelling_times import measure

        measure(quick=options.quick)
        return
    torch.set_num_threads(1)
    seeds, pool_of, number, epochs = (4, 48, 6, 1) if options.quick else (16, 400, 200, 4)
    data, generator, began_s = Digits(), np.random.default_rng(1), time.monotonic()
    print("edit                   effect   apart   pair   apart/pair")
    for name, (effect, apart, pair) in pairing(data, seeds, epochs).items():
        print(f"{name:20} {effect:+9.4f} {apart:7.4f} {pair:6.4f}   {apart / pair:6.1f}")
    pool, base = pools(data, pool_of, epochs)
    of_seed, of_pair = float(base.std(ddof=1)), float(pool.std(ddof=1))
    print(
        f"standard deviation: of a seed {of_seed:.4f}, of a null pair {of_pair:.4f}: {of_seed / of_pair:.2f}"
    )
    centred = pool - pool.mean()
    for label, gain in (
        ("null", 0.0),
        ("1 deviation of a pair", of_pair),
        ("1 deviation of a seed", of_seed),
        ("2 deviations of a seed", 2 * of_seed),
    ):
        words, needed = duels(centred, gain, number, generator)
        said = ", ".join(f"{word} {count}" for word, count in words.items() if count)
        print(f"{label:24} of {number}: {said}; {needed:g} seeds in the median, the careful person {RUNS}")
    kept = float((pool < 0).mean())
    print(f"one run each, keep if better: keeps {kept:.0%} of the null edits")
    print(f"{time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    main()
