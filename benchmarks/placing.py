"""Eight trials that do not fit together: how many does the system kill, and how soon are all done?

What is isolated: a control group with a memory limit of its own; trials that take 0.5 to 3 GiB each over their first
batches, as gradients and an optimizer's state do, and then wait at each batch as for a GPU, so that memory alone
decides how many run at once. Each way runs in a new process in a new group:

| way | what is run |
|---|---|
| at_once=8 | `tsnb.sweep(..., at_once=8)`, as if memory were no matter |
| plan | `tsnb.plan(trials)`, then `.run()` |
| by itself | each alone, for the times; then `tsnb.run` of all eight, which knows from the records what each took |

The best feasible makespan is that of the best of all 8! orders, if each trial starts as soon as its memory is free and
takes as long as it took alone. It is foretold and optimistic: nobody waits there for an epoch of the stream to begin.

    python -m benchmarks.placing [--json FILE] [--quick]

Needs the right to make a control group. The figures are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import heapq
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset

import tsnb
from tsnb.machine.memory import oom_kills
from tsnb.text.words import text_table

MIB = 1 << 20
SIZES = {512: 16, 768: 10, 1024: 12, 1280: 8, 1536: 12, 2048: 10, 2560: 8, 3072: 10}
"""MiB that each of the trials takes, and its epochs."""
LIMIT_MIB = 6144
QUICK, QUICK_LIMIT_MIB = {64: 2, 96: 3, 128: 2, 192: 2, 256: 3, 320: 2, 384: 2, 512: 2}, 1536
SAMPLES, BATCH, STEP_S = 80, 4, 0.03
BUSY_S = 120.0
"""A group is still busy for so long at most after its last process has ended."""

Wishes = Mapping[str, Mapping[str, Any]]
"""The parameters of each trial, by its name."""


@dataclass(frozen=True)
class Ran:
    """What became of eight trials in one way."""

    way: str
    """Which."""
    done: int
    """Trials that came to their end."""
    lost: int
    """Trials that were killed."""
    kills: int
    """Processes that the system killed in the group, as it counts them."""
    took_s: float
    """Until the last had ended, without what was measured before."""
    before_s: float = 0.0
    """What it took to measure them before."""
    alone_s: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Of each trial alone, by name."""
    peak_bytes: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Memory of each trial, by name."""
    memory_bytes: float = 0.0
    """For all trials, as `tsnb.plan` saw it."""
    queued: int = 0
    """Trials that waited for memory."""


class Numbers(Dataset[int]):
    """Costs nothing."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        return index


