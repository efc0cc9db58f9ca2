"""How long does a trial take whose neighbours stop now and then: to validate, to save a checkpoint, to compile?

One trial has work for two seconds in all: four epochs of 100 batches. Its neighbours train at the same pace, and each
of them stops for V seconds once an epoch. A step sleeps instead of computing, so that other programs on the machine
change little. `alone` is the time of the same trial without a neighbour, measured in the same round; `over alone` is
what the neighbours cost it. A figure is the median of the rounds, and the spread is the largest over the smallest.

    1 of 2, 1 of 4, 3 of 4    how many of the trials stop
    together                  they stop between two epochs, all at the same moment
    apart                     they stop in the middle of an epoch, each at another batch

    python -m benchmarks.standing [--seconds 0 1 4 16] [--bytes 1000 ...] [--rounds 3] [--json FILE] [--quick]

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
from multiprocessing import get_context
from pathlib import Path
from queue import Empty
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import tsnb
from tsnb.text.words import size_text, text_table

EPOCHS = 4
BATCHES = 100
STEP_S = 0.005
SHAPES = ((1, 2, "together"), (1, 2, "apart"), (1, 4, "together"), (3, 4, "together"), (3, 4, "apart"))
"""Trials that stop, trials in all, and how they stop."""
SIZES = (1_000, 100_000, 1_200_000, 38_500_000)

_fork = get_context("fork")


class Blank(Dataset[torch.Tensor]):
    """Batches that cost nothing to prepare, but the memory that they are written to."""

    def __init__(self, batches: int, batch_bytes: int) -> None:
        self._batches = batches
        self._batch = torch.zeros(batch_bytes, dtype=torch.uint8)

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, _index: int) -> torch.Tensor:
        return self._batch


@dataclass(frozen=True)
class Case:
    """What is measured."""

    stops_s: float
    """Seconds that a neighbour stops in each epoch."""
    standing: int
    trials: int
    when: str
    batch_bytes: int
    batches: int = BATCHES


@dataclass(frozen=True)
class Row:
    """One case: medians over the rounds."""

    case: Case
    alone_s: float
    beside_s: float
    over_alone: float
    spread: float
    most_kept: int
    """Batches that lay in memory at once, at most."""


def train(stream: str, name: str, case: Case, place: int, serving: Any, together: Any, told: Any) -> None:
    """Train, in its own process.

    Args:
        stream: The stream's name.
        name: The trial's.
        case: What is measured.
        place: Which of those that stop it is, from 1 on; 0: it does not stop.
        serving: Set once the stream serves.
        together: All trials wait there for each other before they begin.
        told: The seconds of the training are put there.
    """
    serving.wait()
    stops_at = (
        case.batches if case.when == "together" else max(1, place * case.batches // (case.standing + 1))
    )
    consumer = tsnb.attach(name, stream)
    together.wait()
    began_s = 0.0
    for _ in range(EPOCHS):
        for taken, _batch in enumerate(consumer, 1):
            began_s = began_s or time.monotonic()
            time.sleep(STEP_S)
            if place and case.stops_s and taken == stops_at < case.batches:
                time.sleep(case.stops_s)
        if place and case.stops_s and stops_at == case.batches:
            time.sleep(case.stops_s)
    told.put((name, time.monotonic() - began_s))


def measured(case: Case, trials: int) -> tuple[float, int]:
    """Return the seconds of the trial that does not stop, and how many batches lay in memory at most.

    Args:
        case: What is measured.
        trials: How many train; 1: only the one that does not stop.
    """
    serving, together, told = _fork.Event(), _fork.Barrier(trials), _fork.Queue()
    stream = f"standing-{os.getpid()}"
    running = []
    for number in range(trials):
        place = 0 if number == 0 or number > case.standing else number
        rest = (stream, f"trial{number}", case, place, serving, together, told)
        running.append(_fork.Process(target=train, args=rest, daemon=True))
        running[-1].start()
    loader = DataLoader(Blank(case.batches, case.batch_bytes), batch_size=None, num_workers=1)
    late_join = 0.3 if case.batch_bytes < 1 << 20 else 0.1
    kept, done = 0, ""
    with tsnb.serve(loader, name=stream, late_join=late_join) as producer:
        serving.set()
        try:
            while done != "trial0":
                kept = max(kept, producer.status().slots_used)
                try:
                    done, seconds = told.get(timeout=0.05)
                except Empty:
                    if not running[0].is_alive():
                        raise RuntimeError(f"the trial ended with {running[0].exitcode}") from None
        finally:
            for process in running:
                process.kill()
                process.join()
    return seconds, kept


def measure(case: Case, rounds: int) -> Row:
    """Measure one case; the trial alone and beside its neighbours, in turns."""
    found = []
    for _ in range(rounds):
        alone_s, _kept = measured(case, 1)
        found.append((alone_s, *measured(case, case.trials)))
    ratios = [beside_s / alone_s for alone_s, beside_s, _kept in found]
    return Row(
        case,
        statistics.median(each[0] for each in found),
        statistics.median(each[1] for each in found),
        statistics.median(ratios),
        max(ratios) / min(ratios),
        max(each[2] for each in found),
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text."""
    head = [
        "stops", "which stop", "when", "batch", "alone", "beside them", "over alone", "spread", "most kept",
    ]  # fmt: skip
    cells = [
        [
            f"{row.case.stops_s:g} s", f"{row.case.standing} of {row.case.trials}", row.case.when,
            size_text(row.case.batch_bytes), f"{row.alone_s:.2f} s", f"{row.beside_s:.2f} s", f"{row.over_alone:.2f}",
            f"{row.spread:.2f}", str(row.most_kept),
        ]
        for row in rows
    ]  # fmt: skip
    return "\n".join(text_table([head, *cells]))


def cases(seconds: Sequence[float], sizes: Sequence[int]) -> list[Case]:
    """Return what is measured: all shapes with the smallest batch, and all sizes where one of two stops for 4 s."""
    smallest = min(sizes)
    found = [Case(stops_s, *SHAPES[0], smallest) for stops_s in seconds]
    middle = sorted(seconds)[len(seconds) // 2]
    found += [Case(middle, *shape, smallest) for shape in SHAPES[1:]]
    found += [Case(middle, *SHAPES[0], size) for size in sizes if size != smallest]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; print the table.

    Args:
        arguments: Left out: those of the command line.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.standing", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--seconds", type=float, nargs="+", default=[0, 1, 4, 16], help="that neighbours stop"
    )
    parser.add_argument("--bytes", type=int, nargs="+", default=list(SIZES), help="of a batch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--quick", action="store_true", help="short: only to see that it works")
    given = parser.parse_args(arguments)
    wanted = cases(given.seconds, given.bytes)
    if given.quick:
        given.rounds, wanted = 1, [Case(0.5, *SHAPES[0], 1_000, 20)]
    torch.set_num_threads(1)
    rows = []
    for case in wanted:
        rows.append(measure(case, given.rounds))
        print(table(rows[-1:]), flush=True)
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"\n{cores} cores, load {load:.1f}; medians of {given.rounds} rounds\n\n{table(rows)}")
    if given.json is not None:
        told = {"cores": cores, "load": load, "rows": [asdict(row) for row in rows]}
        given.json.write_text(json.dumps(told, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
