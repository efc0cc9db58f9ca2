"""One run of one configuration: start its processes, let them warm up, measure, end them.

Every process is forked from this one, which has imported everything and used nothing, so that a run of nine
processes starts in a fraction of a second; what an import takes of memory is counted once and not nine times.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing.connection as mpc
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from benchmarks.sharing import peer
from benchmarks.sharing.board import Board, Times, stamp_the_loader
from benchmarks.sharing.systems import Setting, System, isolate
from benchmarks.sharing.workloads import Workload, first_tensor
from tsnb.machine.cores import cores_busy_s

__all__ = ["Run", "Stalled", "Unable", "deliver_an_epoch", "measure"]

LEAVE_S = 3.0
"""How long a process may take to end its workers."""
SILENCE_S = 30.0
"""A process that says nothing, or a consumer that takes nothing, for so long has failed."""
WARM_UP_S = 15.0
"""Longest warm-up: a system that is slower is measured as it is then."""
STALL_S = 12.0
"""Longer than the peer waits for an acknowledgement before it goes on without."""
LEAST_BATCHES = 24
"""Batches that the slowest consumer shall have taken in a measurement, if four times its seconds suffice."""

_fork = get_context("fork")


class Unable(RuntimeError):
    """A system cannot do what a configuration asks of it; the text says why."""


class Stalled(RuntimeError):
    """The batches stopped coming, without an error anywhere; the text says when."""


@dataclass(frozen=True)
class Run:
    """What one run gave."""

    samples_per_s: float
    """Of the slowest consumer."""
    cpu_s_per_1000: float
    """CPU seconds of all processes while each consumer was given 1,000 samples."""
    latencies_us: Any
    """float64 [waits]: see `_latencies`."""
    waited: float
    """Share of the batches that the consumer was waiting for when the loader gave them."""
    shared_bytes: int
    pss_bytes: int
    mean_samples_per_s: float
    """Of all consumers; where they are equal, without the scheduler's favours."""
    others: float
    """Cores that other programs took meanwhile."""


# ---- the child processes ----


def _produce(system: System, setting: Setting, _board: Board, line: mpc.Connection) -> None:
    """Serve until told to end; then say how much was shared, and when the loader gave each batch."""
    assert system.serve is not None
    stamps: list[float] = []
    stamp_the_loader(stamps)
    with system.serve(
        setting, lambda error: line.send(("failed", f"{type(error).__name__}: {error}"))
    ) as shared:
        line.send(("ready", None))
        line.recv()
        line.send(("done", (shared(), np.array(stamps))))
        line.recv()


def _consume(system: System, setting: Setting, board: Board, line: mpc.Connection, index: int) -> None:
    """Take batches until the epoch or the measurement ends, and note when each was asked for and had."""
    samples = 0
    asked, had = board.times(index)
    train = setting.workload.train() if setting.workload.train is not None else None
    with system.take(setting, index) as batches:
        line.send(("ready", None))
        line.recv()
        while board.open(index):
            before = time.monotonic()
            try:
                batch = next(batches)
            except StopIteration:
                break
            taken = board.taken[index]
            had[taken], asked[taken] = time.monotonic(), before
            board.taken[index] = taken + 1
            values = first_tensor(batch)
            samples += len(values)
            float(values.view(-1)[0]) + float(values.view(-1)[-1])
            if train is not None:
                train(batch)
            del batch, values
        line.send(("done", samples))
        line.recv()
        del batches


