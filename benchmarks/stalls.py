"""Does `tsnb.stalls` foretell what happens? Its numbers beside those of k trials that really train, k = 1 to 4.

What is isolated: one loader worker a loader, one torch thread a trial, k equal trials, in an epoch that does not end.
Each round calls `tsnb.stalls` in a fresh process, and then trains k trials with a loader each and k on one loader, all
in fresh processes (benchmarks.sharing runs them). A figure is the median over the rounds. `off` is measured over
foretold. Training the same again does not take the same time again: `±` is how far the round farthest from the median
was from it, and a forecast that is no farther off than that cannot be told from a right one.

    photos-small   decoding JPEG costs twice what the model does: sharing gives much
    photos-large   the model costs three times what decoding does: sharing gives little
    pixels         nothing to decode, 10 MB a batch: carrying the batch is what costs
    digits         0.2 MB a batch and an MLP: what the DataLoader's queues cost beside a small model

Other programs on the machine slow every run. They are counted (`others`), and `foretold` is asked for the cores that
they left: `stalls(...).sharing(k, cores=...)`. On an idle machine that is all of them; where this program is favoured
by the scheduler, so that others get what it leaves, say so (`--favoured`).

    python -m benchmarks.stalls [--case NAME ...] [--rounds 3] [--seconds 3] [--favoured] [--json FILE] [--quick]
    python -m benchmarks.stalls --read FILE ...     the table of what was kept, one file a case

The figures are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import tsnb
from benchmarks.sharing.running import Run, measure
from benchmarks.sharing.systems import SYSTEMS
from benchmarks.sharing.workloads import WORKLOADS, Workload, make_loader, photos

WORKERS = 1
TRIALS = (1, 2, 3, 4)
WITHIN = 0.15

_fork = get_context("fork")


@dataclass(frozen=True)
class Row:
    """One case with k trials: medians over the rounds."""

    case: str
    trials: int
    separate_foretold: float
    """Samples/s of each trial with a loader each."""
    separate_measured: float
    shared_foretold: float
    """Samples/s of each trial on one loader."""
    shared_measured: float
    gain_foretold: float
    gain_measured: float
    limit: str
    """Of the shared one."""
    others: float
    """Cores that other programs took while the trials ran."""
    spread: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Of the measured figures, separate, shared, gain: the round farthest from the median, over it, less 1."""

    @property
    def off(self) -> tuple[float, float, float]:
        """Measured over foretold, less 1: separate, shared, gain."""
        return (
            self.separate_measured / self.separate_foretold - 1,
            self.shared_measured / self.shared_foretold - 1,
            self.gain_measured / self.gain_foretold - 1,
        )


def _training(net: Callable[[], nn.Module]) -> Callable[[], Callable[[Any], None]]:
    """Return what makes one step of training, for a net."""

    def make() -> Callable[[Any], None]:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def step(batch: Any) -> None:
            loss = cross_entropy(model(batch[0]), batch[1])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch's own
            optimizer.step()

        return step

    return make


def _cnn(width: int, stride: int) -> nn.Module:
    """Return a CNN for photos; `width` and `stride` say how long it computes."""
    stages = [nn.Conv2d(3, width, 7, stride), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2), nn.ReLU()]
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10))


