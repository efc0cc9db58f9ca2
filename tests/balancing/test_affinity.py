"""Which threads are moved, and who may move them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tsnb.balancing.affinity import hold, move
from tsnb.balancing.controller import Alone
from tsnb.machine.cores import cores_of, same_cpuset

HOME = tuple(sorted(os.sched_getaffinity(0)))
TASKS = """
import os, sys, threading
def rest(ready):
    ready.set()
    threading.Event().wait()
for k in range(3):
    ready = threading.Event()
    threading.Thread(target=rest, args=(ready,), daemon=True).start()
    ready.wait()
print(*sorted(map(int, os.listdir("/proc/self/task"))), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def tasks() -> Iterator[list[int]]:
    """A process of four threads: their numbers, its own first."""
    program = [sys.executable, "-c", TASKS]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield [int(word) for word in process.stdout.readline().split()]
        process.kill()


@pytest.mark.skipif(len(HOME) < 2, reason="one core cannot be divided")
def test_all_threads_move_but_those_that_somebody_else_has_pinned(tasks: list[int]) -> None:
    """A thread whose cores are none that we gave is its user's own affair."""
    os.sched_setaffinity(tasks[2], HOME[:1])
    move(tasks[0], HOME[-1:], {HOME})
    assert [cores_of(task) for task in tasks] == [HOME[-1:], HOME[-1:], HOME[:1], HOME[-1:]]
    move(tasks[0], HOME, {HOME[-1:]})
    assert [cores_of(task) for task in tasks] == [HOME, HOME, HOME[:1], HOME]


@pytest.mark.skipif(len(HOME) < 2, reason="one core cannot be divided")
def test_a_process_pinned_by_its_user_while_it_is_held_keeps_that(tasks: list[int]) -> None:
    """What he chose is its home from then on, so giving back leaves it there."""
    held = hold(tasks[0])
    assert held is not None
    assert held.home == HOME
    held.allot(HOME[-1:], frozenset())
    assert held.look()
    assert held.home == HOME
    for task in tasks:
        os.sched_setaffinity(task, HOME[:1])
    assert held.look()
    assert held.home == HOME, "it may be for a moment only"
    held.keep(frozenset())
    assert cores_of(tasks[0]) == HOME[:1], "and is left alone meanwhile"
    assert held.look()
    assert held.home == HOME[:1]
    held.give_back(frozenset())
    assert {cores_of(task) for task in tasks} == {HOME[:1]}


def test_who_has_gone_or_belongs_to_others_is_not_held(tasks: list[int]) -> None:
    """Nobody's number, another container's, and a process that has ended since it was met."""
    assert hold(0) is None
    assert hold(2**22 + 1) is None
    assert same_cpuset(os.getpid())
    held = hold(tasks[0])
    assert held is not None
    held.started -= 1  # as if the number had been given to another process meanwhile
    assert not held.look()
    held.past.add(HOME)
    held.home = HOME[:1]
    held.give_back(frozenset())
    assert cores_of(tasks[0]) == HOME, "another process is left alone"


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user's process")
def test_another_users_process_is_not_held() -> None:
    """Though root could move it."""
    with subprocess.Popen(["sleep", "1000"], user="nobody") as process:
        try:
            assert Path(f"/proc/{process.pid}").stat().st_uid != os.getuid()
            assert hold(process.pid) is None
        finally:
            process.kill()


def test_one_stream_of_a_user_moves_cores_at_a_time() -> None:
    """Others are told who does, in this process and in others; when it lets go, or ends, they may."""
    first, second = Alone("first"), Alone("second")
    assert first.take() == ""
    assert first.take() == "", "it is ours already"
    assert second.take() == "'first' in this process"
    ask = "from tsnb.balancing.controller import Alone; print(Alone('third').take())"

    def elsewhere() -> str:
        return subprocess.run(
            [sys.executable, "-c", ask], capture_output=True, text=True, check=True
        ).stdout.strip()

    assert elsewhere() == f"'first' (pid {os.getpid()})"
    first.release()
    assert elsewhere() == "", "and its end has let go of it"
    assert second.take() == ""
    second.release()
