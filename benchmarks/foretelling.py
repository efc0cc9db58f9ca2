"""Does `tsnb.stalls` foretell a loader's pace at other shares of the page cache? Beside DS-Analyzer's formula.

What is isolated: a loader whose samples are files, with w workers, and a disk that is slow. `tsnb.stalls(loader,
cold=True)` is asked once, with everything in memory; then so many of the files are put out of the page cache, and the
loader really runs: what a reader has read from the disk is put out again, so the share stays as it is.

Two throttled readers, which ask the page cache whether it holds a file, and wait where it does not:

    one      one worker at a time, as in front of a disk that is busy with each read
    many     any number of workers at once, as for a disk far away

`ds-analyzer` is the slower of reading and preparing (Mohan et al., VLDB 2021), with the same measurements.

    python -m benchmarks.foretelling [--disk one many] [--workers 1 2] [--seconds 3] [--rounds 3] [--quick]

The figures are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import tsnb
from tsnb.machine.cores import cores_busy_s
from tsnb.machine.disks import cached_bytes, put_out
from tsnb.stalling import measuring
from tsnb.stalling.storage import preparing_s

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
DISKS = ("one", "many")
FILES = 600
SIZE = 64 * 1024
BATCH = 8
PREPARE_S = 0.002
WAIT_S = 0.006
WITHIN, TYPICAL = 0.15, 0.08


def ds_analyzer_s(
    workers: int, prepare_s: float, sample_bytes: float, memory_per_s: float, disk_per_s: float, cached: float
) -> float:
    """Return the seconds a sample by DS-Analyzer's formula, for comparison.

    Args:
        workers: Processes.
        prepare_s: Seconds a sample of one worker, in memory.
        sample_bytes: Bytes of a sample.
        memory_per_s: Bytes a second from the page cache.
        disk_per_s: Bytes a second from the disk.
        cached: Share of the samples in memory.
    """
    fetch_s = cached * sample_bytes / memory_per_s + (1 - cached) * sample_bytes / disk_per_s
    return max(fetch_s, prepare_s / max(1, workers))


class Files(Dataset[Any]):
    """Each sample is a file; decoding it takes CPU time.

    Attributes:
        kept: Files from this one on are put out of memory again when they have been read; None: all stay.
    """

    def __init__(self, folder: Path, *, one_at_a_time: bool) -> None:
        self.folder, self.one_at_a_time = folder, one_at_a_time
        self.kept: int | None = None

    def __len__(self) -> int:
        return FILES

    def __getitem__(self, index: int) -> torch.Tensor:
        path = str(self.folder / str(index))
        if not cached_bytes(path):
            with (self.folder / "queue").open("w") as queue:
                if self.one_at_a_time:
                    fcntl.flock(queue, fcntl.LOCK_EX)
                time.sleep(WAIT_S)
        with open(path, "rb") as file:  # noqa: PTH123  # as datasets do
            seen = len(file.read())
            if self.kept is not None and index >= self.kept:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        end = time.thread_time() + PREPARE_S
        while time.thread_time() < end:
            pass
        return torch.tensor(seen)


@dataclass(frozen=True)
class Row:
    """One share of the page cache."""

    disk: str
    workers: int
    share: float
    """Of the samples in memory."""
    foretold: float
    """Samples/s."""
    low: float
    high: float
    ds_analyzer: float
    measured: float
    """Samples/s; median of the rounds."""

    @property
    def off(self) -> tuple[float, float]:
        """Foretold over measured, less 1: ours, DS-Analyzer's."""
        return self.foretold / self.measured - 1, self.ds_analyzer / self.measured - 1


def pace(loader: DataLoader[Any], seconds: float) -> float:
    """Return the samples/s of a loader; the time in which its workers had no core is taken off."""
    ahead = loader.num_workers * (loader.prefetch_factor or 0)
    told = measuring.run(loader, None, seconds, ahead, len(loader))
    return told.samples / (told.wall_s - told.no_core_s)


