"""Tasks of pools and threads: when one has ended, nobody waits for the consumer that it leaves in its worker."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest

import tsnb
from tsnb.stream.consumer.attaching import detach_all

SOON_S = 60.0
"""Tells a wait for the stall timeout, which is ten minutes here, from a busy machine."""


@pytest.fixture(autouse=True)
def _served() -> Iterator[None]:
    with tsnb.serve([[i] for i in range(40)], name="s", stall_timeout_s=600.0, late_join=0.0, window=4):
        yield
        detach_all()


def train(name: str) -> float:
    """Train for an epoch; return for how many seconds that waited."""
    consumer = tsnb.attach(name, stream="s")
    before_s = consumer.stats().waited_s
    assert [row for (row,) in consumer] == list(range(40))
    return consumer.stats().waited_s - before_s


def here() -> float:
    """Train in the test's own thread, which is no task, and detach; return as `train`."""
    try:
        return train("here")
    finally:
        tsnb.attach("here", stream="s").close()


def fail(name: str) -> None:
    """Fail in the middle of an epoch, with the loop in the traceback."""
    for (row,) in tsnb.attach(name, stream="s"):
        if row == 3:
            raise ValueError(name)


def by_executor() -> tuple[Any, Callable[[Any, str], Any]]:
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    return pool, lambda task, name: pool.submit(task, name).result(SOON_S)


def by_pool() -> tuple[Any, Callable[[Any, str], Any]]:
    pool = multiprocessing.get_context("spawn").Pool(1)
    return pool, lambda task, name: pool.apply_async(task, (name,)).get(SOON_S)


def by_threads() -> tuple[Any, Callable[[Any, str], Any]]:
    pool = ThreadPoolExecutor(1)
    return pool, lambda task, name: pool.submit(task, name).result(SOON_S)


def by_thread_pool() -> tuple[Any, Callable[[Any, str], Any]]:
    pool = ThreadPool(1)
    return pool, lambda task, name: pool.apply_async(task, (name,)).get(SOON_S)


@pytest.mark.slow
@pytest.mark.parametrize("pool", [by_executor, by_pool, by_threads, by_thread_pool])
def test_a_worker_whose_task_has_ended_holds_nobody_up(pool: Any) -> None:
    """Its consumer stays, for a next task by the same name: that goes on with the next epoch."""
    workers, do = pool()
    with workers:
        assert do(train, "one") < SOON_S
        assert here() < SOON_S
        with pytest.raises(ValueError, match="bad"):
            do(fail, "bad")  # a pool of threads keeps the traceback, and the loop in it
        assert here() < SOON_S
        assert do(train, "one") < SOON_S
        assert here() < SOON_S


def test_a_thread_that_has_ended_holds_nobody_up() -> None:
    """One of the user's own, and a class with a `run` of its own."""

    class Own(threading.Thread):
        def run(self) -> None:
            train("two")

    for thread in (threading.Thread(target=train, args=("one",)), Own()):
        thread.start()
        thread.join(SOON_S)
        assert not thread.is_alive()
        assert here() < SOON_S


JOBLIB = """
from joblib import Parallel, delayed
from tests.consumer.test_tasks import SOON_S, here, train
if __name__ == "__main__":
    with Parallel(2, batch_size=1, timeout=2 * SOON_S) as pool:  # of one worker it would make none
        for name in "ab":
            assert pool([delayed(train)(name)])[0] < SOON_S
            assert here() < SOON_S
"""


@pytest.mark.slow
def test_joblibs_workers_hold_nobody_up(tmp_path: Path) -> None:
    """In a process of its own: they stay until that ends."""
    where = {**os.environ, "JOBLIB_TEMP_FOLDER": str(tmp_path)}
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", JOBLIB], check=True, timeout=10 * SOON_S, cwd=root, env=where)
