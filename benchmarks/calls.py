"""How many Python calls and system calls does a batch cost, in the consumer's thread and in the producer?

What is isolated: one producer with one loader worker, and one consumer of two small tensors a batch, each in a process
of its own. Counts hardly change with what else the machine does, where times do. Two cases:

- `waits`: the consumer's step does nothing, so it waits for each batch;
- `behind`: its step takes `--step` milliseconds without a system call, so batches wait for it.

Python calls are those of Python functions, counted with `sys.setprofile`: in the consumer's one thread, and in the
producer's threads by the thread's name. System calls are counted by `strace` in runs of their own; without it they are
left out. The loader's worker is a process of its own, and is not counted.

    python -m benchmarks.calls [--batches 300] [--step 3] [--names] [--quick]

`--names` also lists what is called, most often first.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb

BATCH = 64
WARM = 50
"""Batches before the first that is counted: the window is full by then."""
BEYOND = 50
"""Batches after the last that is counted, so that the loader still works meanwhile."""
ATTACH_S = 20.0
"""How long `strace` may take to attach."""
_LINE = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", re.MULTILINE)
"""A line of `strace -c`: calls, perhaps errors, and the system call."""

_STREAM = "-calls-"
_THREADS = {
    "MainThread": "consumer",
    "tsnb-serve-of": "producer, serving",
    "tsnb-load-of": "producer, loading",
    "QueueFeederThread": "producer, torch's feeder",
}
"""What the threads are called here."""

_fork = get_context("fork")


@dataclass(frozen=True)
class Counted:
    """One case: what a batch cost."""

    case: str
    calls: dict[str, Counter[str]]
    """By thread: Python functions, and how often each was called for a batch."""
    system: dict[str, Counter[str]]
    """By process: system calls, and how often each was made for a batch; empty without `strace`."""


class _Calls:
    """Counts the Python calls of each thread that it is installed in, while it is on."""

    def __init__(self) -> None:
        self.on = False
        self._of: dict[str, Counter[str]] = {}

    def hook(self, frame: FrameType, event: str, _arg: object) -> None:
        """Take one event of `sys.setprofile`."""
        if event == "call" and self.on:
            code = frame.f_code
            where = code.co_filename.rpartition("site-packages/")[2].rpartition("/tsnb/")[2]
            name = f"{where}:{code.co_name}"
            thread = threading.current_thread().name.partition(_STREAM)[0]
            self._of.setdefault(_THREADS.get(thread, thread), Counter())[name] += 1

    def taken(self) -> dict[str, dict[str, int]]:
        """Return what was counted, and count no more."""
        self.on = False
        return {thread: dict(count) for thread, count in self._of.items()}


def _produce(pipe: Connection, stream: str, batches: int, profiled: bool) -> None:
    """Serve one epoch of `batches` batches; count its threads' calls between the first word and the second."""
    calls = _Calls()
    if profiled:
        threading.setprofile(calls.hook)
    rows = BATCH * batches
    samples = TensorDataset(torch.zeros(rows, 16), torch.zeros(rows, dtype=torch.long))
    with tsnb.serve(DataLoader(samples, BATCH, num_workers=1), name=stream):
        pipe.send("serves")
        pipe.recv()
        calls.on = True
        pipe.recv()
        pipe.send(calls.taken())
        pipe.recv()


def _consume(pipe: Connection, stream: str, batches: int, step_s: float, profiled: bool) -> None:
    """Take one epoch; tell when the counting begins and ends, and what was counted."""
    calls = _Calls()
    with tsnb.attach("calls", stream=stream) as consumer:
        for number, _ in enumerate(consumer):
            if number == WARM:
                pipe.send("begins")
                pipe.recv()
                calls.on = True
                if profiled:
                    sys.setprofile(calls.hook)
            if number == WARM + batches:
                sys.setprofile(None)
                pipe.send(calls.taken())
                pipe.recv()
            until = time.perf_counter() + step_s
            while time.perf_counter() < until:
                pass


