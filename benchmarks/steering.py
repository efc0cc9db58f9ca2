"""What steering costs, and what it saves: pause, set and clone on the clock; twelve configurations raced.

What is isolated, part by part (`--part NAME`, any number of times; all of them by default):

- `latency`: one trial with a step of a few milliseconds on a stream of random numbers. From the call to the moment from
  which it holds, by the trial's own rows: the last batch before a pause, the first after `resume`, the first with a new
  live value, the first of a clone. `stands still` is the longest gap between two of the parent's batches around the
  fork, less its usual one. Once with a small net; once with `--state` MiB of parameters, which a fork shares until they
  are written.
- `decision`: twelve learning rates, one after another with private loaders, and raced side by side on one stream
  (`deciding`); on digits in memory, and on digits as JPEG files that are decoded. Same seeds, nets and augmentation.
- `agreement`: the same trainings in one process, without a clock: is the best one among those that the race leaves?
- `turns`: many small trials on two places of one stream, from the start of the sweep to the end of its last trial: two
  at a time until all have been (`at_once=2`), and all side by side by turns (`at_once=2, rotate=50`). Which comes first
  changes from one repetition to the next. `prepared` are the batches that the loader gave in all.

    python -m benchmarks.steering [--quick] [--part latency] [--repeats 5] [--state 1024] [--json FILE]

Times are wall clock of this machine, medians with lowest and highest; a busy machine shows in the spread.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from benchmarks.deciding import QUICK, RATES, TASKS, digits, one_seed, replayed
from benchmarks.halving import BATCH, data
from tsnb.errors import TsnbError
from tsnb.experiments import Trial

WAIT_S = 120.0
_Found = TypeVar("_Found")

STEP_S = 0.004
"""What a step of the trial takes beside its computing."""


@dataclass(frozen=True)
class Given:
    """What was asked for on the command line."""

    quick: bool
    repeats: int
    state_mib: int
    tasks: tuple[str, ...] = ()
    """Those of `decision` and `agreement`; none: all."""


@dataclass(frozen=True)
class Row:
    """One figure: what was measured, how often, and how it was spread."""

    part: str
    what: str
    unit: str
    """"ms", "s", "times" or "batches"."""
    median: float
    low: float
    high: float
    n: int
    """Measurements; 0: it could not be measured, and `note` says why."""
    note: str = ""


def figure(part: str, what: str, unit: str, found: Sequence[float], note: str = "") -> Row:
    """Return the row of some measurements."""
    if not found:
        return Row(part, what, unit, float("nan"), float("nan"), float("nan"), 0, note)
    return Row(part, what, unit, statistics.median(found), min(found), max(found), len(found), note)


# -- latency -----------------------------------------------------------------------------------------------------


def steps(state_mib: int, step_s: float, thread: bool) -> None:
    """Train for ever. Runs in a trial's process."""
    import threading

    if thread:  # which forbids a fork
        threading.Thread(target=threading.Event().wait, name="mine", daemon=True).start()
    net = torch.nn.Linear(8, 1)
    large = torch.nn.ParameterList(
        torch.nn.Parameter(torch.ones(1 << 18), requires_grad=False) for _ in range(state_mib)
    )
    lr = tsnb.live("lr", 0.01)
    optimizer = torch.optim.SGD(net.parameters(), lr=float(lr))
    if thread:
        tsnb.checkpoint(net=net, large=large, optimizer=optimizer, every_s=1e6)
    for _ in tsnb.epochs(1_000_000):
        for (x,) in tsnb.attach():
            loss = net(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            lr.apply(optimizer)
            optimizer.step()
            time.sleep(step_s)
            tsnb.log(loss=loss, lr=float(lr))


def until(fact: Callable[[], _Found | None]) -> _Found:
    """Wait for a fact and return it.

    Raises:
        TimeoutError: It does not come.
    """
    deadline = time.monotonic() + WAIT_S
    while True:
        found = fact()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError("what is measured did not happen")
        time.sleep(0.002)


def times(trial: Trial) -> list[float]:
    """Return when each row was logged, in seconds since 1970."""
    return [row.time_s for row in trial.metrics.rows]


def goes_on(trial: Trial, rows: int = 20) -> None:
    """Wait until a trial has logged some more rows."""
    count = len(trial.metrics.rows)
    until(lambda: len(trial.metrics.rows) >= count + rows)


def after(trial: Trial, asked: float) -> float:
    """Return how long after a moment a trial has logged its next row, in milliseconds."""
    return 1000 * (until(lambda: next((t for t in times(trial) if t > asked), None)) - asked)


def paused(trial: Trial) -> tuple[float, float]:
    """Pause a trial and let it go on; return how long each took, in milliseconds."""
    goes_on(trial)
    asked = time.time()
    trial.pause()
    time.sleep(1.0)  # rows come a few times a second; none is logged while it stands still
    last = times(trial)[-1]
    again = time.time()
    trial.resume()
    return 1000 * max(0.0, last - asked), after(trial, again)


def changed(trial: Trial, value: float) -> float:
    """Set a live value; return how long it took until a batch had it, in milliseconds."""
    goes_on(trial)
    asked = time.time()
    trial.set(lr=value)
    found = until(
        lambda: next((c.time_s for c in trial.changes if c.value == value and c.time_s > asked), None)
    )
    return 1000 * (found - asked)


def twinned(trial: Trial) -> tuple[float, float]:
    """Clone a trial; return how long it took until the clone's first batch, and how long the parent stood still, in ms.

    Raises:
        TsnbError: It cannot be cloned.
    """
    goes_on(trial)
    asked = time.time()
    twin = trial.clone()
    first = after(twin, asked)
    goes_on(trial)
    there = times(trial)
    gaps = [(later, later - earlier) for earlier, later in pairwise(there) if later > asked - 1.0]
    around = max(gap for later, gap in gaps if later > asked)
    twin.stop()
    tsnb.trials.drop(twin)
    return first, 1000 * max(0.0, around - statistics.median(gap for _, gap in gaps))


def latency(given: Given) -> Iterator[Row]:
    """Measure pause, resume, set and clone."""
    repeats = 2 if given.quick else given.repeats
    states = [8] if given.quick else [0, given.state_mib]
    loader = DataLoader(TensorDataset(torch.randn(512, 8)), batch_size=8, shuffle=True)
    with tsnb.serve(loader, name="steering", seed=1):
        for state in states:
            for thread in (False, True):
                way = "by checkpoint" if thread else "by fork"
                trial = tsnb.run(
                    steps, name="timed", stream="steering", state_mib=state, step_s=STEP_S, thread=thread
                )
                goes_on(trial)
                if not thread:
                    pauses = [paused(trial) for _ in range(repeats)]
                    yield figure("latency", "pause: last batch after the call", "ms", [p for p, _ in pauses])
                    yield figure(
                        "latency", "resume: first batch after the call", "ms", [r for _, r in pauses]
                    )
                    sets = [changed(trial, 0.01 + 0.001 * turn) for turn in range(1, repeats + 1)]
                    yield figure("latency", "set: first batch with the value", "ms", sets)
                found, note = [], ""
                try:
                    found = [twinned(trial) for _ in range(repeats)]
                except (TsnbError, TimeoutError) as error:
                    note = str(error)
                what = f"clone of {state} MiB {way}"
                yield figure("latency", f"{what}: its first batch", "ms", [first for first, _ in found], note)
                yield figure("latency", f"{what}: parent stands still", "ms", [gap for _, gap in found], note)
                trial.stop()


# -- decision ----------------------------------------------------------------------------------------------------


def decision(given: Given) -> Iterator[Row]:
    """Compare twelve learning rates one after another and side by side, task by task."""
    tasks = {"digits": QUICK} if given.quick else TASKS
    for name in given.tasks or tasks:
        rates = [0.1, 0.0006] if given.quick else RATES
        runs = []
        for seed in range(1 if given.quick else given.repeats):
            runs.append(one_seed(tasks[name], seed, rates))
            print(runs[-1], file=sys.stderr, flush=True)
        kept = sum(run["kept"] for run in runs)
        note = f"the best of the full training was among those left in {kept} of {len(runs)} seeds"
        yield figure(
            "decision", f"{name}: one after another, private loaders", "s", [r["alone_s"] for r in runs]
        )
        started = [run["starting_s"] for run in runs]
        yield figure("decision", f"{name}: raced, until all trials have their first batch", "s", started)
        for word, what in MOMENTS.items():
            found = [run for run in runs if run[word] is not None]
            missing = len(runs) - len(found)
            said = note + (f"; {missing} did not come to it" if missing else "")
            yield figure("decision", f"{name}: raced, {what}", "s", [run[word] for run in found], said)
            sooner = [run["alone_s"] / run[word] for run in found]
            yield figure("decision", f"{name}: {what}, sooner", "times", sooner, said)


MOMENTS = {
    "field_s": "the field is decided",
    "few_left_s": "two are left",
    "one_left_s": "one is left",
    "same_loss_s": "the best final loss is reached",
}
"""What is waited for in a race, as `one_seed` calls it, and in words."""


def agreement(given: Given) -> Iterator[Row]:
    """Show the losses of full trainings to the race: is the best among those that it leaves?"""
    for name in given.tasks or TASKS:
        task, rates = (QUICK, [0.1, 0.0006]) if given.quick else (TASKS[name], RATES)
        runs = [replayed(task, seed, rates) for seed in range(1 if given.quick else given.repeats)]
        kept = sum(run["kept"] for run in runs)
        alone = sum(run["left"] == [run["best"]] for run in runs)
        fields = [run["field"] for run in runs if run["field"] is not None]
        note = (
            f"of {task.epochs * task.batches}; the best was among those left in {kept} of {len(runs)} seeds, the only "
            f"one in {alone}; the field was decided in {len(fields)}"
        )
        yield figure("agreement", f"{name}: the field is decided after", "batches", fields, note)


# -- turns -------------------------------------------------------------------------------------------------------


def makespan(trials: int, epochs: int, train_on: int, rotate: int | None) -> tuple[float, int]:
    """Run a sweep of small trials, two at a time; return its seconds, and the batches that were prepared for it."""
    dataset, _, _ = data(train_on)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=1)
    rates = [round(0.001 * (1 + number), 3) for number in range(trials)]
    with tsnb.serve(loader, name="turned", seed=0) as producer:
        began = time.monotonic()
        sweep = tsnb.sweep(
            digits, grid={"lr": rates}, epochs=epochs, seed=0, at_once=2, rotate=rotate, stream="turned",
            name="turned",
        )  # fmt: skip
        sweep.wait()
        took_s, prepared = time.monotonic() - began, producer.status().batches
    if states := {trial.state for trial in sweep.values()} - {"done"}:
        raise TsnbError(f"trials of the sweep ended otherwise: {', '.join(states)}")
    sweep.stop()
    return took_s, prepared


