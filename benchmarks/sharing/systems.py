"""The ways of feeding N training processes that are compared: how each serves, and how each takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks.sharing import floor, peer
from benchmarks.sharing.workloads import Workload, make_loader
from tsnb import attach, serve  # here, so that what they load is loaded before the processes are forked
from tsnb.native.memfd import SWITCH

__all__ = ["SYSTEMS", "Setting", "System"]

STREAM = "bench"
PATIENT_S = 600.0
"""Nobody is parked while the others start."""
MEMORY_SHARE = 1 / 4
"""Of the machine's free memory: what needs more is not run."""


@dataclass(frozen=True)
class Setting:
    """One run's circumstances, known to all its processes."""

    workload: Workload
    consumers: int
    workers: int
    ports: tuple[int, ...]
    samples: int | None = None
    """In an epoch; None for more than a measurement takes."""

    def loader(self) -> Any:
        """Return this run's DataLoader, fresh."""
        return make_loader(self.workload, self.workers, samples=self.samples)


Failed = Callable[[BaseException], None]
Served = AbstractContextManager[Callable[[], int]]
"""While it is open, batches are served; what it gives returns the shared bytes touched, 0 where unknown."""
Taken = AbstractContextManager[Iterator[Any]]
"""What it gives has joined the epoch, and takes batches from its start."""


@dataclass(frozen=True)
class System:
    """One way of feeding."""

    name: str
    what: str
    take: Callable[[Setting, int], Taken]
    """Called in each consumer's process with its index."""
    serve: Callable[[Setting, Failed], Served] | None = None
    """Called in a process of its own, first; None where every consumer loads for itself."""
    warm_up: int = 12
    """Batches that each consumer takes before the measurement: caches, slots and pools have gone round once."""
    alone: bool = False
    """Whether it is meaningful for one consumer only."""
    crowd: bool = False
    """Whether it is meaningful for several only."""
    apart: bool = False
    """Whether it is measured only when it is named."""
    obstacle: Callable[[Setting], str] = lambda _: ""
    """Says why it cannot be run with a setting; empty where it can."""


@contextmanager
def _take_own(setting: Setting, _index: int) -> Iterator[Iterator[Any]]:
    yield iter(setting.loader())


@contextmanager
def _take_floor(setting: Setting, _index: int) -> Iterator[Iterator[Any]]:
    with floor.take(setting.workload, setting.workers) as batches:
        yield batches


@contextmanager
def _serve_tsnb(setting: Setting, _failed: Failed) -> Iterator[Callable[[], int]]:
    # the late-join window as it is for epochs of up to 400 batches, which this one only pretends not to be
    with serve(setting.loader(), name=STREAM, late_join=0.0, stall_timeout_s=PATIENT_S) as producer:
        yield lambda: producer.status().touched_bytes


@contextmanager
def _serve_portable(setting: Setting, failed: Failed) -> Iterator[Callable[[], int]]:
    os.environ[SWITCH] = "1"  # this process was made for one run
    with _serve_tsnb(setting, failed) as shared:
        yield shared


@contextmanager
def _take_tsnb(_setting: Setting, index: int) -> Iterator[Iterator[Any]]:
    with attach(f"consumer-{index}", STREAM) as consumer:
        yield iter(consumer)  # asks for the epoch: the window keeps its start until everybody has asked


def _tensorsocket(name: str, what: str, *, tuned: bool) -> System:
    """Return the peer with one choice of settings."""

    @contextmanager
    def serve(setting: Setting, failed: Failed) -> Iterator[Callable[[], int]]:
        peer.serve(setting.loader(), setting.ports, setting.consumers, failed, tuned=tuned)
        yield lambda: 0

    def take(setting: Setting, _index: int) -> Taken:
        return peer.take(setting.ports, setting.workload.batch_size, tuned=tuned)

    def obstacle(setting: Setting) -> str:
        if not setting.workload.tuples:
            return "takes tuples of tensors only: a dict raises KeyError"
        need = 0 if tuned else peer.working_bytes(setting.workload, setting.consumers)
        have = int(psutil.virtual_memory().available * MEMORY_SHARE)
        return f"one message would need {need / 1e9:.0f} GB of memory" if need > have else ""

    batches = peer.TUNED_BATCHES if tuned else peer.DEFAULT_BATCHES
    return System(name, what, take, serve, warm_up=peer.POOL * batches + 8, obstacle=obstacle)


SYSTEMS: dict[str, System] = {
    s.name: s
    for s in (
        System("plain", "one DataLoader, one process: what everybody has today", _take_own, alone=True),
        System("separate", "the same, N times side by side", _take_own, crowd=True),
        _tensorsocket("tensorsocket", "0.0.5 from PyPI, its default settings", tuned=False),
        _tensorsocket("tensorsocket*", "the same, its best settings for CPU tensors", tuned=True),
        System(
            "tsnb",
            "one producer with that DataLoader, N consumers attached",
            _take_tsnb,
            _serve_tsnb,
            warm_up=24,
        ),
        System("floor", "the worker collates into warm slots, an int comes back", _take_floor, alone=True),
        System(
            "portable",
            "as tsnb, over POSIX shared memory and stream sockets",
            _take_tsnb,
            _serve_portable,
            warm_up=24,
            apart=True,
        ),
    )
}


def isolate(runtime_directory: str) -> None:
    """Keep this process's producers apart from the user's own; called in each process before anything else."""
    os.environ["TSNB_RUNTIME_DIR"] = runtime_directory
