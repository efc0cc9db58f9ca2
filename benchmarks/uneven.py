"""How long does a loop wait where one sample in twenty takes twenty times as long? Beside a plain DataLoader.

What is isolated: the order in which batches are begun. Slow samples wait (as for a disk, or a server), so workers need
no core of their own; but a busy machine makes handing over dearer, a plain loader's most. The loop takes a batch every
`pace` seconds, so that workers are busy for `--busy` of the time. Four ways, each with the same workers, and the
samples of a round in the same order:

    plain        torch's DataLoader: each worker in turn, handed out in order
    as ready     the same with in_order=False: another order in every run, so no run can be repeated
    tsnb, first  a stream with a seed, its first epoch: nothing is known of any sample yet
    tsnb         its second epoch

Memory is equal, to the batch: beside what the loop has in hand, a plain loader has `prefetch_factor x workers` batches
begun or ready. A stream has that many begun and not given, and beside them `window` given and not taken. So it is
served with prefetch_factor 2 and a window of as many batches as there are workers, and the plain loaders have
prefetch_factor 3. It is served from a process of its own, as a notebook's streams are.

Waiting is the time inside `next`, but for the first batch's. Some of it is no waiting for samples: to hand over a batch
that lies ready takes time too, and no order of beginning avoids it. `alike` is what a loop waits at the same pace where
no sample is slow, so that every batch lies ready. What another rule could save: benchmarks.uneven_simulated.

    python -m benchmarks.uneven [--workers 2 4 8] [--batch 4 8] [--rounds 3] [--busy 0.8] [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import tsnb
from tsnb.text.words import text_table

SLOW_IN, TIMES = 20, 20.0
SEED, PREFETCH = 7, 2
GOAL = 1 / 3
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch", "tsnb.serving.starting"])  # once, not for each stream


class Uneven(Dataset[Any]):
    """Waits for each sample."""

    def __init__(self, samples: int, sample_s: float, slow_in: float = SLOW_IN) -> None:
        self.samples, self.sample_s = samples, sample_s
        luck = torch.Generator().manual_seed(0)
        self.slow: list[bool] = (torch.rand(samples, generator=luck) < 1 / slow_in).tolist()

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.took_s(index))
        return torch.tensor(index)

    def took_s(self, index: int) -> float:
        """Seconds of this sample."""
        return self.sample_s * (TIMES if self.slow[index] else 1.0)

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
    """Batches that are begun or ready, and not taken yet."""
    plain_s: float
    """Seconds that the loop waited in an epoch; median of the rounds, as all of them."""
    as_ready_s: float
    first_s: float
    later_s: float
    spread: float
    """Largest over smallest of `later_s` of the rounds; each has an order of its own."""
    plain_alike_s: float
    alike_s: float
    """Where no sample is slow, in one epoch: the rest is what slow samples cost."""

    @property
    def share(self) -> float:
        """Of a plain loader's waiting."""
        return self.later_s / self.plain_s if self.plain_s else math.nan

    @property
    def bound(self) -> float:
        """The share if no batch were ever waited for: what handing over batches that lie ready takes."""
        return self.alike_s / self.plain_s if self.plain_s else math.nan


def waited(batches: Iterable[Any], pace_s: float, order: list[int] | None = None) -> float:
    """Go through an epoch at this pace; return the seconds waited, but for those until the first batch.

    Args:
        batches: Of indices.
        pace_s: Seconds that the loop works on a batch.
        order: Where the indices are put, in the order in which they come.
    """
    total_s, wanted_s = 0.0, None
    for batch in batches:
        if wanted_s is not None:
            total_s += time.monotonic() - wanted_s
        if order is not None:
            order += batch.tolist()
        time.sleep(pace_s)
        wanted_s = time.monotonic()  # not when it should have ended: a sleep lasts longer on a busy machine
    return total_s


def _serve(data: Uneven, workers: int, batch: int, seed: int, name: str, over: Connection) -> None:
    loader = DataLoader(data, batch, shuffle=True, num_workers=workers, prefetch_factor=PREFETCH)
    with tsnb.serve(loader, name=name, seed=seed, window=workers), contextlib.suppress(EOFError):
        over.send(None)
        over.recv()


@contextlib.contextmanager
def streamed(data: Uneven, workers: int, batch: int, seed: int) -> Iterator[Any]:
    """Serve samples from another process; give what takes an epoch of them in each loop."""
    ours, theirs = _context.Pipe()
    name = f"uneven-{os.getpid()}"
    producer = _context.Process(target=_serve, args=(data, workers, batch, seed, name, theirs))
    producer.start()
    theirs.close()
    ours.recv()
    with ours, tsnb.attach("loop", name) as consumer:
        yield consumer
    producer.join()


def measure(workers: int, batch: int, rounds: int, batches: int, sample_s: float, busy: float) -> Row:
    """Measure one combination, the ways in turn in each round."""
    data = Uneven(batch * batches, sample_s)
    pace_s = data.mean_s * batch / workers / busy

    def torchs(data: Uneven, order: list[int], in_order: bool) -> DataLoader[Any]:
        options: dict[str, Any] = {"num_workers": workers, "in_order": in_order}
        return DataLoader(data, batch, sampler=order, prefetch_factor=PREFETCH + 1, **options)

    ways: list[tuple[float, ...]] = []
    for number in range(rounds):
        order: list[int] = []
        with streamed(data, workers, batch, SEED + number) as stream:
            first_s, later_s = waited(stream, pace_s), waited(stream, pace_s, order)
        plain_s, ready_s = (waited(torchs(data, order, each), pace_s) for each in (True, False))
        ways.append((plain_s, ready_s, first_s, later_s))
    alike = Uneven(batch * batches, sample_s, math.inf)
    plain_alike_s = waited(torchs(alike, order, True), pace_s)
    with streamed(alike, workers, batch, SEED) as stream:
        alike_s = waited(stream, pace_s)
    plain_s, ready_s, first_s, later_s = (statistics.median(each) for each in zip(*ways, strict=True))
    spread = max(way[3] for way in ways) / max(min(way[3] for way in ways), 1e-9)
    room = workers * (PREFETCH + 1)
    return Row(workers, batch, room, plain_s, ready_s, first_s, later_s, spread, plain_alike_s, alike_s)


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text."""
    head = [
        "workers", "batch", "plain waits", "as ready", "tsnb, first epoch", "tsnb", "of plain", "plain, alike",
        "tsnb, alike", "bound", "largest / smallest",
    ]  # fmt: skip
    cells = [
        [
            str(row.workers), str(row.batch), f"{row.plain_s:.2f} s", f"{row.as_ready_s:.2f} s", f"{row.first_s:.2f} s",
            f"{row.later_s:.2f} s", f"{row.share:.2f}", f"{row.plain_alike_s:.2f} s", f"{row.alike_s:.2f} s",
            f"{row.bound:.2f}", f"{row.spread:.2f}",
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
        told = {
            "cores": cores,
            "load": load,
            "rows": [{**asdict(row), "share": row.share, "bound": row.bound} for row in rows],
        }
        given.json.write_text(json.dumps(told, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
