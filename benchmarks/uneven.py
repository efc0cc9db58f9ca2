"""How long does a loop wait where one sample in twenty takes twenty times as long? Beside a plain DataLoader.

What is isolated: the order in which batches are begun. Slow samples wait (as for a disk, or a server), so workers need
no core of their own and a busy machine changes little. The loop takes a batch every `pace` seconds, so that workers are
busy for `--busy` of the time. Four ways, each with the same workers:

    plain        torch's DataLoader: each worker in turn, handed out in order
    as ready     the same with in_order=False: another order in every run, so no run can be repeated
    tsnb, first  a stream with a seed, its first epoch: nothing is known of any sample yet
    tsnb         its epochs after that

Memory is equal in batches: a stream's consumer is granted two batches ahead, so the plain loaders may prepare as many
more as that needs (the next whole prefetch_factor: they have what is left over as well).

    python -m benchmarks.uneven [--workers 2 4 8] [--batch 4 8] [--rounds 3] [--busy 0.8] [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import tsnb
from tsnb.words import text_table

SLOW_IN, TIMES = 20, 20.0
SEED, PREFETCH, GRANTED = 7, 2, 2
GOAL = 1 / 3


class Uneven(Dataset[Any]):
    """Waits for each sample."""

    def __init__(self, samples: int, sample_s: float) -> None:
        self.samples, self.sample_s = samples, sample_s
        luck = torch.Generator().manual_seed(0)
        self.slow: list[bool] = (torch.rand(samples, generator=luck) < 1 / SLOW_IN).tolist()

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.sample_s * (TIMES if self.slow[index] else 1.0))
        return torch.tensor(index)

    @property
    def mean_s(self) -> float:
        """Seconds of a sample."""
        return self.sample_s * (1 + (TIMES - 1) * sum(self.slow) / self.samples)


@dataclass(frozen=True)
class Row:
    """One number of workers with one batch size."""

    workers: int
    batch: int
    room: int
    """Batches that a plain loader prepares ahead; the stream: those and what its consumer is granted."""
    plain_s: float
    """Seconds that the loop waited in an epoch; median of the rounds, as all of them."""
    as_ready_s: float
    first_s: float
    later_s: float
    spread: float
    """Largest over smallest of `later_s` of the rounds."""

    @property
    def share(self) -> float:
        """Of a plain loader's waiting."""
        return self.later_s / self.plain_s if self.plain_s else math.nan


def waited(batches: Iterable[Any], pace_s: float) -> float:
    """Go through an epoch at this pace; return the seconds waited, but for those until the first batch."""
    total_s, wanted_s = 0.0, None
    for _ in batches:
        now_s = time.monotonic()
        if wanted_s is not None:
            total_s += max(0.0, now_s - wanted_s)
        wanted_s = now_s + pace_s
        time.sleep(pace_s)
    return total_s


def measure(workers: int, batch: int, rounds: int, batches: int, sample_s: float, busy: float) -> Row:
    """Measure one combination, the ways in turn in each round."""
    data = Uneven(batch * batches, sample_s)
    pace_s = data.mean_s * batch / workers / busy
    ahead = math.ceil((workers * PREFETCH + GRANTED) / workers)
    plain: list[float] = []
    ready: list[float] = []
    first: list[float] = []
    later: list[float] = []
    for number in range(rounds):
        for into, in_order in ((plain, True), (ready, False)):
            options: dict[str, Any] = {"num_workers": workers, "prefetch_factor": ahead, "in_order": in_order}
            into.append(waited(DataLoader(data, batch, shuffle=True, **options), pace_s))
        loader = DataLoader(data, batch, shuffle=True, num_workers=workers, prefetch_factor=PREFETCH)
        with tsnb.serve(loader, name=f"uneven-{os.getpid()}-{number}", seed=SEED) as producer:
            consumer = tsnb.attach("loop", producer.name)
            first.append(waited(consumer, pace_s))
            later.append(waited(consumer, pace_s))
    plain_s, ready_s, first_s, later_s = (statistics.median(each) for each in (plain, ready, first, later))
    return Row(
        workers,
        batch,
        workers * ahead,
        plain_s,
        ready_s,
        first_s,
        later_s,
        max(later) / max(min(later), 1e-9),
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text."""
    head = [
        "workers", "batch", "plain waits", "as ready", "tsnb, first epoch", "tsnb", "of plain", "largest / smallest",
    ]  # fmt: skip
    cells = [
        [
            str(row.workers), str(row.batch), f"{row.plain_s:.2f} s", f"{row.as_ready_s:.2f} s", f"{row.first_s:.2f} s",
            f"{row.later_s:.2f} s", f"{row.share:.2f}", f"{row.spread:.2f}",
        ]
        for row in rows
    ]  # fmt: skip
    return "\n".join(text_table([head, *cells]))


def verdict(rows: Sequence[Row]) -> str:
    """Say in a line what was reached of what is wanted."""
    reached = sum(row.share <= GOAL for row in rows)
    typical = statistics.median(row.share for row in rows)
    return f"{reached} of {len(rows)} wait a third of a plain loader's time or less; median {typical:.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; print the table.

    Args:
        arguments: Left out: those of the command line.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.uneven", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--batch", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=200, help="of an epoch (200)")
    parser.add_argument("--sample-ms", type=float, default=4.0, help="of an ordinary sample (4)")
    parser.add_argument("--busy", type=float, default=0.8, help="share of the time that workers work (0.8)")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--quick", action="store_true", help="short: only to see that it works")
    given = parser.parse_args(arguments)
    if given.quick:
        given.workers, given.batch, given.rounds, given.batches = [2], [4], 1, 40
    if "in_order" not in inspect.signature(DataLoader).parameters:
        print(
            "this torch has no in_order: batches are begun in turn, and there is nothing to compare (2.6 has it)"
        )
        return 0
    rows = []
    for workers in given.workers:
        for batch in given.batch:
            sample_s = given.sample_ms / 1000
            rows.append(measure(workers, batch, given.rounds, given.batches, sample_s, given.busy))
            print(table(rows[-1:]), flush=True)
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"\n{cores} cores, load {load:.1f}; medians of {given.rounds} rounds of {given.batches} batches\n")
    print(f"{table(rows)}\n\n{verdict(rows)}")
    print("not measured: slow samples that need a core (on fewer cores than workers they slow each other)")
    if given.json is not None:
        told = {"cores": cores, "load": load, "rows": [{**asdict(row), "share": row.share} for row in rows]}
        given.json.write_text(json.dumps(told, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
