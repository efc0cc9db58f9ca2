"""Does `tsnb.plan` foretell how long several unequal trials take, and does it choose well?

What is isolated: mixes of two to four unequal trials, networks of one thread each, on four kinds of loader with one
worker. Each mix is planned once, and then every way of the table is really run, `--rounds` times in turn.

    jpeg     decodes a photo: the loader sets the pace of small trials
    large    600 kB a sample: copying counts
    tiny     a few numbers a sample: nearly all is the loops' own time
    read     waits for a disk that serves one read at a time, so a second loader slows the first

`off` is foretold over the median of the rounds, intervals are held against each run; `regret` is how much longer the
chosen way took than the one that turned out best, in medians (ways with the same schedule are one, with all of their
runs).
`left` is how far off `trial.eta` was when a quarter of a trial was done, of the time that it took from there.

With `--twelve` instead: twelve unequal trials on the photos, three ways: one after the other with a loader each and all
cores (`in turn`), a sweep as it is without a plan, and a planned one. Which comes first changes with each round.
`--at-once 4` lets both sweeps run no more than four at the same time, as a memory that has room for four would.

    python -m benchmarks.planning [--mix NAME ...] [--way NAME ...] [--scale 1] [--twelve] [--at-once N]
        [--rounds 3] [--json FILE] [--quick]

`--scale` makes the data sets, and so the trials, so many times as long.

The figures are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import tsnb
from tsnb.planning.ways import same_as
from tsnb.text.words import text_table

FEATURES = 1024
"""So many numbers of a sample are trained on."""
WIDTHS = {"small": 64, "middle": 768, "wide": 2048}
READ_S = 0.002
LOOK_S = 0.25
"""How often what is left is asked for: each look costs the notebook's process a few milliseconds of the cores."""
_numbers = iter(range(1_000_000))


class Samples(Dataset[Any]):
    """One of the four kinds."""

    def __init__(self, kind: str, samples: int, gate: Path) -> None:
        self.kind, self.samples, self.gate = kind, samples, gate
        self.photo = _photo() if kind == "jpeg" else b""
        self.picture = torch.rand(3, 224, 224) if kind == "large" else torch.rand(FEATURES)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        if self.kind == "jpeg":
            made = Image.open(io.BytesIO(self.photo)).convert("RGB").resize((32, 32))
            return torch.from_numpy(np.asarray(made, np.float32) / 255).flatten()[:FEATURES], index % 10
        if self.kind == "read":
            with self.gate.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                time.sleep(READ_S)
        return self.picture.roll(index) if self.kind == "large" else self.picture + index, index % 10


def _photo() -> bytes:
    draws = np.random.default_rng(0)
    coarse = Image.fromarray(draws.integers(0, 255, (24, 32, 3), np.uint8)).resize(
        (512, 384), Image.Resampling.BICUBIC
    )
    noisy = np.asarray(coarse, np.int16) + draws.integers(-12, 13, (384, 512, 3))
    file = io.BytesIO()
    Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=85)
    return file.getvalue()


