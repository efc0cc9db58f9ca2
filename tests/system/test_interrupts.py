"""Ctrl-C at any moment: no slot pinned for good, no batch lost in silence, nobody held up.

An interrupt is raised by Python between any two bytecodes of the main thread: in the middle of receiving a
batch, of giving one back, even inside a finalizer, where Python itself drops it together with what that had to do.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.system.conftest import Run
from tsnb.kernels.hub import the_hub
from tsnb.kernels.processes.child import Child
from tsnb.stream.consumer.talking.line import Line
from tsnb.telemetry.observer import status

pytestmark = pytest.mark.system

UNDER_FIRE = """
    import collections, faulthandler, random, signal, contextlib
    faulthandler.dump_traceback_later(45, exit=True)   # a hang says where
    random.seed(int(sys.argv[1]))
    fired = 0
    def strike(number, frame):
        global fired
        fired += 1
        raise KeyboardInterrupt
    signal.signal(signal.SIGALRM, strike)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def late(seen):
        '''Wait for an interrupt that came inside a finalizer and is raised again.'''
        try:
            if fired > seen: time.sleep(2)
        except KeyboardInterrupt: return 1
        return 0

    @contextlib.contextmanager
    def fire(longest_s):
        '''Raise KeyboardInterrupt at a random moment of the block, unless it ends before.'''
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00005, longest_s))
        try: yield
        finally: signal.setitimer(signal.ITIMER_REAL, 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["1", "2"])
def test_interrupts_at_any_moment_cost_no_slot_and_no_batch(run: Run, seed: str) -> None:
    """A thousand interrupted epochs; then everything is as if there had been none."""
    script = run(
        UNDER_FIRE
        + """
    with tsnb.serve(DataLoader(Numbers(64, 8), batch_size=4), name="s", window=2) as producer:
        consumer = tsnb.attach("c")
        list(consumer)
        attempts = interrupted = 0
        until = time.monotonic() + 5
        while time.monotonic() < until or interrupted <= 200:
            rows, attempts = [], attempts + 1
            try:
                with fire(0.006):
                    for images, labels in consumer: rows += labels.tolist()
                    assert rows == list(range(64)), rows
            except KeyboardInterrupt: interrupted += 1
            interrupted += late(interrupted)
        images = labels = None
        say("swallowed", fired - interrupted)
        copied = consumer.stats().copied
        for epoch in range(3):
            assert [x for _, labels in consumer for x in labels.tolist()] == list(range(64))
        labels = None
        say("interrupted", interrupted, "of", attempts)
        def pinned(): return sum(len(m.leases) for m in producer._core.dispatch.members.values())
        deadline = time.monotonic() + 60
        while pinned() and time.monotonic() < deadline: time.sleep(0.01)
        say("pinned", pinned(), "held", consumer.stats().held, "copied", consumer.stats().copied - copied)
        consumer.close()
        assert pinned() == 0
        while producer.status().consumers: time.sleep(0.01)
        """,
        seed,
    )
    assert script.expect("swallowed") == "0"
    assert int(script.expect("interrupted").split()[0]) > 200
    assert script.expect("pinned") == "0 held 0 copied 0"
    assert script.end() == 0


