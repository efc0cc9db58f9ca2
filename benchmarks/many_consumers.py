"""What one batch costs a producer's decisions with 1 to 128 consumers, and what a reading of the stream costs.

The decisions are run here by themselves (`tsnb.stream.decisions`): no socket, no loader, no tensor. Each consumer takes
every batch, says that it waits, and releases the batch, as a fast trial does. Rounds of all sizes are interleaved, so
that a busy machine slows all of them alike. A reading is made by a real producer with as many attached consumers, under
its lock.

    python -m benchmarks.many_consumers [--batches 60] [--rounds 7]

The figures stand in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time

import torch

import tsnb
from tsnb.extensions.readings import reading
from tsnb.stream.decisions import events as ev
from tsnb.stream.decisions.dispatch import Dispatch
from tsnb.stream.protocol import messages as ms

SIZES = (1, 2, 8, 16, 32, 64, 128)
WINDOW, BAND = 8, 8


def batch_s(consumers: int, batches: int) -> float:
    """Return the CPU seconds of the decisions for one batch that so many consumers take.

    Args:
        consumers: How many.
        batches: Over so many the time is averaged.
    """
    dispatch = Dispatch(WINDOW, BAND, 30.0)
    leases: list[tuple[int, int]] = []

    def step(event: ev.Event, now: float) -> None:
        for made in dispatch.step(event, now):
            if isinstance(made, ev.Granted):
                leases.append((made.member, made.lease))

    for key in range(consumers):
        step(ev.Heard(key, ms.Hello("consumer", f"c{key}", "")), 0.0)
        step(ev.Heard(key, ms.Ask(1)), 0.0)
    begun = 0.0
    for at in range(batches + WINDOW):
        if at == WINDOW:
            begun = time.thread_time()
        now = float(at)
        wanted = dispatch.wanted
        assert wanted is not None
        step(ev.BatchLoaded(wanted.run, ev.Placed(at, b"", 1, 0, 0)), now)
        granted, leases = leases, []
        for key, lease in granted:
            step(ev.Heard(key, ms.Take()), now)
            step(ev.Heard(key, ms.Waiting()), now)
            step(ev.Heard(key, ms.Release(lease)), now)
    return (time.thread_time() - begun) / batches


def reading_s(consumers: int, rounds: int) -> float:
    """Return the CPU seconds of one reading of a stream with so many attached consumers: the median of some."""
    name = f"read-{consumers}"
    with (
        tsnb.serve([torch.zeros(1)] * 4, name=name, late_join=1.0, max_batch_bytes=1 << 20) as producer,
        contextlib.ExitStack() as there,
    ):
        for n in range(consumers):
            next(iter(there.enter_context(tsnb.attach(f"c{n}", name))))
        found = []
        for _ in range(rounds):
            with producer.core.lock:
                begun = time.thread_time()
                reading(producer.core)
                found.append(time.thread_time() - begun)
        return statistics.median(found)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    found: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(options.rounds):
        for size in SIZES:
            found[size].append(batch_s(size, options.batches * (8 if size <= 8 else 1)))
    print("consumers  decisions for a batch, ms: median (fastest to slowest)  over one consumer")
    for size, times in found.items():
        over = statistics.median(a / b for a, b in zip(times, found[1], strict=True))
        median, least, most = (1e3 * f(times) for f in (statistics.median, min, max))
        print(f"{size:9}  {median:.3f} ({least:.3f} to {most:.3f})  {over:.0f}x")
    print("consumers  one reading, ms")
    for size in SIZES:
        print(f"{size:9}  {1e3 * reading_s(size, options.rounds * 3):.2f}")


if __name__ == "__main__":
    main()
