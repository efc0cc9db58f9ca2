"""Three models of sizes 1 : 6 : 20 on the same data: a loader each, one loader, and one loader with rebalancing.

What is isolated: the same three residual networks (one torch thread each to begin with), the same number of batches of
decoded JPEG photos each, one loader worker a loader, pinned to the same two cores. Each run is in fresh processes, and
rounds alternate. A figure is the median over the rounds.

    makespan    from the start of all three until the last has trained on all of its batches, in seconds
    pace        batches/s of each trial, from its first batch to its last
    share       of the CPU time of the three: until the first of them has ended

The figures are for the mode `pace`. What the cores of a larger machine would give is simulated
(benchmarks.balance_machine), by the planner that moves them here.

    python -m benchmarks.balance [--rounds 1] [--batches 150] [--cores 2] [--json FILE] [--quick]
    python -m benchmarks.balance --render FILE      put the kept rounds into benchmarks/RESULTS.md

`--json` adds its rounds to those that the file holds. Targets on two cores: one loader is never slower than three, and
rebalancing never slower than none.
"""

from __future__ import annotations

import argparse
import ctypes
import inspect
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import tsnb
from benchmarks.balance_models import BATCH, MODELS, PHOTOS
from benchmarks.sharing.workloads import make_loader, photos
from tsnb.machine.cores import cores_busy_s

PAGE = Path(__file__).parents[1] / "benchmarks/RESULTS.md"
BEGIN, END = "<!-- figures: python -m benchmarks.balance --render FILE -->", "<!-- end of figures -->"
STREAM = "balance"
SYSTEMS = ("separate", "shared", "rebalanced")
WORDS = {"separate": "a loader each", "shared": "one loader", "rebalanced": "one loader, rebalancing"}
PATIENT_S = 600.0
_fork = get_context("fork")


@dataclass(frozen=True)
class Run:
    """One system, once; or the medians of several."""

    system: str
    makespan_s: float
    pace: dict[str, float]
    """Batches/s, by model."""
    share: dict[str, float]
    """Of the CPU time of the trials, by model, until the first of them has ended."""
    early: dict[str, float]
    """The same over the first quarter of that time..."""
    late: dict[str, float]
    """... and over its last quarter: what rebalancing has moved shows here."""
    cpu_s: float
    """Of everything together, from start to end."""
    others: float
    """Cores that other programs took meanwhile."""


def _train(name: str, system: str, batches: int, line: Any) -> None:
    """Train one model; say when, and how much CPU time it had had after each batch."""
    torch.set_num_threads(1)
    model = MODELS[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with ExitStack() as stack:
        loader: Any
        if system == "separate":
            loader = make_loader(PHOTOS, 1, samples=batches * BATCH)
        else:
            loader = stack.enter_context(tsnb.attach(name, STREAM))
        line.send("ready")
        line.recv()
        times: list[tuple[float, float]] = [(time.monotonic(), time.process_time())]
        for images, labels in loader:
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]  # torch's own
            optimizer.step()
            times.append((time.monotonic(), time.process_time()))
        line.send(times)
        line.recv()


def _serve(system: str, batches: int, line: Any) -> None:
    options = {"rebalance": True} if system == "rebalanced" else {}
    loader = make_loader(PHOTOS, 1, samples=batches * BATCH)
    with tsnb.serve(loader, name=STREAM, late_join=1.0, stall_timeout_s=PATIENT_S, **options):  # type: ignore[arg-type]
        line.send("ready")
        line.recv()


class _Child:
    """A fresh process that plays a role."""

    def __init__(self, directory: str, role: Callable[..., None], *arguments: Any) -> None:
        self.line, theirs = _fork.Pipe()

        def work() -> None:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it dies with its parent
            os.environ["TSNB_RUNTIME_DIR"] = directory
            role(*arguments, theirs)

        self.process = _fork.Process(target=work)
        self.process.start()
        theirs.close()

    def end(self) -> None:
        """Let it end."""
        self.line.send("end")
        self.process.join()
        self.line.close()


