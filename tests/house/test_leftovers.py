"""The look at what a test leaves behind sees everything of ours, and nothing of the other programs of the machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.leftovers import SHM, leftovers, new_leftovers
from tsnb.discovery.registry import address_prefix

OTHER = """
import multiprocessing, os, sys, time
from multiprocessing import shared_memory
if os.fork(): os._exit(0)                     # its parent is init from here on: no descendant of the tests
os.setsid()
semaphores = multiprocessing.get_context("spawn")
kept = [semaphores.Semaphore() for _ in range(3)]
block = shared_memory.SharedMemory(create=True, size=64)
opened = open(f"/dev/shm/plain-{os.getpid()}", "w")
with open(sys.argv[1] + ".new", "w") as note: note.write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
while os.path.exists(sys.argv[1]):            # made and removed, again and again, for as long as the test goes on
    for semaphore in [semaphores.Semaphore() for _ in range(20)]: del semaphore
block.close(); block.unlink(); os.unlink(opened.name)
"""

OURS = """
import multiprocessing, os, sys
kept = multiprocessing.get_context("spawn").Semaphore()
print("made", flush=True)
sys.stdin.read()
"""


@contextmanager
def other_program(note: Path) -> Iterator[None]:
    """Run another program of this machine, with semaphores and shared memory of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TSNB_")}
    subprocess.run([sys.executable, "-c", OTHER, str(note)], env=environment, check=True)
    while not note.exists():
        time.sleep(0.01)
    process = psutil.Process(int(note.read_text()))
    try:
        yield
    finally:
        note.unlink()
        process.wait(120)


def test_what_another_program_makes_and_removes_is_not_ours(tmp_path: Path) -> None:
    """Semaphores, a block and an open file, held and coming and going: none of them fails a test."""
    before = leftovers()
    with other_program(tmp_path / "note"):
        assert len({name for name in leftovers() - before if name.startswith(SHM)}) >= 5
        for _ in range(20):
            assert any(not new_leftovers(before) for _ in range(20)), (
                "as the fixture looks: until there is nothing"
            )


def test_a_semaphore_that_we_leave_is_found_beside_another_program(tmp_path: Path) -> None:
    """Our process is killed together with the tracker that would remove its semaphore."""
    with other_program(tmp_path / "note"):
        before = leftovers()
        process = subprocess.Popen(
            [sys.executable, "-c", OURS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "made\n"
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        left = {name for name in new_leftovers(before) if name.startswith(SHM)}
        assert len(left) == 1, left
        os.unlink(left.pop())


def test_a_socket_that_we_leave_is_found_and_no_other() -> None:
    """Its name begins as those of this runtime directory do."""
    before = leftovers()
    with socket.socket(socket.AF_UNIX) as ours, socket.socket(socket.AF_UNIX) as other:
        ours.bind(f"\0{address_prefix()}-left")
        other.bind(f"\0left-{address_prefix()}")
        assert new_leftovers(before) == {f"socket @{address_prefix()}-left"}
    assert not new_leftovers(before)