def _mlp(width: int) -> nn.Module:
    """Return an MLP for digits."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))


def _smaller(name: str, batch_size: int, net: Callable[[], nn.Module]) -> Workload:
    """Return a workload of the sharing benchmark in smaller batches, with a model that trains on them."""
    whole = WORKLOADS[name]
    batch_bytes = whole.batch_bytes * batch_size // whole.batch_size
    return replace(whole, batch_size=batch_size, batch_bytes=batch_bytes, train=_training(net))


CASES = {
    "photos-small": _smaller("jpeg", 8, lambda: _cnn(8, 4)),
    "photos-large": _smaller("jpeg", 8, lambda: _cnn(24, 3)),
    "pixels": _smaller("img-f32", 16, lambda: _cnn(4, 8)),
    "digits": _smaller("tiny", 64, lambda: _mlp(512)),
}


def foretell(case: Workload, seconds: float) -> tsnb.Stalls:
    """Call `tsnb.stalls` in a fresh process."""
    ours, theirs = _fork.Pipe()

    def work() -> None:
        assert case.train is not None
        theirs.send(tsnb.stalls(make_loader(case, WORKERS), train_step=case.train(), seconds=seconds))

    process = _fork.Process(target=work)
    process.start()
    theirs.close()
    try:
        found: tsnb.Stalls = ours.recv()
    finally:
        process.join()
    return found


def one_round(
    case: Workload, trials: Sequence[int], seconds: float, *, favoured: bool = False
) -> dict[int, tuple[Any, Run, Run, str]]:
    """Foretell, then train; return by the number of trials what was foretold and both runs."""
    told = foretell(case, seconds)
    print(told, file=sys.stderr, flush=True)
    found = {}
    for number in trials:
        own = measure(SYSTEMS["plain" if number == 1 else "separate"], case, number, WORKERS, seconds)
        one = measure(SYSTEMS["tsnb"], case, number, WORKERS, seconds)
        separate, shared = (
            told.sharing(number, cores=max(0.1, told.cores - (0 if favoured else run.others)))
            for run in (own, one)
        )
        found[number] = (
            (separate.separate.samples_per_s, shared.shared.samples_per_s),
            own,
            one,
            shared.shared.limit,
        )
    return found


def rows_of(name: str, rounds: Sequence[dict[int, tuple[Any, Run, Run, str]]]) -> list[Row]:
    """Return the medians of one case."""
    rows = []
    for number in rounds[0]:
        runs = [each[number] for each in rounds]
        separate, shared = ([told[i] for told, *_ in runs] for i in (0, 1))
        own, one = (
            [run.mean_samples_per_s for run in column] for column in zip(*(r[1:3] for r in runs), strict=True)
        )
        gains = [[b / a for a, b in zip(*pair, strict=True)] for pair in ((separate, shared), (own, one))]
        own_told, own_is, one_told, one_is, gain_told, gain_is = (
            statistics.median(column) for column in (separate, own, shared, one, *gains)
        )
        others = statistics.median(run.others for r in runs for run in r[1:3])
        limit = statistics.mode(r[3] for r in runs)
        paces = (own_told, own_is, one_told, one_is)
        spread = (_spread(own), _spread(one), _spread(gains[1]))
        rows.append(Row(name, number, *paces, gain_told, gain_is, limit, others, spread))
    return rows


def _spread(rounds: Sequence[float]) -> float:
    middle = statistics.median(rounds)
    return max(abs(each / middle - 1) for each in rounds)


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown, as benchmarks/RESULTS.md has them."""
    columns = "a loader each: foretold | measured | off | one loader: foretold | measured | off | limit"
    head = [
        f"| case | trials | {columns} | gain: foretold | measured | off | others |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        off = [f"{share:+.0%}" for share in row.off]
        own, one, gain = (f"±{share:.0%}" for share in row.spread)
        separate = f"{row.separate_foretold:,.0f} | {row.separate_measured:,.0f} {own} | {off[0]}"
        shared = f"{row.shared_foretold:,.0f} | {row.shared_measured:,.0f} {one} | {off[1]} | {row.limit}"
        gained = f"{row.gain_foretold:.2f} | {row.gain_measured:.2f} {gain} | {off[2]}"
        head.append(f"| {row.case} | {row.trials} | {separate} | {shared} | {gained} | {row.others:.1f} |")
    return "\n".join(head)


def verdict(rows: Sequence[Row]) -> str:
    """Say how many figures are as near as they should be, and how many of the others differ no more than rounds do."""
    figures = [(abs(off), spread) for row in rows for off, spread in zip(row.off, row.spread, strict=True)]
    off = [share for share, _ in figures]
    far = [(share, spread) for share, spread in figures if share > WITHIN]
    unclear = sum(share <= spread for share, spread in far)
    within = f"{len(off) - len(far)} of {len(off)} figures within {WITHIN:.0%}"
    beyond = f", {unclear} of the other {len(far)} within their own spread" if far else ""
    middle = statistics.median(spread for _, spread in figures)
    return (
        f"{within}{beyond}; median {statistics.median(off):.0%} off, most {max(off):.0%}. "
        f"The measured figures' own spread: median {middle:.0%}, most {max(spread for _, spread in figures):.0%}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep what was asked for."""
    parser = argparse.ArgumentParser(
        "benchmarks.stalls", description="What tsnb.stalls foretells, and what happens."
    )
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--rounds", type=int, default=3, help="interleaved (default 3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement (default 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    parser.add_argument(
        "--favoured", action="store_true", help="other programs get only what this one leaves"
    )
    parser.add_argument("--read", type=Path, nargs="+", metavar="FILE", help="only show what --json wrote")
    parser.add_argument("--quick", action="store_true", help="one case, short: only to see that it works")
    given = parser.parse_args(arguments)
    if given.read:
        kept = [row for file in given.read for row in json.loads(file.read_text(encoding="utf-8"))["rows"]]
        read = [Row(**{**row, "spread": tuple(row["spread"])}) for row in kept]
        print(f"{table(read)}\n\n{verdict(read)}")
        return 0
    cases, rounds, seconds = given.case, given.rounds, given.seconds
    trials: Sequence[int] = TRIALS
    if given.quick:
        cases, trials, rounds, seconds = ["digits"], (2,), 1, 0.3
    if any(name.startswith("photos") for name in cases):
        photos()  # here, so that no process that is forked has to import what makes them
    found: dict[str, list[dict[int, tuple[Any, Run, Run, str]]]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name in cases:
            print(name, file=sys.stderr, flush=True)
            found[name].append(one_round(CASES[name], trials, seconds, favoured=given.favoured))
    rows = [row for name in cases for row in rows_of(name, found[name])]
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores, medians of {rounds} rounds of {seconds:g} s\n\n{table(rows)}\n\n{verdict(rows)}")
    if given.json:
        written = {
            "cores": cores,
            "rounds": rounds,
            "seconds": seconds,
            "rows": [asdict(row) for row in rows],
        }
        given.json.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