def measure(system: str, batches: int) -> Run:
    """Train the three models once."""
    with tempfile.TemporaryDirectory(prefix="tsnb-balance-") as directory:
        servers = [] if system == "separate" else [_Child(directory, _serve, system, batches)]
        for server in servers:
            server.line.recv()
        trials = {name: _Child(directory, _train, name, system, batches) for name in MODELS}
        for trial in trials.values():
            trial.line.recv()
        began_s, busy_s, own_s = time.monotonic(), cores_busy_s() or 0.0, _children_s()
        for trial in trials.values():
            trial.line.send("go")
        times = {name: trial.line.recv() for name, trial in trials.items()}
        seconds = time.monotonic() - began_s
        busy_s = (cores_busy_s() or 0.0) - busy_s
        for child in [*trials.values(), *servers]:
            child.end()
        cpu_s = _children_s() - own_s
    return _run(system, times, cpu_s, max(0.0, busy_s - cpu_s) / seconds)


def _children_s() -> float:
    """Return the CPU seconds of all processes that have ended below this one."""
    times = os.times()
    return times.children_user + times.children_system


def _run(system: str, times: dict[str, list[tuple[float, float]]], cpu_s: float, others: float) -> Run:
    begin = min(its[0][0] for its in times.values())
    first_end = min(its[-1][0] for its in times.values())
    quarter = (first_end - begin) / 4
    return Run(
        system=system,
        makespan_s=max(its[-1][0] for its in times.values()) - begin,
        pace={name: (len(its) - 2) / (its[-1][0] - its[1][0]) for name, its in times.items()},
        share=_shares(times, begin, first_end),
        early=_shares(times, begin, begin + quarter),
        late=_shares(times, first_end - quarter, first_end),
        cpu_s=cpu_s,
        others=others,
    )


def _shares(times: dict[str, list[tuple[float, float]]], begin: float, end: float) -> dict[str, float]:
    """Return each trial's part of their CPU time between two moments."""
    spent = {name: _cpu_at(its, end) - _cpu_at(its, begin) for name, its in times.items()}
    whole = sum(spent.values()) or 1.0
    return {name: seconds / whole for name, seconds in spent.items()}


def _cpu_at(times: list[tuple[float, float]], moment: float) -> float:
    """Return the CPU seconds at a moment: between two batches, in proportion."""
    before = after = times[0]
    for after in times:
        if after[0] >= moment:
            break
        before = after
    if after[0] <= before[0]:
        return after[1]
    part = min(1.0, (moment - before[0]) / (after[0] - before[0]))
    return before[1] + part * (after[1] - before[1])


def can_rebalance() -> bool:
    """Return whether `tsnb.serve` moves cores."""
    return "rebalance" in inspect.signature(tsnb.serve).parameters


def medians(runs: Sequence[Run]) -> list[Run]:
    """Return each system's medians, in the order of `SYSTEMS`."""
    found = []
    for system in SYSTEMS:
        its = [asdict(run) for run in runs if run.system == system]
        if its:
            found.append(Run(**{key: _median([one[key] for one in its]) for key in its[0]}))
    return found


def _median(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: statistics.median(value[name] for value in values) for name in values[0]}
    return values[0] if isinstance(values[0], str) else statistics.median(values)


def table(runs: Sequence[Run]) -> str:
    """Return the medians as Markdown."""
    paces = " | ".join(f"{name}: batches/s" for name in MODELS)
    lines = [f"| | makespan | {paces} | share of compute | first to last quarter | CPU seconds |"]
    lines += [f"|---|--:|{'--:|' * len(MODELS)}---|---|--:|"]
    for run in medians(runs):
        paces = " | ".join(f"{run.pace[name]:.2f}" for name in MODELS)
        share, early, late = (
            " : ".join(f"{part[name] * 100:.0f}" for name in MODELS)
            for part in (run.share, run.early, run.late)
        )
        shares = f"{share} % | {early} to {late} %"
        lines.append(
            f"| {WORDS[run.system]} | {run.makespan_s:.1f} s | {paces} | {shares} | {run.cpu_s:.0f} |"
        )
    return "\n".join(lines)


