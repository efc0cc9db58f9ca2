"""A model and its optimizer in a file: how much slower a step is, and in how much memory it goes.

What is isolated: one net of equal layers, Adam, one torch thread. "plain" keeps everything in memory. "cached" is
spilled, with its file's pages left to the system's page cache: what the calls and the copies between page tables
cost. "limited" runs in a control group whose memory limit is 0.4 of what the model needs, so pages come from the
disk; "plain, limited" shows that the same run does not fit there. Each runs in a process of its own; losses must
agree to the last digit.

    python -m benchmarks.spilling [--layers 24] [--width 1024] [--steps 8] [--json FILE] [--quick]

The figures stand in docs/offload-a-model.md.

    python -m benchmarks.spilling --gpu [--layers 24] [--width 1024] [--batch 2048] [--steps 8] [--json FILE]

**Not yet run on a GPU**: there are no figures. On one GPU the same net has 0.4 of what it needs there, the rest is in
pinned host memory. "plain" has all of it on the GPU. Then two trials, each spilled and in a process of its own, one
after the other and both at once: while one waits for a copy, the other one may compute. Starting, compiling and the
first two steps are left out. Without a GPU the program ends at once and says so; `--on-cpu` runs it on the CPU,
where copies are done at once, to see that it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import nn

import tsnb
from tsnb.machine.memory import control_groups
from tsnb.spilling.offloaded import Offloaded
from tsnb.spilling.spilled import Spilled
from tsnb.spilling.transfers import Transfers

SHARE = 0.4
BATCH = 32


@dataclass(frozen=True)
class Row:
    """One way of training."""

    way: str
    """ "plain", "cached", "limited" or "plain, limited"."""
    limit_bytes: int
    """Private memory, or the control group's, in bytes; 0: no limit."""
    step_s: float
    """Median seconds of a step, the first two left out; 0: it did not get that far."""
    losses: tuple[float, ...]
    """Of each step."""
    why: str = ""
    """Why it ended early."""


def need_bytes(layers: int, width: int) -> int:
    """Return what parameters, gradients and Adam's two states take."""
    return 4 * 4 * layers * width * (width + 1)


