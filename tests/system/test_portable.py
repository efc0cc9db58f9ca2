"""The most telling stories of the other files, over the portable arena and channel: TSNB_PORTABLE=1.

They run here in few processes, forked from one that has imported torch. The other files pass in this way too, in about
half an hour: TSNB_PORTABLE=1 make test TESTS="tests/arena tests/transport tests/wire tests/consumer tests/producer
tests/hosting tests/system tests/test_registry.py".
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import tsnb
from tests.system import test_faults, test_limits
from tests.system.conftest import Run
from tests.system.scripts import FAMILY, Script, runs, scripts
from tests.system.test_security import drained
from tests.transport.lines import connect, framed
from tsnb.discovery import registry
from tsnb.discovery.registry import find, socket_directory
from tsnb.native.memfd import SWITCH
from tsnb.stream.memory.arena import Arena
from tsnb.telemetry.observer import status

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def portable(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process, and all that the test starts."""
    monkeypatch.setenv(SWITCH, "1")


def comes_true(what: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    """Wait until something is so."""
    deadline = time.monotonic() + timeout_s
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


test_former_producers = test_faults.test_former_producers_cost_nothing


def test_every_sample_once_in_one_order_though_the_producer_is_killed_half_way(run: Run) -> None:
    """Batch sizes and paces differ, held batches stay as they are, and a successor goes on at everyone's place."""
    code = """
def serve():
    loader = DataLoader(Numbers(1000), batch_size=16, shuffle=True, num_workers=1)
    with tsnb.serve(loader, name="s", seed=7, late_join=1.0, reconnect_s=60) as p:
        say("serving", tsnb.streams.list()[0].address)
        p.wait()

def train(name, batch_size, pause, producer):
    order, held = [], []
    consumer, loop = together("s", name, 3, batch_size)
    for images, labels in loop:
        assert torch.equal(images[:, 0].long(), labels), "values changed on the way"
        held = [*held[-2:], (images, images.sum().item())]
        assert all(x.sum().item() == total for x, total in held), "a batch that is held has changed"
        order += labels.tolist()
        if name == "a" and len(order) == 480: os.kill(producer, signal.SIGKILL)
        time.sleep(pause)
    say("took", sorted(order) == list(range(1000)), consumer.stats().reconnects, hash(tuple(order)))

producer = forked(serve)
while not tsnb.streams.list(): time.sleep(0.01)
forked(train, "a", None, 0.002, producer)
forked(train, "b", 24, 0.0, producer)
forked(train, "c", None, 0.008, producer)
os.waitpid(producer, 0)
forked(serve)
time.sleep(1000)
"""
    script = run(FAMILY + code)
    first, second = (script.expect("serving") for _ in range(2))
    took = [script.expect("took") for _ in range(3)]
    assert took[0] == took[1] == took[2]
    assert took[0].startswith("True 1 ")
    assert os.path.exists(second)
    assert not os.path.exists(first), "who looked for the second has swept it"


def test_the_dead_are_noticed_on_either_side_and_leave_nothing(run: Run) -> None:
    """A consumer's slots come back; a producer's consumers are told, its workers end, the next look sweeps its socket.

    Another producer keeps its own. Then all is killed at once, and `no_leftovers` looks.
    """
    code = """
def serve(name, workers):
    loader = DataLoader(Numbers(64_000_000), batch_size=64, num_workers=workers)
    with tsnb.serve(loader, name=name, window=4, late_join=0.0) as p: p.wait()

def stuck():
    consumer, loop = together("killed", "stuck", 2)
    held = [next(loop) for _ in range(3)]
    time.sleep(1000)

def steady():
    consumer, loop = together("killed", "steady", 2)
    try:
        for count, batch in enumerate(loop):
            if count % 20 == 0: say("batches", count)
            time.sleep(0.001)
    except tsnb.errors.ProducerGone as error: say("gone", error)

producer = forked(serve, "killed", 1)
while len(tsnb.streams.list()) < 1: time.sleep(0.01)
holder = forked(stuck)
forked(serve, "lives", 1)
while len(tsnb.streams.list()) < 2: time.sleep(0.01)
say("all", producer, holder)
forked(steady)
time.sleep(1000)
"""
    script = run(FAMILY + code)
    producer, holder = (psutil.Process(int(pid)) for pid in script.expect("all").split())
    left, kept = find("killed").address, find("lives").address
    assert Path(left).parent == Path(kept).parent == socket_directory()
    script.expect("batches 0")  # both are in the epoch: `steady` waits for two before it takes one
    assert comes_true(lambda: {c.name: c.batches for c in status("killed").consumers}["stuck"] == 3)
    holder.kill()
    assert comes_true(lambda: len(status("killed").consumers) == 1)
    script.expect("batches 20")
    script.expect("batches 100")
    assert status("killed").slots_used <= 4 + 4 + 2, "what the dead one held is free"
    workers = producer.children(recursive=True)
    assert workers
    producer.kill()
    assert "start it again" in script.expect("gone")
    assert os.path.exists(left), "SIGKILL leaves it"
    assert comes_true(
        lambda: [entry.name for entry in registry.entries()] == ["lives"]
    )  # its socket closes before it is dead
    assert [os.path.exists(address) for address in (left, kept)] == [False, True]
    assert comes_true(lambda: not any(map(runs, workers))), "a worker outlived its producer"


@pytest.fixture(scope="class")
def address() -> Iterator[str]:
    """Where a producer listens that serves a class of tests."""
    code = """
    with tsnb.serve(DataLoader(Numbers(64), batch_size=8), name="s", late_join=1.0) as producer:
        say("serving", tsnb.streams.list()[0].address)
        producer.wait()
    """
    with pytest.MonkeyPatch.context() as patch, scripts() as running:
        patch.setenv(SWITCH, "1")
        running.append(Script(code))
        yield running[0].expect("serving")


class TestTheDoorOfAProducer:
    """One producer, and those who come."""

    @pytest.mark.usefixtures("address")
    def test_who_attaches_needs_no_switch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The address says which channel it is, and the arena is a descriptor like any other."""
        monkeypatch.delenv(SWITCH)
        with tsnb.attach("c", "s") as consumer:
            assert [label for _, labels in consumer for label in labels.tolist()] == list(range(64))

    @pytest.mark.parametrize(
        "sent",
        [
            struct.pack("<I", 0),
            struct.pack("<I", 1 << 31) + b"x",
            struct.pack("<I", 50_000) + b"\xff" * 50_000,
            struct.pack("<I", 3) + b"\x40[]" + b"and more",
        ],
        ids=["empty", "too large", "no message", "no Hello"],
    )
    def test_what_is_no_packet_ends_that_connection_alone(self, address: str, sent: bytes) -> None:
        """Lengths that no packet of ours has, and packets that are no messages; beside half of one that never ends."""
        half, line = connect(address), connect(address)
        half._socket.send(framed(half, b"begun")[:-1])
        line._socket.send(sent)
        assert drained(line)
        assert status("s").name == "s"
        for channel in (half, line):
            channel.close()

    @pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
    def test_another_user_stands_before_a_closed_door(self, address: str) -> None:
        """The directory of the sockets is private; behind it the kernel's word on the peer would decide."""
        code = (
            "import os, socket, sys; os.setgid(65534); os.setuid(65534)\n"
            "try: socket.socket(socket.AF_UNIX).connect(sys.argv[1])\n"
            "except PermissionError: print('refused')"
        )
        command = [sys.executable, "-c", code, address]
        assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == "refused\n"


def test_a_large_word_reaches_its_consumer_through_a_small_socket(run: Run) -> None:
    """A traceback of 90 kB goes out in dozens of parts, each as soon as there is room, and needs nothing after it."""
    script = run(
        """
        import socket
        def failing(epoch):
            yield torch.zeros(2)
            for session in list(producer._core.sessions.values()):
                session.channel._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            raise ValueError("x" * 90_000)
        with tsnb.serve(failing, name="s", late_join=1.0) as producer:
            try:
                for batch in tsnb.attach("c"): pass
            except tsnb.errors.LoaderFailed as error: say("failed", len(str(error)) > 80_000)
        """
    )
    assert script.expect("failed") == "True"


@pytest.mark.slow
def test_a_full_dev_shm_is_told_and_kills_nobody() -> None:
    """On Linux POSIX shared memory lies there, and a container's is small: an error, and no SIGBUS."""
    said = test_limits.in_a_namespace(
        "mount -t tmpfs -o size=256k none /dev/shm",
        """
        for workers in (0, 1):
            loader = DataLoader(Numbers(48, width=1 << 18), batch_size=8, num_workers=workers)
            try: tsnb.serve(loader, name="s")
            except tsnb.errors.LoaderFailed as error: say("told", workers, "no memory left in /dev/shm" in str(error))
        with open("/dev/shm/others", "wb") as others:
            try: others.write(bytes(1 << 20))
            except OSError: pass
        try: tsnb.serve([torch.zeros(2)] * 3, name="s")
        except tsnb.errors.LoaderFailed as error: say("told", "full", "--shm-size" in str(error))
        """,
    )
    assert "told 0 True" in said and "told 1 True" in said and "told full True" in said, said


def test_many_arenas_are_made_at_once_and_none_has_a_name() -> None:
    """They share one name for a moment; who meets there gets an arena of its own all the same."""
    made: list[Arena] = []

    def make() -> None:
        for _ in range(12):
            arena = Arena.create()
            arena.fit(1, 4096)
            made.append(arena)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, arena in enumerate(made):
        arena.buffer[arena.offset_of(0)] = number
    assert [arena.buffer[arena.offset_of(0)] for arena in made] == list(range(96))
    for arena in made:
        arena.close()
    # another test run of this user may be making one just now
    assert comes_true(lambda: f"tsnb-{os.getuid()}" not in os.listdir("/dev/shm"))


def test_a_name_that_was_left_between_two_calls_is_removed_by_the_next_arena() -> None:
    """Killed just after shm_open: one name of an empty memory, for a user."""
    name = Path(f"/dev/shm/tsnb-{os.getuid()}")
    name.touch(mode=0o600)
    arena = Arena.create()
    assert not arena.attach()
    arena.close()
    assert comes_true(lambda: not name.exists())
