"""The most telling stories of the other files once more, over the portable arena and channel: TSNB_PORTABLE=1.

All of them run so with `TSNB_PORTABLE=1 make test TESTS="tests/arena tests/transport tests/consumer tests/producer
tests/system"`.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.system import test_faults, test_limits, test_resume, test_security, test_stream
from tests.system.conftest import Run
from tsnb import registry
from tsnb.native.pair import SWITCH
from tsnb.registry import find, socket_directory

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def portable(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process, and all that the test starts."""
    monkeypatch.setenv(SWITCH, "1")


serving = test_security.serving

test_exactly_once = (
    test_stream.test_three_consumers_of_different_speed_and_batch_size_get_every_sample_once_in_the_same_order
)
test_a_killed_consumer = test_faults.test_a_killed_consumer_is_noticed_within_a_second_and_its_slots_come_back
test_a_killed_producer = test_faults.test_a_killed_producer_raises_in_every_consumer_within_a_second
test_a_restart = test_resume.test_a_killed_producer_that_is_started_again_costs_nobody_a_sample
test_nothing_is_left = test_faults.test_everything_killed_at_once_leaves_nothing
test_former_producers = test_faults.test_former_producers_cost_nothing
test_hostile_packets = test_security.test_malformed_and_misplaced_messages_are_counted_and_end_the_connection
test_another_user = test_faults.test_another_user_cannot_attach


def test_the_socket_of_a_killed_producer_is_swept_by_the_next_look_and_no_other_is(run: Run) -> None:
    """Its name says whose it was; a producer that lives keeps its own."""
    code = """
        with tsnb.serve([torch.zeros(2)] * 3, name=sys.argv[1]) as producer:
            say("serving")
            producer.wait()
        """
    killed, lives = run(code, "killed"), run(code, "lives")
    for script in (killed, lives):
        script.expect("serving")
    left, kept = find("killed").address, find("lives").address
    assert Path(left).parent == Path(kept).parent == socket_directory()
    killed.send(signal.SIGKILL)
    killed.end()
    assert os.path.exists(left), "SIGKILL leaves it"
    assert [entry.name for entry in registry.entries()] == ["lives"]
    assert not os.path.exists(left)
    assert os.path.exists(kept)


def test_who_attaches_needs_no_switch(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address says which channel it is, and the arena is a descriptor like any other."""
    serves = run(
        """
        with tsnb.serve(DataLoader(Numbers(64), batch_size=8), name="s", rubber_band=1.0) as producer:
            say("serving")
            producer.wait()
        """
    )
    serves.expect("serving")
    monkeypatch.delenv(SWITCH)
    script = run('say("seen", sum(len(labels) for images, labels in tsnb.attach("c")))')
    assert script.expect("seen") == "64"


def test_a_large_word_reaches_a_consumer_that_does_not_read_for_a_while(run: Run) -> None:
    """A traceback of 100 kB behind a full queue goes out in parts, and nothing needs to follow it."""
    script = run(
        """
        import threading
        def failing(epoch):
            for i in range(50): yield torch.zeros(2)
            raise ValueError("x" * 90_000)
        with tsnb.serve(failing, name="s", window=60, rubber_band=1.0):
            loop = iter(tsnb.attach("c"))
            next(loop)
            time.sleep(1.0)
            try:
                for batch in loop: pass
            except tsnb.errors.LoaderFailed as error: say("failed", len(str(error)) > 80_000)
        """
    )
    assert script.expect("failed") == "True"


def test_a_full_dev_shm_is_told_and_kills_nobody() -> None:
    """On Linux POSIX shared memory lies there, and a container's is small: an error, and no SIGBUS."""
    said = test_limits.in_a_namespace(
        "mount -t tmpfs -o size=256k none /dev/shm",
        """
        for workers in (0, 1):
            loader = DataLoader(Numbers(48, width=1 << 18), batch_size=8, num_workers=workers)
            try: tsnb.serve(loader, name="s")
            except tsnb.errors.LoaderFailed as error: say("told", workers, "no memory left" in str(error))
        """,
    )
    assert "told 0 True" in said and "told 1 True" in said, said


def test_many_arenas_are_made_at_once_and_none_has_a_name(run: Run) -> None:
    """They share one name for a moment; who meets there gets an arena of its own all the same."""
    script = run(
        """
        import threading
        from tsnb.arena.memory import Arena
        made, lock = [], threading.Lock()
        def make():
            for _ in range(50):
                arena = Arena.create()
                arena.fit(1, 4096)
                with lock: made.append(arena)
        threads = [threading.Thread(target=make) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        for number, arena in enumerate(made): arena.buffer[arena.offset_of(0)] = number % 251
        kept = all(arena.buffer[arena.offset_of(0)] == number % 251 for number, arena in enumerate(made))
        say("made", len(made), kept, f"tsnb-{os.getuid()}" in os.listdir("/dev/shm"))
        """
    )
    assert script.expect("made") == "400 True False"


def test_a_name_that_was_left_between_two_calls_is_removed_by_the_next_arena(run: Run) -> None:
    """Killed just after shm_open: one name of an empty memory, for a user."""
    name = Path(f"/dev/shm/tsnb-{os.getuid()}")
    name.touch(mode=0o600)
    script = run(
        """
        from tsnb.arena.memory import Arena
        say("made", Arena.create().attach())
        """
    )
    assert script.expect("made") == "False"
    deadline = time.monotonic() + 10.0
    while name.exists():  # another test run of this user may be making one just now
        assert time.monotonic() < deadline
        time.sleep(0.01)