def train(width: int, epochs: int) -> None:
    """Train a network of two hidden layers."""
    net = nn.Sequential(
        nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(epochs):
        for samples, labels in tsnb.attach():
            loss = cross_entropy(net(samples.flatten(1)[:, :FEATURES]), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


@dataclass(frozen=True)
class Mix:
    """A loader and its trials."""

    kind: str
    samples: int
    batch: int
    trials: tuple[tuple[str, int], ...]
    """Width and epochs of each."""

    def loader(self, gate: Path, scale: float = 1.0) -> DataLoader[Any]:
        """Return its loader, with so many times as many samples."""
        return DataLoader(
            Samples(self.kind, round(self.samples * scale), gate), self.batch, shuffle=True, num_workers=1
        )


MIXES = {
    "jpeg, three": Mix("jpeg", 1600, 16, (("small", 1), ("middle", 1), ("wide", 1))),
    "jpeg, long and short": Mix("jpeg", 1000, 16, (("small", 3), ("wide", 1), ("middle", 2), ("small", 1))),
    "large, two": Mix("large", 2400, 16, (("middle", 1), ("wide", 1))),
    "large, long and short": Mix("large", 1600, 16, (("small", 2), ("small", 1), ("wide", 1), ("middle", 2))),
    "tiny, two": Mix("tiny", 24_000, 64, (("small", 2), ("middle", 1))),
    "tiny, long and short": Mix("tiny", 16_000, 64, (("small", 4), ("middle", 2), ("small", 1))),
    "read, three": Mix("read", 2000, 16, (("small", 1), ("middle", 1), ("wide", 1))),
    "read, two": Mix("read", 1500, 16, (("small", 2), ("wide", 1))),
}


@dataclass(frozen=True)
class Row:
    """One way of one mix."""

    mix: str
    way: str
    foretold_s: float
    low_s: float
    high_s: float
    runs_s: tuple[float, ...]
    """Measured, in each round."""
    chosen: bool
    left_off: tuple[float, ...] = ()
    """How far off what was left was at a quarter of each trial, as a share."""
    same_as: str = ""
    """The way that has the same schedule, as the plan says: two runs of one choice; empty: none has."""

    @property
    def measured_s(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.runs_s)

    @property
    def off(self) -> float:
        """Foretold over measured, less 1."""
        return self.foretold_s / self.measured_s - 1


class _Watch:
    """Notes what each trial says is left, until it is closed."""

    def __init__(self) -> None:
        self._said: dict[str, list[tuple[float, float]]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            for trial in list(tsnb.trials.values()):
                eta = trial.eta
                if trial.state == "running" and eta.whole:
                    self._said.setdefault(trial.name, []).append((time.time(), eta.left_s))

    def close(self, trials: Sequence[Any]) -> tuple[float, ...]:
        """Return how far off each was when a quarter of it was done."""
        self._over.set()
        self._thread.join()
        found = []
        for trial in trials:
            began_s, end_s = trial.started_s, trial.started_s + trial.duration_s
            for at_s, left_s in self._said.get(trial.name, ()):
                if at_s >= began_s + 0.25 * (end_s - began_s):
                    found.append(left_s / (end_s - at_s) - 1)
                    break
        return tuple(found)


def rows_of(
    name: str, mix: Mix, gate: Path, scale: float, seconds: float, rounds: int, only: Sequence[str] = ()
) -> list[Row]:
    """Plan a mix, and then really run every way of it, or some, several times."""
    trials = {
        f"{width}{epochs}-{number}": (train, {"width": WIDTHS[width], "epochs": epochs})
        for number, (width, epochs) in enumerate(mix.trials)
    }
    told = tsnb.plan(trials, loader=mix.loader(gate, scale), seconds=seconds)
    print(told, file=sys.stderr, flush=True)
    ways = [way for way in told.ways if not only or way.way in only]
    took: dict[str, list[float]] = {way.way: [] for way in ways}
    off: dict[str, list[float]] = {way.way: [] for way in ways}
    for way in ways * rounds:
        watch, began = _Watch(), time.perf_counter()
        done = replace(told, choice=way).run(name=f"planned{next(_numbers)}")
        took[way.way].append(time.perf_counter() - began)
        if failed := [trial for trial in done.values() if trial.state != "done"]:
            raise SystemExit(f"{failed[0].name} {failed[0].state}: {failed[0].logs()}")
        off[way.way] += watch.close(list(done.values()))
        tsnb.trials.clear()
    rows = []
    for way in ways:
        runs, left = tuple(took[way.way]), tuple(off[way.way])
        twin = same_as(way, told.ways)
        rows.append(Row(name, way.way, way.makespan_s, *way.interval_s, runs, way is told.choice, left, twin))
    return rows


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| mix | way | foretold s | four times in five | measured s | lowest to highest | off | |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        said = ["chosen"] * row.chosen + [f"the same as {row.same_as}"] * bool(row.same_as)
        mark = ", ".join(said)
        lines.append(
            f"| {row.mix} | {row.way} | {row.foretold_s:.1f} | {row.low_s:.1f}-{row.high_s:.1f} | "
            f"{row.measured_s:.1f} | {min(row.runs_s):.1f}-{max(row.runs_s):.1f} | {row.off:+.0%} | {mark} |"
        )
    return "\n".join(lines)


def verdict(rows: Sequence[Row]) -> str:
    """Say how near the figures are, how often their intervals hold, and what choosing cost."""
    off = [abs(row.off) for row in rows]
    runs = [(row, run_s) for row in rows for run_s in row.runs_s]
    inside = sum(row.low_s <= run_s <= row.high_s for row, run_s in runs)
    near = sum(each <= 0.15 for each in off)
    regrets = []
    for mix in dict.fromkeys(row.mix for row in rows):
        took: dict[str, list[float]] = {}  # ways with one schedule are one choice, run several times
        for row in (row for row in rows if row.mix == mix):
            took.setdefault(row.same_as or row.way, []).extend(row.runs_s)
        each = {way: statistics.median(seconds) for way, seconds in took.items()}
        if chosen := [row.same_as or row.way for row in rows if row.mix == mix and row.chosen]:
            regrets.append(each[chosen[0]] / min(each.values()) - 1)
    left = [abs(each) for row in rows for each in row.left_off]
    said = (
        f"Median {statistics.median(off):.0%} off, most {max(off):.0%} (the aim: 8% and 15%), {near} of {len(off)} "
        f"within 15%; {inside} of {len(runs)} runs within their interval."
    )
    if regrets:
        middle, most = statistics.median(regrets), max(regrets)
        said += f" Regret of the choice: median {middle:.0%}, most {most:.0%} (the aim: 5%)."
    if left:
        said += (
            f" What was left at a quarter of {len(left)} trials: median {statistics.median(left):.0%} off, "
            f"{sum(each <= 0.1 for each in left)} within 10% (the aim: all)."
        )
    return said


def twelve(
    gate: Path, rounds: int, scale: float, at_once: int | None = None, only: Sequence[str] = ()
) -> dict[str, list[float]]:
    """Run twelve unequal trials in three ways; return the seconds of each round, by way."""
    mix = Mix("jpeg", 600, 16, ())
    grid = {"width": list(WIDTHS.values()), "epochs": [1, 2, 3, 4]}
    trials: dict[str, dict[str, Any]] = {
        f"w{width}e{epochs}": {"width": width, "epochs": epochs}
        for width in grid["width"]
        for epochs in grid["epochs"]
    }
    cores = len(os.sched_getaffinity(0))

    def in_turn() -> None:
        for name, params in trials.items():
            with tsnb.serve(mix.loader(gate, scale), name=f"own{next(_numbers)}") as own:
                tsnb.run(train, name=name, stream=own.name, threads=cores, **params).wait()

    def swept(**how: Any) -> None:
        with tsnb.serve(mix.loader(gate, scale), name=f"swept{next(_numbers)}") as stream:
            sweep = tsnb.sweep(train, grid=grid, stream=stream.name, at_once=at_once, **how)
            sweep.wait()
            assert all(trial.state == "done" for trial in sweep.values()), sweep

    ways: dict[str, Callable[[], None]] = {
        "in turn": in_turn,
        "a sweep": swept,
        "a planned sweep": lambda: swept(plan=True),
    }
    names = [way for way in ways if not only or way in only]
    took: dict[str, list[float]] = {way: [] for way in names}
    for number in range(rounds):
        first = number % len(names)
        for way in [*names[first:], *names[:first]]:
            began = time.perf_counter()
            ways[way]()
            took[way].append(time.perf_counter() - began)
            print(f"{way}: {took[way][-1]:.1f} s", file=sys.stderr, flush=True)
            tsnb.trials.clear()
    return took


def twelve_table(took: dict[str, list[float]]) -> list[list[str]]:
    """Return a head and a row for each way: its median, lowest and highest, and what it saves."""
    middle = {way: statistics.median(seconds) for way, seconds in took.items()}
    rows = [["way", "s", "lowest to highest", "less than in turn", "less than a sweep"]]
    for way, seconds in took.items():
        less = [
            f"{1 - middle[way] / middle[other]:.0%}" if other != way and other in middle else ""
            for other in ("in turn", "a sweep")
        ]
        rows.append([way, f"{middle[way]:.1f}", f"{min(seconds):.1f} to {max(seconds):.1f}", *less])
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        "benchmarks.planning", description="Planned trials, and really run ones."
    )
    parser.add_argument("--mix", nargs="+", choices=list(MIXES), default=list(MIXES))
    parser.add_argument("--way", nargs="+", default=[], help="run these alone; by default all")
    parser.add_argument("--scale", type=float, default=1.0, help="so many times as many samples (1)")
    parser.add_argument("--twelve", action="store_true", help="twelve unequal trials in three ways, instead")
    parser.add_argument("--at-once", type=int, help="of the twelve in a sweep, at most; by default all")
    parser.add_argument("--rounds", type=int, default=3, help="so often each way is run (3)")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--quick", action="store_true", help="one mix, short: only to see that it works")
    given = parser.parse_args(arguments)
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="tsnb-planning-") as folder:
        gate = Path(folder) / "gate"
        gate.touch()
        if given.twelve:
            took = twelve(
                gate,
                1 if given.quick else given.rounds,
                0.1 if given.quick else given.scale,
                given.at_once,
                given.way,
            )
            most = f", {given.at_once} at once at most in a sweep" if given.at_once else ""
            print(
                f"{cores} cores, medians of {len(next(iter(took.values())))}{most}\n\n"
                + "\n".join(text_table(twelve_table(took)))
            )
            kept: Any = took
        else:
            mixes, scale, seconds = (
                (["tiny, two"], 0.05, 0.2) if given.quick else (given.mix, given.scale, 1.5)
            )
            rounds = 1 if given.quick else given.rounds
            rows = [
                row
                for name in mixes
                for row in rows_of(name, MIXES[name], gate, scale, seconds, rounds, given.way)
            ]
            print(f"{cores} cores, medians of {rounds}\n\n{table(rows)}\n\n{verdict(rows)}")
            kept = [asdict(row) for row in rows]
    if given.json:
        given.json.write_text(json.dumps(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main())
