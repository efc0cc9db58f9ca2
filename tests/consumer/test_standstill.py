"""A stopped producer, or worker of its loader, is told once for each standstill."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tsnb.stream.consumer.talking.standstill import LOOK_AFTER_S, Standstill

pytestmark = pytest.mark.system


def serve(pipe: Connection[int, int]) -> None:
    """Stand for a producer with one loader worker."""
    worker = os.fork()
    if not worker:
        time.sleep(60)
    pipe.send(worker)
    time.sleep(60)


@pytest.fixture
def processes() -> Iterator[tuple[int, int]]:
    """Return the pids of a producer and its worker."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there,), daemon=True)
    process.start()
    worker = here.recv()
    yield process.pid or 0, worker
    os.kill(worker, signal.SIGKILL)
    process.kill()
    process.join()


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    while "T (stopped)" not in Path(f"/proc/{pid}/status").read_text():
        time.sleep(0.01)


def go_on(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)
    while "T (stopped)" in Path(f"/proc/{pid}/status").read_text():
        time.sleep(0.01)


def told(standstill: Standstill, waited_s: float = LOOK_AFTER_S) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        standstill.look(waited_s)
    return [str(w.message) for w in caught]


def test_a_stopped_producer_is_told_once_and_again_when_it_stops_again(processes: tuple[int, int]) -> None:
    """Nothing while it runs or the wait is short; the message names the process and what to do."""
    producer, _ = processes
    standstill = Standstill("mnist", producer)
    assert told(standstill) == []
    stop(producer)
    assert told(standstill, LOOK_AFTER_S / 2) == []
    (message,) = told(standstill)
    assert message.startswith(f"The process that serves stream 'mnist' (pid {producer}) is stopped")
    assert f"kill -CONT {producer}" in message
    assert told(standstill) == []
    go_on(producer)
    assert told(standstill) == []
    stop(producer)
    assert len(told(standstill)) == 1


def test_a_stopped_worker_of_its_loader_is_told(processes: tuple[int, int]) -> None:
    """The producer itself runs, and waits for a worker that does not."""
    producer, worker = processes
    stop(worker)
    (message,) = told(Standstill("mnist", producer))
    assert message.startswith(f"A process of the loader of stream 'mnist' (pid {worker}) is stopped")


def test_a_producer_that_has_gone_is_none_of_its_business() -> None:
    """Others notice that, at once."""
    assert told(Standstill("mnist", 2**22 + 1)) == []