@pytest.mark.slow
def test_an_interrupt_inside_a_finalizer_is_raised_again_and_costs_no_release(run: Run) -> None:
    """Nearly all that runs here are ends of leases and loops; every interrupt is seen, every end is acted on."""
    script = run(
        UNDER_FIRE
        + """
    import mmap
    from tsnb.stream.memory.leases import lease
    from tsnb.stream.memory.scratch import ScratchPool
    dropped = []
    sys.unraisablehook = lambda told: dropped.append(told.exc_type)
    pool, memory, released, made = ScratchPool(), mmap.mmap(-1, 4096), set(), 0
    until, seen = time.monotonic() + 3, 0
    while time.monotonic() < until or fired <= 300:
        try:
            with fire(0.0005):
                while True:
                    held = lease(memory, 0, 64, lambda number=made: released.add(number))
                    made += 1
                    held = pool.take(100)
        except KeyboardInterrupt: seen += 1
        held = None
        seen += late(seen)
    blocks = [id(block) for free in pool._free.values() for block in free]
    say("swallowed", fired - seen, len(dropped), len(blocks) - len(set(blocks)))
    say("fired", fired, "lost", made - len(released))
        """,
        "5",
    )
    assert script.expect("swallowed") == "0 0 0", "no interrupt, and no block of memory twice"
    fired, _, lost = script.expect("fired").split()
    assert int(fired) > 300
    assert int(lost) <= 0


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupt_while_an_epoch_ends_does_not_make_the_next_one_empty(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All batches were taken, and the word that it is over was being acted on."""
    leave = Line.leave

    def interrupted(line: Line) -> None:
        monkeypatch.setattr(Line, "leave", leave)
        if moment == "after":
            leave(line)
        raise KeyboardInterrupt

    loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=2)
    with tsnb.serve(loader, name="s"), tsnb.attach("c") as consumer:
        assert len(list(consumer)) == 4
        monkeypatch.setattr(Line, "leave", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(consumer)
        assert torch.cat([rows for (rows,) in consumer]).tolist() == list(range(8))
        assert consumer.epoch == 2


def test_a_loop_that_goes_on_after_an_interrupt_inside_next_is_complete_or_says_so(run: Run) -> None:
    """Whoever catches KeyboardInterrupt around `next` gets the rest of the epoch or an error; never a gap or a hang.

    Interrupts are let through only inside our own code: a batch that `next` has returned and an interrupt keeps
    from being assigned is lost to the user's program by no fault of the stream.
    """
    script = run(
        UNDER_FIRE
        + """
    def inside(number, frame):
        while frame is not None and not frame.f_code.co_filename.endswith("consumer/loop.py"): frame = frame.f_back
        if frame is not None: raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_REAL, 0.0001)
    signal.signal(signal.SIGALRM, inside)
    def shapes(epoch):
        for i in range(16): yield torch.full((4 + i % 8,), float(i))
    found, interrupted = collections.Counter(), 0
    with tsnb.serve(shapes, name="s", window=2) as producer:
        consumer = tsnb.attach("c")
        list(consumer)
        until = time.monotonic() + 5
        while time.monotonic() < until or interrupted <= 50:
            loop, rows = iter(consumer), []
            try:
                while True:
                    try:
                        with fire(0.003): batch = next(loop)
                    except KeyboardInterrupt:
                        interrupted += 1
                        continue
                    rows.append(int(batch[0]))
            except StopIteration: found["complete" if rows == list(range(16)) else f"gap {rows}"] += 1
            except tsnb.errors.TsnbError as error: found["told"] += 1
        say("interrupted", interrupted)
        say("found", *[word for word in found if "gap" in word])
        say("whole", [[int(batch[0]) for batch in consumer] == list(range(16)) for _ in range(3)])
        """,
        "3",
    )
    assert int(script.expect("interrupted")) > 50
    assert script.expect("found") == ""
    assert script.expect("whole") == "[True, True, True]"


@pytest.fixture
def kernel() -> Iterator[Child]:
    """Return a notebook's kernel with the extension loaded."""
    hub = the_hub()

    async def make() -> Child:
        return Child(hub, "notebook", lambda *_: None)

    child = hub.call(make())
    hub.call(child.start())
    hub.call(child.execute("%load_ext tsnb\nimport tsnb, torch"))
    yield child
    hub.call(child.kill())


