"""Does `tsnb.plan` foretell how long several unequal trials take, and does it choose well?

What is isolated: mixes of trials that burn known CPU time on one loader that does; each mix is planned once, and then
every way of the table is really run, in the order and with the number at once that the plan names. `off` is foretold
over measured; `regret` is how much longer the chosen way took than the one that turned out best.

    python -m benchmarks.planning [--mix NAME ...] [--quick]

The figures stand in docs/before.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import tsnb
from tsnb.planning.conducting import conduct
from tsnb.planning.ways import Foretold

BATCH = 8
SAMPLES = 1600


class Costly(Dataset[Any]):
    """Each sample takes CPU time."""

    def __init__(self, ms: float, samples: int) -> None:
        self.ms, self.samples = ms, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        end = time.thread_time() + self.ms / 1000
        while time.thread_time() < end:
            pass
        return torch.zeros(3, 32, 32)


def train(ms: float, epochs: int) -> None:
    """Take every batch, and burn CPU time on it."""
    for _ in range(epochs):
        for batch in tsnb.attach():
            end = time.thread_time() + ms / 1000 * len(batch)
            while time.thread_time() < end:
                pass


@dataclass(frozen=True)
class Mix:
    """A loader and its trials."""

    loader_ms: float
    """CPU milliseconds that a sample takes to prepare."""
    trials: tuple[tuple[float, int], ...]
    """CPU milliseconds a sample, and epochs, of each."""


MIXES = {
    "loader-bound": Mix(4.0, ((0.5, 1), (0.5, 1), (1.0, 1))),
    "model-bound": Mix(0.5, ((2.0, 1), (3.0, 1))),
    "one-slow": Mix(1.0, ((0.3, 2), (0.3, 2), (4.0, 1))),
    "long-and-short": Mix(2.0, ((0.5, 3), (1.0, 1), (2.0, 1), (0.5, 1))),
}


@dataclass(frozen=True)
class Row:
    """One way of one mix."""

    mix: str
    way: str
    foretold_s: float
    low_s: float
    high_s: float
    measured_s: float
    chosen: bool

    @property
    def off(self) -> float:
        """Foretold over measured, less 1."""
        return self.foretold_s / self.measured_s - 1


def rows_of(name: str, mix: Mix, samples: int, seconds: float) -> list[Row]:
    """Plan a mix, and then really run every way of it."""
    loader = DataLoader(Costly(mix.loader_ms, samples), BATCH, shuffle=True, num_workers=1)
    trials = {f"t{i}": (train, {"ms": ms, "epochs": epochs}) for i, (ms, epochs) in enumerate(mix.trials)}
    told = tsnb.plan(trials, loader=loader, seconds=seconds)
    print(told, file=sys.stderr, flush=True)
    rows = []
    for way in told.ways:
        began = time.perf_counter()
        _run(told, way)
        took_s = time.perf_counter() - began
        rows.append(Row(name, way.way, way.makespan_s, *way.interval_s, took_s, way is told.choice))
    return rows


def _run(told: tsnb.Plan, way: Foretold) -> None:
    sizes = {name: cost.memory_bytes for name, cost in told.costs.items()}
    done = conduct(way, told.wanted, told.loader, "benchmark", 1, sizes, float("inf"))
    if failed := [trial.name for trial in done.values() if trial.state != "done"]:
        raise SystemExit(f"{failed[0]} {done[failed[0]].state}: {done[failed[0]].logs()}")


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| mix | way | foretold s | four times in five | measured s | off | |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        mark = "chosen" if row.chosen else ""
        lines.append(
            f"| {row.mix} | {row.way} | {row.foretold_s:.1f} | {row.low_s:.1f}-{row.high_s:.1f} | "
            f"{row.measured_s:.1f} | {row.off:+.0%} | {mark} |"
        )
    return "\n".join(lines)


def verdict(rows: Sequence[Row]) -> str:
    """Say how near the figures are, how often their intervals hold, and what choosing cost."""
    off = [abs(row.off) for row in rows]
    inside = sum(row.low_s <= row.measured_s <= row.high_s for row in rows)
    regrets = []
    for mix in dict.fromkeys(row.mix for row in rows):
        own = [row for row in rows if row.mix == mix]
        took_s = next(row.measured_s for row in own if row.chosen)
        regrets.append(took_s / min(row.measured_s for row in own) - 1)
    return (
        f"Median {statistics.median(off):.0%} off, most {max(off):.0%} (the aim: 8% and 15%); {inside} of {len(rows)} "
        f"within their interval; regret of the choice: median {statistics.median(regrets):.0%}, most "
        f"{max(regrets):.0%} (the aim: 5%)."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        "benchmarks.planning", description="Planned trials, and really run ones."
    )
    parser.add_argument("--mix", nargs="+", choices=list(MIXES), default=list(MIXES))
    parser.add_argument("--quick", action="store_true", help="one mix, short: only to see that it works")
    given = parser.parse_args(arguments)
    mixes, samples, seconds = given.mix, SAMPLES, 1.5
    if given.quick:
        mixes, samples, seconds = ["model-bound"], 400, 0.2
    rows = [row for name in mixes for row in rows_of(name, MIXES[name], samples, seconds)]
    print(f"{len(os.sched_getaffinity(0))} cores\n\n{table(rows)}\n\n{verdict(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