def _start(
    role: Callable[..., None], directory: str, line: mpc.Connection, arguments: tuple[Any, ...]
) -> None:
    """Run a role in a fresh process, which dies with its parent."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children itself
    isolate(directory)
    torch.set_num_threads(1)
    try:
        with contextlib.suppress(EOFError):
            role(*arguments[:3], line, *arguments[3:])
    except Exception as error:  # noqa: BLE001  # told to the parent, whose report it is
        with contextlib.suppress(OSError):
            line.send(("failed", f"{type(error).__name__}: {error}"))


# ---- the parent ----


class Child:
    """A process in one of the two roles above."""

    def __init__(self, role: Callable[..., None], directory: str, *arguments: Any) -> None:
        self.line, theirs = _fork.Pipe()
        self.process = _fork.Process(target=_start, args=(role, directory, theirs, arguments))
        self.process.start()
        theirs.close()

    def tree(self) -> list[psutil.Process]:
        """Return the process and everything below it."""
        try:
            root = psutil.Process(self.process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def leave(self) -> None:
        """Ask it to end."""
        with contextlib.suppress(OSError):
            self.line.send("leave")

    def end(self, deadline_s: float) -> None:
        """Wait for its end until `deadline_s` (monotonic), then force it; nothing below it stays."""
        below = self.tree()
        self.process.join(max(0.0, deadline_s - time.monotonic()))
        self.line.close()
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.join()


def _expect(word: str, asked: list[Child], others: list[Child]) -> list[Any]:
    """Wait for one report of each child.

    Raises:
        Unable: One of them failed, or was silent for too long.
        Stalled: One of them said something else.
    """
    told: dict[Child, Any] = {}
    by_line = {child.line: child for child in (*asked, *others)}
    while len(told) < len(asked):
        ready = mpc.wait(list(by_line), SILENCE_S)
        if not ready:
            raise Unable(f"nobody was {word!r} within {SILENCE_S:.0f} s")
        for line in ready:
            assert isinstance(line, mpc.Connection)
            child = by_line[line]
            try:
                said, what = line.recv()
            except EOFError:
                said, what = "failed", "a process ended without a word"  # it has written why
            if said == "failed":
                raise Unable(str(what).splitlines()[0])
            if said != word:
                raise Stalled(f"{said!r} came in place of {word!r}: an epoch ended early")
            told[child] = what
    return [told[child] for child in asked]


@contextmanager
def _started(system: System, setting: Setting, board: Board) -> Iterator[tuple[list[Child], list[Child]]]:
    """Producers (one or none) and consumers, ready; they have gone afterwards."""
    producers: list[Child] = []
    takers: list[Child] = []
    with tempfile.TemporaryDirectory(prefix="tsnb-bench-") as directory:
        try:
            if system.serve is not None:
                producers.append(Child(_produce, directory, system, setting, board))
                _expect("ready", producers, [])
            takers.extend(
                Child(_consume, directory, system, setting, board, index)
                for index in range(setting.consumers)
            )
            _expect("ready", takers, producers)
            yield producers, takers
        finally:
            board.stop()
            for together in (takers, producers):  # consumers first: a producer may wait for them
                for child in together:
                    child.leave()
                deadline = time.monotonic() + LEAVE_S
                for child in together:
                    child.end(deadline)


def measure(system: System, workload: Workload, consumers: int, workers: int, seconds: float) -> Run:
    """Run one configuration once.

    Args:
        system: How batches come to the consumers.
        workload: What is loaded.
        consumers: How many take batches.
        workers: Loader workers in each loader.
        seconds: How long to measure, after the warm-up.

    Raises:
        Unable: The system cannot do this.
    """
    setting = Setting(workload, consumers, workers, tuple(peer.free_ports()))
    if obstacle := system.obstacle(setting):
        raise Unable(obstacle)
    board = Board(consumers)
    with _started(system, setting, board) as (producers, takers):
        everyone = producers + takers
        for taker in takers:
            taker.line.send("go")
        _await_batches(board, everyone, system.warm_up, WARM_UP_S)
        began, cpu_s, busy_s = time.monotonic(), _cpu_s(everyone), cores_busy_s() or 0.0
        aim = min(board.taken) + LEAST_BATCHES
        time.sleep(seconds)
        _await_batches(board, everyone, aim, 3 * seconds)
        ended, cpu_s = time.monotonic(), _cpu_s(everyone) - cpu_s
        others_s = max(0.0, (cores_busy_s() or 0.0) - busy_s - cpu_s)
        times = board.read()  # not from the consumers: one that got stuck would not answer
        shared, pss = _memory(everyone)
        stamps: Any = None
        for producer in producers:
            producer.line.send("go")
            touched, stamps = _expect("done", producers, [])[0]
            shared = touched or shared
    counts = [int(((had >= began) & (had <= ended)).sum()) for _, had in times]
    if min(had[-1] for _, had in times) < (began + ended) / 2:
        raise Stalled(f"after {min(len(had) for _, had in times):,} batches")
    delivered = np.array(counts) * workload.batch_size
    latencies, waited = _latencies(times, stamps, began, ended)
    seconds = ended - began
    pace, mean = float(delivered.min()) / seconds, float(delivered.mean()) / seconds
    cpu_s_per_1000 = cpu_s * 1000 / float(delivered.mean())
    return Run(pace, cpu_s_per_1000, latencies, waited, shared, pss, mean, others_s / seconds)


def deliver_an_epoch(system: System, workload: Workload, consumers: int, samples: int) -> list[int]:
    """Return how many samples of one epoch each consumer is given.

    Raises:
        Unable: As `measure`.
    """
    setting = Setting(workload, consumers, 1, tuple(peer.free_ports()), samples)
    with _started(system, setting, Board(consumers)) as (producers, takers):
        for taker in takers:
            taker.line.send("go")
        return _expect("done", takers, producers)


def _await_batches(board: Board, everyone: list[Child], batches: int, stall_timeout_s: float) -> None:
    """Wait until every consumer has taken so many, or for `stall_timeout_s` seconds.

    Raises:
        Unable: A process failed.
        Stalled: A consumer takes nothing any more.
    """
    began = moved = time.monotonic()
    before = board.taken[:]
    while min(before) < batches and time.monotonic() - began < stall_timeout_s:
        if mpc.wait([child.line for child in everyone], 0.02):
            _expect("never said", everyone, [])
        now = board.taken[:]
        if all(new > old for new, old in zip(now, before, strict=True)):
            before, moved = now, time.monotonic()
        elif time.monotonic() - moved > STALL_S:
            raise Stalled(f"after {min(now):,} batches")


def _cpu_s(children: list[Child]) -> float:
    """Return the CPU seconds that the children and everything below them have spent so far."""
    spent = 0.0
    for child in children:
        for process in child.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                spent += times.user + times.system + times.children_user + times.children_system
    return spent


def _memory(children: list[Child]) -> tuple[int, int]:
    """Return the bytes of shared memory mapped by the children and all below them, and of all their memory."""
    shared = total = 0
    for process in (p for child in children for p in child.tree()):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
            sizes = {words[0]: int(words[1]) for line in lines if len(words := line.split()) == 3}
            shared += sizes["Pss_Shmem:"] * 1024
            total += sizes["Pss:"] * 1024
    return shared, total


def _latencies(
    times: list[tuple[Times, Times]], stamps: Any, began: float, ended: float
) -> tuple[Any, float]:
    """Return the microseconds from loader to consumer, for all batches that a consumer was waiting for.

    From the moment the loader gave a batch to the sharing process until the waiting consumer had its tensors. A
    batch that lay ready before the consumer asked for it says nothing about the way, so it is left out; the
    second number is the share of those that count.
    """
    nothing = np.empty(0)
    if stamps is None or any(len(had) > len(stamps) for _, had in times):
        return nothing, 0.0
    found, batches = [], 0
    for asked, had in times:
        given = stamps[: len(had)]
        if (had < given).any():
            return nothing, 0.0  # batches and stamps do not belong together
        measured = (had >= began) & (had <= ended)
        waited = measured & (given > asked)
        batches += int(measured.sum())
        found.append((had - given)[waited] * 1e6)
    latencies = np.concatenate(found)
    return latencies, len(latencies) / max(1, batches)
