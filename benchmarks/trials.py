"""What a trial kernel costs before its first line runs: forked from the warm server, and spawned.

    python -m benchmarks.trials [--at-once 1 4 20] [--rounds 5] [--json FILE]

**Ready** is the time from `run_cell` to the first line of the cell, in seconds. The cell uses the notebook's torch,
as nearly every trial does, so torch is imported before that line. **All ready** is the same for the last of those
that were started at once. **Own** is the memory that one kernel has for itself (USS, MiB) with its cell done, while
the others of its round still live: what ends with it. The server's own is there once, and printed below the table.

A **stream** is ready when `serve_loader` has returned and the first batch of a small loader without workers has been
taken by a consumer in this process.

Both ways are measured in turns in one process; each figure is the median over all trials of all rounds.
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
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb.experiments import run_cell, trials
from tsnb.experiments.trial import Trial
from tsnb.hosting import serve_loader
from tsnb.kernels.hub import the_hub
from tsnb.kernels.processes import forking

WAYS = ("forked", "spawned")
CELL = "import time\narrived = time.time()\ntorch.zeros(1)"
LONGEST_S = 300.0


class Silent:
    """An outlet for trials that nobody watches."""

    def publish(self, kind: str, content: dict[str, Any]) -> None:
        """Drop one message."""


@dataclass(frozen=True)
class Row:
    """One way to start, so many at once."""

    way: str
    """Forked or spawned."""
    at_once: int
    """How many were started together."""
    ready_s: float
    """Asked for until the first line of the cell runs."""
    all_ready_s: float
    """The same for the last one."""
    own_mib: float
    """Memory of one kernel that no other process shares."""


def one_round(way: str, at_once: int) -> tuple[list[float], list[float]]:
    """Start so many trials at once; return the seconds until each was ready, and the MiB each has for itself."""
    os.environ["TSNB_START"] = "spawn" if way == "spawned" else ""
    asked: list[tuple[float, Trial]] = []
    for n in range(at_once):
        moment = time.time()
        asked.append((moment, run_cell(f"t{n}", CELL, {"torch": torch}, outlet=Silent())))
    trials.wait(LONGEST_S)
    own = [psutil.Process(trial.pid).memory_full_info().uss / 2**20 for _, trial in asked]
    ready = [trial.pull("arrived") - moment for moment, trial in asked]
    trials.stop()
    return ready, own


def one_stream(way: str) -> float:
    """Start a stream from a background kernel; return the seconds until its first batch was here."""
    os.environ["TSNB_START"] = "spawn" if way == "spawned" else ""
    loader = DataLoader(TensorDataset(torch.arange(64)), batch_size=16)
    moment = time.monotonic()
    kernel = serve_loader(loader, "started", outlet=Silent())
    with tsnb.attach("c", stream="started") as consumer:
        next(iter(consumer))
        ready_s = time.monotonic() - moment
    kernel.stop()
    return ready_s


def measure_streams(rounds: int) -> dict[str, float]:
    """Measure both ways in turns; return the median seconds of each."""
    ready: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in WAYS:
            ready[way].append(one_stream(way))
            print(f"  a stream, {number + 1}/{rounds}, {way}: {ready[way][-1]:.2f} s", file=sys.stderr)
    return {way: round(statistics.median(seconds), 3) for way, seconds in ready.items()}


def measure(at_once: int, rounds: int) -> list[Row]:
    """Measure both ways in turns; return a row of each."""
    ready: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    own: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in WAYS:
            seconds, mib = one_round(way, at_once)
            ready[way].append(seconds)
            own[way] += mib
            print(f"  {at_once} at once, {number + 1}/{rounds}, {way}: {max(seconds):.2f} s", file=sys.stderr)
    return [
        Row(
            way,
            at_once,
            round(statistics.median(s for seconds in ready[way] for s in seconds), 3),
            round(statistics.median(map(max, ready[way])), 3),
            round(statistics.median(own[way]), 1),
        )
        for way in WAYS
    ]


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table of text, each pair with what forking takes of what spawning takes."""
    lines = [
        "| at once | ready: forked | spawned | of it | all: forked | spawned | of it | own: forked | spawned | of it |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for forked, spawned in zip(rows[::2], rows[1::2], strict=True):
        cells = [
            _three(forked.ready_s, spawned.ready_s, "{:.2f} s"),
            _three(forked.all_ready_s, spawned.all_ready_s, "{:.2f} s"),
            _three(forked.own_mib, spawned.own_mib, "{:.0f} MiB"),
        ]
        lines.append(f"| {forked.at_once} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _three(forked: float, spawned: float, form: str) -> str:
    return f"{form.format(forked)} | {form.format(spawned)} | {forked / spawned:.0%}"


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 4, 20])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(words)
    rows: list[Row] = []
    one_round("forked", 1)  # the server is warm from here on
    for at_once in given.at_once:
        rows += measure(at_once, max(1, given.rounds if at_once < 10 else given.rounds // 2))
    streams = measure_streams(given.rounds)
    os.environ["TSNB_START"] = ""
    server = forking.the_server(the_hub())
    own = psutil.Process(server.pid).memory_full_info().uss / 2**20 if server is not None else 0.0
    print(table(rows))
    print(f"\na stream: {_three(streams['forked'], streams['spawned'], '{:.2f} s')}")
    print(f"{os.cpu_count()} cores; the server itself has {own:.0f} MiB of its own")
    if given.json is not None:
        kept = {
            "cores": os.cpu_count(),
            "server_mib": round(own, 1),
            "streams": streams,
            "rows": [asdict(row) for row in rows],
        }
        given.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