def verdict(runs: Sequence[Run]) -> str:
    """Say how the makespans compare, by the median over the rounds of each round's ratio."""
    by_system = {system: [run.makespan_s for run in runs if run.system == system] for system in SYSTEMS}
    said = []
    for ours, theirs in (("shared", "separate"), ("rebalanced", "shared"), ("rebalanced", "separate")):
        ratios = [a / b for a, b in zip(by_system[ours], by_system[theirs], strict=False)]
        if ratios:
            each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            said.append(f"{WORDS[ours]} / {WORDS[theirs]}: {statistics.median(ratios):.2f} (rounds: {each})")
    return "Makespans: " + "; ".join(said) + "."


def render(kept: dict[str, Any]) -> str:
    """Return what stands between the markers of benchmarks/RESULTS.md."""
    runs = [Run(**run) for run in kept["runs"]]
    others = [run.others for run in runs]
    rounds = sum(run.system == "shared" for run in runs)
    how = f"Medians of {rounds} rounds" if rounds > 1 else "One round"
    head = (
        f"{how}, {kept['batches']} batches of {BATCH} each, on {kept['cores']} cores; other "
        f"programs took {min(others):.1f} to {max(others):.1f} cores."
    )
    return f"{BEGIN}\n\n{head}\n\n{table(runs)}\n\n{verdict(runs)}\n\n{END}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep what was asked for."""
    parser = argparse.ArgumentParser("benchmarks.balance", description="Models of 1 : 6 : 20, three ways.")
    parser.add_argument(
        "--rounds", type=int, default=1, help="of all systems, one after the other (default 1)"
    )
    parser.add_argument("--batches", type=int, default=150, help="that each model trains on (default 150)")
    parser.add_argument("--cores", type=int, default=2, help="that all is pinned to (default 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the rounds to this file")
    parser.add_argument(
        "--render", type=Path, metavar="FILE", help="put this file's rounds into benchmarks/RESULTS.md"
    )
    parser.add_argument("--quick", action="store_true", help="a few batches: only to see that it works")
    given = parser.parse_args(arguments)
    if given.render:
        text, kept = PAGE.read_text(encoding="utf-8"), json.loads(given.render.read_text(encoding="utf-8"))
        before, after = text.partition(BEGIN)[0], text.partition(END)[2]
        PAGE.write_text(before + render(kept) + after, encoding="utf-8")
        return 0
    rounds, batches = (1, 3) if given.quick else (given.rounds, given.batches)
    cores = sorted(os.sched_getaffinity(0))[: given.cores]
    os.sched_setaffinity(0, cores)
    photos()  # here, so that no process that is forked has to import what makes them
    systems = [system for system in SYSTEMS if system != "rebalanced" or can_rebalance()]
    runs: list[Run] = []
    for _ in range(rounds):
        for system in systems:
            runs.append(measure(system, batches))
            print(f"{WORDS[system]}: {runs[-1].makespan_s:.1f} s", file=sys.stderr, flush=True)
    kept = {"cores": len(cores), "batches": batches, "runs": []}
    if given.json and given.json.exists():
        kept = json.loads(given.json.read_text(encoding="utf-8"))
        if (kept["cores"], kept["batches"]) != (len(cores), batches):
            parser.error(
                f"{given.json} holds rounds of {kept['batches']} batches on {kept['cores']} cores: choose another file"
            )
    kept["runs"] += [asdict(run) for run in runs]
    if given.json:
        given.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print(f"{len(cores)} cores, {batches} batches each\n\n{table(runs)}\n\n{verdict(runs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
