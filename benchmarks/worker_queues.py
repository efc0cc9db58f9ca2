"""What does one batch cost on its way from a loader's worker, over Python's queues and over packets?

What is isolated: torch's own `DataLoader` in a tight loop, whose batches are one small number each and cost nothing to
make. Both kinds of queue are measured in turn, with fresh workers each time, so other programs meet both alike.

    python -m benchmarks.worker_queues [--workers 1,2] [--batches 5000] [--rounds 9] [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from torch.utils.data import DataLoader, Dataset

from tsnb.stream.loader.queues import QueueContext

WARM = 500
"""Batches before the first that is timed."""


class Numbers(Dataset[int]):
    """A batch is its number."""

    def __init__(self, batches: int) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, index: int) -> int:
        return index


@dataclass(frozen=True)
class Row:
    """One way, over the rounds."""

    workers: int
    queues: str
    batch_us: float
    """Microseconds a batch, the median."""
    spread: tuple[float, float]
    cpu_us: float
    """Microseconds of processor time of the loading process a batch, the median."""


def one_round(workers: int, batches: int, *, packets: bool) -> tuple[float, float]:
    """Return microseconds a batch: by the clock, and of this process's processor time.

    Args:
        workers: Processes of the loader.
        batches: How many are timed.
        packets: Whether they come over packets; else over Python's queues.
    """
    fork: Any = get_context("fork")
    loader = DataLoader(Numbers(WARM + batches), batch_size=None, num_workers=workers)
    # past torch's own check: it takes contexts of multiprocessing alone
    vars(loader)["_DataLoader__multiprocessing_context"] = QueueContext(fork) if packets else fork
    numbers = iter(loader)
    for _ in range(WARM):
        next(numbers)
    began_s, used_s = time.perf_counter(), time.process_time()
    left = sum(1 for _ in numbers)
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - used_s
    assert left == batches, "batches were lost"
    return took_s / batches * 1e6, cpu_s / batches * 1e6


def measure(workers: int, batches: int, rounds: int) -> list[Row]:
    """Measure both ways in turn."""
    times: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(rounds):
        for packets, taken in times.items():
            taken.append(one_round(workers, batches, packets=packets))
    return [
        Row(
            workers,
            "packets" if packets else "Python's",
            statistics.median(clock for clock, _ in each),
            (min(clock for clock, _ in each), max(clock for clock, _ in each)),
            statistics.median(cpu for _, cpu in each),
        )
        for packets, each in times.items()
    ]


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    head = "| workers | queues | microseconds a batch: median (range) | CPU of the loading process |"
    lines = [head, "|---|---|---|---|"]
    for row in rows:
        low, high = row.spread
        lines.append(
            f"| {row.workers} | {row.queues} | {row.batch_us:.0f} ({low:.0f} to {high:.0f}) | {row.cpu_us:.0f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.worker_queues", description=__doc__.splitlines()[0])
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--batches", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="the smallest run")
    options = parser.parse_args(arguments)
    batches, rounds = (200, 1) if options.quick else (options.batches, options.rounds)
    rows = [row for each in options.workers.split(",") for row in measure(int(each), batches, rounds)]
    print(table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