def train(mib: int, epochs: int) -> int:
    """Take memory over the first four batches, and then a while for each batch."""
    import torch

    Path("/proc/self/oom_score_adj").write_text(
        "900"
    )  # the process that counts is not to be killed in its place
    held: list[Any] = []
    for _ in range(epochs):
        for _ in tsnb.attach():
            if len(held) < 4:
                held.append(torch.ones(mib * (MIB // 4) // 4))
            time.sleep(STEP_S)
    return len(held)


def loader() -> DataLoader[int]:
    """Return what they train on."""
    return DataLoader(Numbers(), BATCH, shuffle=True)


def at_once(trials: Wishes) -> Ran:
    """Start all of them together."""
    with tsnb.serve(loader(), name="all"):
        began_s = time.monotonic()
        started = [tsnb.run(train, name=name, stream="all", needs=0, **each) for name, each in trials.items()]
        states = ended(started)
    return ran("at_once=8", states, time.monotonic() - began_s)


def planned(trials: Wishes) -> Ran:
    """Measure them, and run them as that says."""
    began_s = time.monotonic()
    found = tsnb.plan({name: (train, each) for name, each in trials.items()}, loader=loader(), seconds=1.0)
    print(found, file=sys.stderr, flush=True)
    run_s = time.monotonic()
    states = [trial.state for trial in found.run().values()]
    took_s = time.monotonic() - run_s
    peaks = {row.name: row.peak_bytes[1] for row in found.trials}
    return dataclasses.replace(
        ran("plan", states, took_s),
        before_s=run_s - began_s,
        peak_bytes=peaks,
        memory_bytes=found.memory_bytes,
        queued=sum(row.where == "queued" for row in found.trials),
    )


def by_itself(trials: Wishes) -> Ran:
    """Run each alone; then start all of them, and say nothing of memory."""
    alone_s, before_s = {}, time.monotonic()
    with tsnb.serve(loader(), name="all"):
        ended(
            [tsnb.run(train, name="warm", stream="all", mib=1, epochs=1)]
        )  # the fork server is there from now on
        for name, each in trials.items():
            began_s = time.monotonic()
            ended([tsnb.run(train, name=name, stream="all", **each)])
            alone_s[name] = time.monotonic() - began_s
        before_s = time.monotonic() - before_s
        began_s = time.monotonic()
        waited: set[str] = set()
        started = [tsnb.run(train, name=name, stream="all", **each) for name, each in trials.items()]
        states = ended(started, lambda: waited.update(each.name for each in started if each.waits_for))
        took_s = time.monotonic() - began_s
    table = tsnb.results().to_dict("records")
    return dataclasses.replace(
        ran("by itself", states, took_s),
        before_s=before_s,
        alone_s=alone_s,
        peak_bytes={str(row["name"]): float(row["peak_bytes"]) for row in table if row["name"] in trials},
        queued=len(waited),
    )


def ended(trials: Sequence[Any], look: Callable[[], None] = lambda: None) -> list[str]:
    """Wait until trials have ended; return their states."""
    while any(trial.state in {"queued", "starting", "running"} for trial in trials):
        look()
        time.sleep(0.05)
    return [trial.state for trial in trials]


def ran(way: str, states: Sequence[str], took_s: float) -> Ran:
    """Count the ends of trials."""
    counted = oom_kills()
    return Ran(way, states.count("done"), states.count("crashed"), counted.kills if counted else 0, took_s)


WAYS: dict[str, Callable[[Wishes], Ran]] = {
    "at_once=8": at_once,
    "plan": planned,
    "by itself": by_itself,
}


def best_feasible_s(seconds: Mapping[str, float], sizes: Mapping[str, float], memory: float) -> float:
    """Return the makespan of the best of all orders in which each trial starts as soon as its memory is free.

    Args:
        seconds: That each trial takes, by name.
        sizes: Its memory, likewise.
        memory: For all that run at once.
    """
    best = sum(seconds.values())
    for order in itertools.permutations(seconds):
        running: list[tuple[float, float]] = []
        now, used, last = 0.0, 0.0, 0.0
        for name in order:
            while used + sizes[name] > memory:
                now, size = heapq.heappop(running)
                used -= size
            heapq.heappush(running, (now + seconds[name], sizes[name]))
            used += sizes[name]
            last = max(last, now + seconds[name])
            if last >= best:
                break
        else:
            best = last
    return best


@contextlib.contextmanager
def group(limit_bytes: int) -> Iterator[Path | None]:
    """Give a new control group with that limit, inside of this process's; None where that is not permitted."""
    made = next(filter(None, map(_made, Path("/proc/self/cgroup").read_text().splitlines())), None)
    if made is None:
        yield None
        return
    path, limit = made
    try:
        (path / limit).write_text(str(limit_bytes))
        yield path
    finally:
        deadline_s = time.monotonic() + BUSY_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(OSError):
                path.rmdir()
                break
            time.sleep(0.1)


def _made(line: str) -> tuple[Path, str] | None:
    _, controllers, path = line.split(":", 2)
    if controllers not in ("", "memory"):
        return None
    base = Path("/sys/fs/cgroup") / controllers / path.lstrip("/")
    limit = "memory.limit_in_bytes" if controllers else "memory.max"
    new = base / f"tsnb-placing-{os.getpid()}"
    try:
        new.mkdir()
    except OSError:
        return None
    if (new / limit).exists():
        return new, limit
    new.rmdir()
    return None


def measured(way: str, limit_bytes: int, *, quick: bool) -> Ran | None:
    """Run one way in a process and group of its own; None where no group can be made."""
    command = [sys.executable, "-m", "benchmarks.placing", "--inside", way, *(["--quick"] if quick else [])]
    with group(limit_bytes) as path, tempfile.TemporaryDirectory() as project:
        if path is None:
            return None
        entered = ["sh", "-c", f'echo $$ > {path}/cgroup.procs && exec "$@"', "sh", *command]
        said = subprocess.run(
            entered,
            env={**os.environ, "TSNB_PROJECT_DIR": project},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return Ran(**json.loads(said.stdout.splitlines()[-1]))


def table(rows: Sequence[Ran], best_s: float) -> str:
    """Return the ways as text."""
    head = ["way", "done", "killed", "queued", "took", "of the best feasible", "measured before"]
    cells = [
        [
            row.way,
            str(row.done),
            str(row.lost),
            str(row.queued),
            f"{row.took_s:.1f} s",
            f"{row.took_s / best_s:.2f}x" if not row.lost else "",
            f"{row.before_s:.1f} s",
        ]
        for row in rows
    ]
    return "\n".join(text_table([head, *cells]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all ways, and print what became of the trials."""
    parser = argparse.ArgumentParser("benchmarks.placing", description="Trials that do not fit together.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there")
    parser.add_argument("--quick", action="store_true", help="small trials: only to see that it works")
    parser.add_argument("--inside", choices=list(WAYS), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    sizes, limit_mib = (QUICK, QUICK_LIMIT_MIB) if given.quick else (SIZES, LIMIT_MIB)
    trials = {f"t{mib}": {"mib": mib, "epochs": epochs} for mib, epochs in sizes.items()}
    if given.inside:
        print(json.dumps(dataclasses.asdict(WAYS[given.inside](trials))))
        return 0
    rows = [row for way in WAYS if (row := measured(way, limit_mib * MIB, quick=given.quick)) is not None]
    if not rows:
        print("No control group can be made here: there is no limit under which trials could be lost.")
        return 1
    plan, own = rows[1], rows[2]
    best_s = best_feasible_s(own.alone_s, own.peak_bytes, plan.memory_bytes)
    in_turn_s = sum(own.alone_s.values())
    print(
        f"{len(os.sched_getaffinity(0))} cores, a control group of {limit_mib / 1024:.1f} GiB, trials of "
        f"{min(sizes) / 1024:.2f} to {max(sizes) / 1024:.2f} GiB and {sum(sizes) / 1024:.1f} in all, alone "
        f"{min(own.alone_s.values()):.1f} to {max(own.alone_s.values()):.1f} s, in turn {in_turn_s:.1f} s; best "
        f"feasible {best_s:.1f} s\n\n{table(rows, best_s)}"
    )
    if given.json:
        figures = {
            "limit_mib": limit_mib,
            "best_s": best_s,
            "rows": [dataclasses.asdict(row) for row in rows],
        }
        given.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