def train(way: str, layers: int, width: int, steps: int, limit: int, directory: str) -> Row:
    """Train, in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU())])
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    if way in ("cached", "limited"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tsnb.offload(
                model,
                optimizer,
                1 << 40 if way == "cached" else int(SHARE / 2 * need_bytes(layers, width)),
                directory=directory,
            )
    times, losses = [], []
    for step in range(steps):
        inputs = torch.randn(BATCH, width, generator=torch.Generator().manual_seed(step))
        began = time.perf_counter()
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - began)
        losses.append(loss.item())
    return Row(way, limit if "limited" in way else 0, statistics.median(times[2:]), tuple(losses))


@dataclass(frozen=True)
class Pace:
    """Trials on a GPU."""

    way: str
    """ "plain", "spilled", "one after the other" or "at once"."""
    trials: int
    """How many."""
    seconds: float
    """Until all had done their steps."""
    losses: tuple[float, ...]
    """Of each step of each trial."""


def trial(way: str, layers: int, width: int, steps: int, batch: int, device: torch.device) -> None:
    """Train on a GPU, in this process: say "ready", wait for a line, and say losses when all steps are done."""
    torch.manual_seed(0)
    model = nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU())])
    if way == "plain":
        model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    limit = int(SHARE * need_bytes(layers, width))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if way != "plain" and device.type == "cuda":
            tsnb.offload(model, optimizer, limit, device=device)
        elif way != "plain":
            Spilled(model, optimizer, limit, Offloaded(limit, Transfers(device)))
    draws = torch.Generator(device).manual_seed(0)
    losses: list[torch.Tensor] = []
    for step in range(2 + steps):
        if step == 2:
            losses.clear()
            _finish(device)
            print("ready", flush=True)
            sys.stdin.readline()
        loss = model(torch.randn(batch, width, generator=draws, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())  # nothing waits for the GPU in a step
    _finish(device)
    print(json.dumps([loss.item() for loss in losses]), flush=True)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def at_once(way: str, trials: int, given: argparse.Namespace) -> Pace:
    """Run trials at once, in processes of their own.

    Raises:
        SystemExit: One of them ended early.
    """
    sizes = [str(value) for value in (given.layers, given.width, given.steps, given.batch)]
    command = [
        sys.executable,
        "-m",
        "benchmarks.spilling",
        "--trial",
        way,
        *sizes,
        "cpu" if given.on_cpu else "cuda",
    ]
    with contextlib.ExitStack() as ends:
        started = [
            ends.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(trials)
        ]
        for process in started:
            ends.callback(process.kill)

        def hears(process: subprocess.Popen[str]) -> str:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"a trial ({way}) ended early: its error stands above")
            return line

        for process in started:
            hears(process)
        began = time.perf_counter()
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [json.loads(hears(process)) for process in started]
        return Pace(
            way, trials, time.perf_counter() - began, tuple(loss for losses in said for loss in losses)
        )


def on_gpu(given: argparse.Namespace) -> list[Pace]:
    """Measure trials on a GPU.

    Raises:
        SystemExit: Their losses are not the same.
    """
    plain, first, second = (at_once(way, 1, given) for way in ("plain", "spilled", "spilled"))
    after = Pace("one after the other", 2, first.seconds + second.seconds, (*first.losses, *second.losses))
    both = replace(at_once("spilled", 2, given), way="at once")
    rows = [plain, first, after, both]
    for row in rows:
        wanted = plain.losses * row.trials
        if not all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(row.losses, wanted, strict=True)):
            raise SystemExit(f"{row.way} has other losses: {row.losses} and {wanted}")
    need = need_bytes(given.layers, given.width)
    print(
        f"model, gradients and Adam's states: {need / 2**20:,.0f} MiB, {SHARE * need / 2**20:,.0f} on the GPU"
    )
    print("| way | trials | seconds | trial steps/s | |\n|---|--:|--:|--:|---|")
    for row in rows:
        gain = (
            f"{after.seconds / both.seconds:.2f}x of one after the other"
            if row is both
            else "the same losses"
        )
        print(
            f"| {row.way} | {row.trials} | {row.seconds:.2f} | {row.trials * given.steps / row.seconds:.2f} | {gain} |"
        )
    return rows


def apart(way: str, given: argparse.Namespace, limit: int) -> Row:
    """Train in a process of its own, in a control group of its own where it is limited."""
    sizes = [str(value) for value in (given.layers, given.width, given.steps, limit)]
    command = [sys.executable, "-m", "benchmarks.spilling", "--inside", way, *sizes, str(given.directory)]
    group = _group(limit) if "limited" in way else None
    by_group = group is not None

    def enter() -> None:
        if group is not None:
            (group / "cgroup.procs").write_text(str(os.getpid()))
        elif "limited" in way:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=enter)
    finally:
        if group is not None:
            for _ in range(50):
                try:
                    group.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)
    if done.returncode == 0:
        return Row(
            **{
                **json.loads(done.stdout.splitlines()[-1]),
                "why": "" if by_group or "limited" not in way else "ulimit",
            }
        )
    why = "killed by the system" if done.returncode == -9 else done.stderr.strip().splitlines()[-1][:200]
    return Row(way, limit, 0.0, (), why)


def _group(limit: int) -> Path | None:
    """Return a control group with a memory limit, inside of ours; None where that is not permitted."""
    for directory, version in control_groups(Path("/")):
        made = directory / f"tsnb-spilling-{os.getpid()}"
        try:
            made.mkdir()
            (made / ("memory.max" if version == 2 else "memory.limit_in_bytes")).write_text(str(limit))
        except OSError:
            continue
        return made
    return None


def _main_on_gpu(given: argparse.Namespace) -> None:
    if not given.on_cpu and not torch.cuda.is_available():
        print(
            "benchmarks.spilling --gpu needs a GPU, and torch sees none here. Nothing was measured.",
            file=sys.stderr,
        )
        raise SystemExit(2)
    paces = on_gpu(given)
    if given.json:
        given.json.write_text(json.dumps([asdict(pace) for pace in paces], indent=1) + "\n")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--width", type=int, default=1536)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a small net: does it run")
    parser.add_argument("--gpu", action="store_true", help="two trials on one GPU, spilled to host memory")
    parser.add_argument("--batch", type=int, default=2048, help="samples of a batch, with --gpu")
    parser.add_argument("--on-cpu", action="store_true", help="with --gpu: see on the CPU that it runs")
    parser.add_argument("--inside", nargs=6, help=argparse.SUPPRESS)
    parser.add_argument("--trial", nargs=6, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.trial:
        way, *sizes, device = given.trial
        layers, width, steps, batch = map(int, sizes)
        trial(way, layers, width, steps, batch, torch.device(device))
        return
    if given.gpu:
        _main_on_gpu(given)
        return
    if given.inside:
        way, *sizes, directory = given.inside
        layers, width, steps, limit = map(int, sizes)
        print(json.dumps(asdict(train(way, layers, width, steps, limit, directory))))
        return
    if given.quick:
        given.layers, given.width, given.steps = 4, 128, 4
    need = need_bytes(given.layers, given.width)
    # beside the model a process has Python and torch in memory
    limit = int(SHARE * need) + (200 << 20)
    ways = ("plain", "cached") if given.quick else ("plain", "cached", "plain, limited", "limited")
    rows = [apart(way, given, limit) for way in ways]
    for row in rows:
        if row.losses and row.losses != rows[0].losses:
            raise SystemExit(f"{row.way} has other losses: {row.losses} and {rows[0].losses}")
    print(f"model, gradients and Adam's states: {need / 2**20:,.0f} MiB")
    print("| way | memory | seconds a step | against plain | |\n|---|--:|--:|--:|---|")
    for row in rows:
        memory = f"{row.limit_bytes / 2**20:,.0f} MiB" if row.limit_bytes else "as it likes"
        took = f"{row.step_s:.3f} | {row.step_s / rows[0].step_s:.2f}x" if row.step_s else "- | -"
        print(f"| {row.way} | {memory} | {took} | {row.why or 'the same losses'} |")
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