def turns(given: Given) -> Iterator[Row]:
    """Compare trials that take turns with trials that come one after the other."""
    trials, epochs, train_on = (6, 2, 640) if given.quick else (64, 2, 4000)
    found: dict[int | None, list[tuple[float, int]]] = {None: [], 50: []}
    for number in range(1 if given.quick else given.repeats):
        for rotate in sorted(found, key=bool, reverse=number % 2 == 1):
            found[rotate].append(makespan(trials, epochs, train_on, rotate))
    for rotate, what in ((None, "one after the other"), (50, "by turns of 50")):
        seconds, prepared = zip(*found[rotate], strict=True)
        yield figure("turns", f"{trials} trials on 2 places, {what}", "s", seconds)
        yield figure("turns", f"{what}: prepared", "batches", prepared)
    ratios = [turned / ordered for (turned, _), (ordered, _) in zip(found[50], found[None], strict=True)]
    yield figure(
        "turns", "by turns: makespan", "times", ratios, "of that one after the other; goal 1.05 at most"
    )


PARTS: dict[str, Callable[[Given], Iterator[Row]]] = {
    "latency": latency,
    "decision": decision,
    "agreement": agreement,
    "turns": turns,
}
"""What is measured, by the name that `--part` takes. A part yields its rows as they come."""


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown."""
    lines = ["| part | what | median | lowest | highest | n |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row.part} | {row.what} | {row.median:.4g} {row.unit} | {row.low:.4g} | {row.high:.4g} | {row.n} |"
        if row.n
        else f"| {row.part} | {row.what} | not measured | | | 0 |"
        for row in rows
    ]
    notes = dict.fromkeys(f"{row.what}: {row.note}" for row in rows if row.note)
    return "\n".join([*lines, "", *notes])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep what was asked for."""
    parser = argparse.ArgumentParser("benchmarks.steering", description="What steering costs, and saves.")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only this one; may be repeated")
    parser.add_argument("--repeats", type=int, default=5, help="of each latency, and seeds (default 5)")
    parser.add_argument(
        "--state", type=int, default=1024, metavar="MIB", help="of the larger clone (default 1024)"
    )
    parser.add_argument("--task", action="append", choices=list(TASKS), help="only this one of `decision`")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows there")
    parser.add_argument("--quick", action="store_true", help="small and few: only to see that it works")
    asked = parser.parse_args(arguments)
    given = Given(asked.quick, asked.repeats, asked.state, tuple(asked.task or ()))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as project:
        os.environ["TSNB_PROJECT_DIR"] = project
        for name in asked.part or PARTS:
            for row in PARTS[name](given):
                rows.append(row)
                print(row, file=sys.stderr, flush=True)
        tsnb.trials.clear()
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    print(f"{cores} cores, load {load:.1f}\n\n{table(rows)}")
    if asked.json:
        kept = {"cores": cores, "load": load, "rows": [asdict(row) for row in rows]}
        asked.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
