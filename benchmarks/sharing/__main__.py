"""The command: `python -m benchmarks.sharing`, or `make bench`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.sharing.picture import NoChromium, draw
from benchmarks.sharing.report import ROOT, into_documents, summary
from benchmarks.sharing.rows import Epoch, Machine, Report, Row, median_row
from benchmarks.sharing.running import Run, Stalled, Unable, deliver_an_epoch, measure
from benchmarks.sharing.systems import SYSTEMS
from benchmarks.sharing.workloads import WORKLOADS, photos

Key = tuple[str, str, int]

PICTURE = ROOT / "docs" / "performance.svg"
QUICK_WORKLOADS = ("jpeg", "img-f32", "tiny", "calm")
QUICK_SYSTEMS = ("plain", "separate", "tsnb", "floor", "tensorsocket*")
QUICK_CONSUMERS = (1, 4)
EPOCH_SAMPLES = 100 * 64 + 7


def configurations(workloads: Sequence[str], systems: Sequence[str], numbers: Sequence[int]) -> list[Key]:
    """Return (workload, system, consumers), in the order in which they are run and shown."""
    return [
        (workload, system, number)
        for workload in workloads
        for number in numbers
        for system in systems
        if not (SYSTEMS[system].alone and number > 1)
        and not (SYSTEMS[system].crowd and number == 1)
        and not (WORKLOADS[workload].calm and SYSTEMS[system].serve is None)
    ]


def run(keys: Sequence[Key], workers: int, repeats: int, seconds: float, minutes: float) -> list[Row]:
    """Measure all configurations once, then all again; one that cannot be run is not tried again.

    Args:
        keys: Workload, system, consumers.
        workers: Of each loader.
        repeats: Runs of each configuration.
        seconds: Of each measurement.
        minutes: Once more would take longer than this in all: then it ends with fewer repeats.
    """
    started = time.monotonic()
    runs: dict[Key, list[Run]] = {key: [] for key in keys}
    stalled = dict.fromkeys(keys, 0)
    unable: dict[Key, str] = {}
    for repeat in range(repeats):
        spent_s = time.monotonic() - started
        if repeat and spent_s * (repeat + 1) / repeat > minutes * 60:
            print(f"  {repeat} repeats took {spent_s / 60:.0f} minutes: no more of them", file=sys.stderr)
            break
        for key in keys:
            workload, system, consumers = key
            if key in unable:
                continue
            began = time.monotonic()
            try:
                made = measure(SYSTEMS[system], WORKLOADS[workload], consumers, workers, seconds)
                runs[key].append(made)
                told = f"{made.samples_per_s:,.0f} samples/s"
            except Stalled as error:
                stalled[key] += 1
                told = f"stalled {error}"
            except Unable as error:
                unable[key] = told = str(error)
            took = f"{told} ({time.monotonic() - began:.0f} s)"
            print(
                f"  {repeat + 1}/{repeats}: {workload}, {system}, N={consumers}: {took}",
                file=sys.stderr,
                flush=True,
            )
    return [median_row(key, workers, runs[key], stalled[key], unable.get(key, "")) for key in keys]


def epochs(systems: Sequence[str], consumers: int) -> list[Epoch]:
    """Find what each system delivers of an epoch whose last batch is not full."""
    found = []
    for name in systems:
        if name == "floor":
            continue  # it is no way to work: its slots have one size
        epoch = Epoch(name, EPOCH_SAMPLES)
        number = 1 if SYSTEMS[name].alone else consumers
        try:
            delivered = deliver_an_epoch(SYSTEMS[name], WORKLOADS["tiny"], number, EPOCH_SAMPLES)
            found.append(replace(epoch, delivered=tuple(delivered)))
        except Unable as error:
            found.append(replace(epoch, unable=str(error)))
    return found


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        "benchmarks.sharing", description="Ways of feeding N processes, side by side."
    )
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="only this one (repeatable)")
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="only this one (repeatable)")
    parser.add_argument("--consumers", type=int, nargs="+", metavar="N", help="default 1 2 4 8")
    parser.add_argument("--workers", type=int, default=1, help="loader workers in each loader (default 1)")
    parser.add_argument("--repeats", type=int, help="runs of each configuration (default 3)")
    parser.add_argument("--seconds", type=float, help="of each measurement (default 1.5)")
    parser.add_argument(
        "--minutes", type=float, default=25.0, help="no further repeat past these (default 25)"
    )
    parser.add_argument("--no-epochs", action="store_true", help="leave out the epochs to their end")
    parser.add_argument(
        "--quick", action="store_true", help="a part of it, once: does it run, not how fast it is"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything there")
    render = "measure nothing: put the figures of that file into the documents, and draw the picture"
    parser.add_argument("--render", type=Path, metavar="FILE", help=render)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options, measure, print."""
    chosen = options(arguments)
    if chosen.render:
        report = Report.read(chosen.render)
        into_documents(report)
        try:
            draw(report, PICTURE)
        except NoChromium as error:
            sys.exit(f"The tables are up to date, the picture is not: {error}")
        return
    quick = chosen.quick
    workloads = chosen.workload or list(QUICK_WORKLOADS if quick else WORKLOADS)
    usual = [name for name, system in SYSTEMS.items() if not system.apart]
    systems = chosen.system or list(QUICK_SYSTEMS if quick else usual)
    numbers = chosen.consumers or (QUICK_CONSUMERS if quick else (1, 2, 4, 8))
    seconds = chosen.seconds or (1.0 if quick else 1.5)
    repeats = chosen.repeats or (1 if quick else 3)
    machine = Machine.this()
    if "jpeg" in workloads:
        photos()  # once, for all processes
    keys = configurations(workloads, systems, numbers)
    report = Report(machine, seconds, repeats, run(keys, chosen.workers, repeats, seconds, chosen.minutes))
    if not chosen.no_epochs:
        report.epochs.extend(epochs(systems, 2))
    print(summary(report))
    if chosen.json:
        report.write(chosen.json)


if __name__ == "__main__":
    main()