class _Strace:
    """Counts the system calls of a process, or of its main thread alone."""

    def __init__(self, pid: int, *options: str) -> None:
        command = ["strace", "-c", *options, "-p", str(pid)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + ATTACH_S
        while not _is_traced(pid):
            if self._process.poll() is not None or time.monotonic() > until:
                self._process.kill()
                raise OSError("strace could not attach")
            time.sleep(0.02)

    def counted(self) -> Counter[str]:
        """Detach; return the calls by name."""
        self._process.send_signal(signal.SIGINT)
        _, told = self._process.communicate(timeout=ATTACH_S)
        return Counter({name: int(calls) for calls, name in _LINE.findall(told) if name != "total"})


def _is_traced(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return any(line.startswith("TracerPid:") and not line.endswith("\t0") for line in status)


def _run(batches: int, step_s: float, *, profiled: bool) -> tuple[dict[str, Any], dict[str, Counter[str]]]:
    """Train on one epoch; return Python calls by thread where `profiled`, else system calls by process."""
    stream, epoch = f"of{_STREAM}{os.getpid()}", WARM + batches + BEYOND
    ours, theirs = _fork.Pipe()
    producer = _fork.Process(target=_produce, args=(theirs, stream, epoch, profiled))
    producer.start()
    ours.recv()
    mine, its = _fork.Pipe()
    consumer = _fork.Process(target=_consume, args=(its, stream, batches, step_s, profiled))
    consumer.start()
    calls: dict[str, Any] = {}
    system: dict[str, Counter[str]] = {}
    try:
        mine.recv()
        tracing: dict[str, _Strace] = {}
        if not profiled:
            with suppress(OSError):
                tracing = {
                    "consumer": _Strace(consumer.pid or 0),
                    "producer": _Strace(producer.pid or 0, "-f"),
                }
        ours.send("count")
        mine.send("go")
        calls.update(mine.recv())
        system = {who: trace.counted() for who, trace in tracing.items()}
        ours.send("end")
        calls.update(ours.recv())
        mine.send("go")
    finally:
        consumer.join()
        ours.send("stop")
        producer.join()
    return calls, system


def _a_batch(counts: dict[str, Any], batches: int) -> dict[str, Counter[str]]:
    return {
        who: Counter({name: number / batches for name, number in count.items()})
        for who, count in counts.items()
    }


def count(case: str, batches: int, step_s: float) -> Counted:
    """Count one case.

    Args:
        case: Its name.
        batches: How many are counted.
        step_s: What the consumer's step takes.
    """
    calls, _ = _run(batches, step_s, profiled=True)
    system = _run(batches, step_s, profiled=False)[1] if shutil.which("strace") else {}
    return Counted(case, _a_batch(calls, batches), _a_batch(system, batches))


def table(cases: Iterable[Counted], *, names: bool = False) -> str:
    """Return the figures as a table of Markdown, and what is called below it.

    Args:
        cases: What was counted.
        names: Whether to list what is called.
    """
    lines, below = ["| case | who | Python calls a batch | system calls a batch |", "|---|---|---|---|"], []
    for case in cases:
        for kind, counts in (("Python", case.calls), ("system", case.system)):
            for who, counter in counts.items():
                shown = f"{counter.total():.1f}"
                lines.append(
                    f"| {case.case} | {who} | " + (f"{shown} | |" if kind == "Python" else f"| {shown} |")
                )
                below += ["", f"{case.case}, {who}, {kind} calls a batch:"] if names else []
                below += [f"{n:8.2f}  {name}" for name, n in counter.most_common() if names and n >= 0.05]
    return "\n".join([*lines, *below])


def main() -> None:
    """Count both cases, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument(
        "--step", type=float, default=3.0, help="milliseconds of the step, where batches wait"
    )
    parser.add_argument("--names", action="store_true", help="list what is called")
    parser.add_argument("--quick", action="store_true", help="the smallest run")
    given = parser.parse_args()
    batches = 20 if given.quick else given.batches
    cases = [count("waits", batches, 0.0), count("behind", batches, given.step / 1000)]
    print(table(cases, names=given.names))


if __name__ == "__main__":
    main()