@pytest.mark.slow
def test_an_interrupted_cell_holds_nobody_and_runs_again_from_an_epochs_start(
    run: Run, kernel: Child
) -> None:
    """The stop button, then the same cell once more: a neighbour goes on meanwhile, long before the stall timeout."""
    hub = the_hub()
    run(
        """
        with tsnb.serve(DataLoader(Numbers(12800), batch_size=64), name="s", window=4, stall_timeout_s=600) as producer:
            say("serving")
            producer.wait()
        """
    ).expect("serving")
    cell = (
        "rows = []\n"
        "for images, labels in tsnb.attach('cell', stream='s'):\n"
        "    rows += labels.tolist()\n"
        "    while len(rows) > 640 and slow: pass\n"
        "assert rows == list(range(12800)), len(rows)"
    )
    hub.call(kernel.execute("slow = True"))
    running = hub.post(kernel.execute(cell))
    neighbour = run(
        """
        for epoch in range(2):
            rows = [x for _, labels in tsnb.attach("neighbour") for x in labels.tolist()]
            say("epoch", rows == list(range(12800)))
        """
    )
    deadline = time.monotonic() + 60
    while _state("cell") != "sets the pace":
        assert time.monotonic() < deadline, "it holds the window"
        time.sleep(0.02)
    hub.loop.call_soon_threadsafe(kernel.interrupt)
    assert running.result(60)["ename"] == "KeyboardInterrupt"
    assert neighbour.expect("epoch") == "True", (
        "stall timeout is ten minutes: the interrupt itself let it go on"
    )
    hub.call(kernel.execute("slow = False"))
    reply: dict[str, Any] = hub.post(kernel.execute(cell)).result(60)
    assert reply["status"] == "ok", reply
    assert neighbour.expect("epoch") == "True"


def _state(name: str) -> str:
    return {c.name: c.state for c in status("s").consumers}.get(name, "")


LEAVING = {
    "break": "for batch in c: break",
    "an exception": "try:\n    for batch in c: 1 / 0\nexcept ZeroDivisionError: pass",
    "zip": "for _ in zip(range(2), c): pass",
    "a generator": "for batch in (batch for batch in c): break",
    "del": "loop = iter(c); next(loop); del loop",
    "return": "(lambda loop: next(loop))(iter(c))",
}


@pytest.mark.parametrize("way", list(LEAVING))
def test_leaving_a_loop_by_any_way_holds_nobody(run: Run, way: str) -> None:
    """The moment the last reference to the loop goes, the epoch is left: stall timeout (30 s) has no part in it."""
    script = run(
        f"""
        import gc
        gc.disable()
        with tsnb.serve(DataLoader(Numbers(64000, 8), batch_size=8), name="s", window=4) as producer:
            c = tsnb.attach("leaves")
            exec({LEAVING[way]!r})
            began = time.monotonic()
            while producer.status().consumers[0].state != "between epochs":
                if time.monotonic() - began > 5: break
                time.sleep(0.01)
            say("state", producer.status().consumers[0].state)
        """
    )
    assert script.expect("state") == "between epochs"


def test_a_command_that_is_interrupted_while_it_is_imported_says_nothing() -> None:
    """Nothing has begun: where in an import it was is nobody's business."""
    code = (
        "import builtins, os, signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from tsnb import cli\nfound = builtins.__import__\n"
        "def interrupted(name, *more):\n"
        "    if name == 'tsnb.options': os.kill(os.getpid(), signal.SIGINT)\n"
        "    return found(name, *more)\n"
        "builtins.__import__ = interrupted\nsys.exit(cli.main(['list']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", -signal.SIGINT)


def test_a_command_at_its_limit_of_open_files_says_so_in_one_line() -> None:
    """It was a traceback of whatever needed the one file too many."""
    code = (
        "import errno, os, sys\nfrom tsnb.cli import commands\n"
        "def open_many(options): return [os.open(os.devnull, os.O_RDONLY) for _ in range(99)]\n"
        "import argparse, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n"
        "sys.exit(commands._guarded(argparse.Namespace(command='stalls'), open_many))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("tsnb stalls: Too many open files. ") and "`ulimit -n`" in done.stderr
    assert done.stderr.count("\n") == 1