def measured_rows(disk: str, workers: int, folder: Path, seconds: float, rounds: int) -> list[Row]:
    """Ask once, and then really run at every share."""
    dataset = Files(folder, one_at_a_time=disk == "one")
    loader = DataLoader(dataset, BATCH, shuffle=True, num_workers=workers)
    for index in range(FILES):  # all of them are in memory then
        (folder / str(index)).read_bytes()
    told = tsnb.stalls(loader, seconds=seconds, cold=True)
    print(told.text, file=sys.stderr, flush=True)
    seen = told.storage
    if seen is None or seen.wait_s is None:
        raise SystemExit(f"the disk was not measured: {seen}")
    prepare_s = preparing_s(told.plain.wall_s, workers, None, 1.0)
    rows = []
    for share in SHARES:
        dataset.kept = round(share * FILES)
        found = []
        for _ in range(rounds):
            for index in range(dataset.kept):
                (folder / str(index)).read_bytes()
            put_out(str(folder / str(index)) for index in range(dataset.kept, FILES))
            found.append(pace(loader, seconds))
        then = told.with_cached(share)
        theirs_s = ds_analyzer_s(workers, prepare_s, SIZE, 5e9, SIZE / seen.wait_s, share)
        rows.append(
            Row(
                disk,
                workers,
                share,
                then.loader_per_s,
                *then.interval,
                min(1 / theirs_s, told.loader_per_s),
                statistics.median(found),
            )
        )
    return rows


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| disk | workers | in memory | foretold | four times in five | measured | off | DS-Analyzer | off |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        ours, theirs = (f"{off:+.0%}" for off in row.off)
        lines.append(
            f"| {row.disk} | {row.workers} | {row.share:.0%} | {row.foretold:,.0f} | {row.low:,.0f}-{row.high:,.0f} | "
            f"{row.measured:,.0f} | {ours} | {row.ds_analyzer:,.0f} | {theirs} |"
        )
    return "\n".join(lines)


def verdict(rows: Sequence[Row]) -> str:
    """Say how near the figures are, and what the aim is."""
    ours, theirs = ([abs(row.off[which]) for row in rows] for which in (0, 1))
    inside = sum(row.low <= row.measured <= row.high for row in rows)
    return (
        f"tsnb: median {statistics.median(ours):.0%} off, most {max(ours):.0%} (the aim: {TYPICAL:.0%} and "
        f"{WITHIN:.0%}); {inside} of {len(rows)} within their interval. DS-Analyzer's formula: median "
        f"{statistics.median(theirs):.0%}, most {max(theirs):.0%}."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser("benchmarks.foretelling", description="Foretold paces, and real ones.")
    parser.add_argument("--disk", nargs="+", choices=DISKS, default=list(DISKS))
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement (default 3)")
    parser.add_argument("--rounds", type=int, default=3, help="of each real run (default 3)")
    parser.add_argument("--folder", type=Path, help="on the disk to read from; by default that of /var/tmp")
    parser.add_argument("--quick", action="store_true", help="one disk, short: only to see that it works")
    given = parser.parse_args(arguments)
    if given.quick:
        given.disk, given.workers, given.seconds, given.rounds = ["many"], [1], 0.3, 1
    rows: list[Row] = []
    busy, began = cores_busy_s() or 0.0, time.perf_counter()
    with tempfile.TemporaryDirectory(dir=given.folder or "/var/tmp") as made:  # noqa: S108  # on a disk, not a tmpfs
        folder = Path(made)
        for index in range(FILES):
            (folder / str(index)).write_bytes(os.urandom(SIZE))
        os.sync()
        for disk in given.disk:
            for workers in given.workers:
                print(f"{disk}, {workers} workers", file=sys.stderr, flush=True)
                rows += measured_rows(disk, workers, folder, given.seconds, given.rounds)
    cores = len(os.sched_getaffinity(0))
    taken = ((cores_busy_s() or 0.0) - busy) / (time.perf_counter() - began)
    print(
        f"{cores} cores ({taken:.1f} busy on average, other programs included), medians of {given.rounds} rounds of "
        f"{given.seconds:g} s\n\n{table(rows)}\n\n{verdict(rows)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
