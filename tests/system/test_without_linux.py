"""The nearest thing to a Mac that Linux can be: the calls that macOS lacks are taken away, and all of tsnb is used.

What stands in for them is then what runs: the portable pair, psutil, threads that look for a parent, kernels that are
spawned. Not tried by it are macOS's own versions of calls that both have, and its word on who is at the other end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.system.conftest import Run
from tests.system.scripts import FAMILY, ROOT, runs

pytestmark = pytest.mark.system

BLIND = Path(__file__).parent / "without_linux"


@pytest.fixture(autouse=True)
def blind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every process that the test starts has lost what macOS lacks; this one has not, and tells starts otherwise.

    So this one cannot know that their owners are dead: what killed ones have left is removed by one of their kind.
    """
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(BLIND), str(ROOT))))
    yield
    subprocess.run(
        [sys.executable, "-c", "from tsnb.discovery import registry; registry.entries()"], check=True
    )


def gone(processes: list[psutil.Process], timeout_s: float = 60.0) -> bool:
    """Wait until they have ended."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not any(map(runs, processes)):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_a_stream_is_served_by_spawned_workers_and_survives_and_ends_as_everywhere(run: Run) -> None:
    """Exactly once, in order; a killed consumer is let go of, a killed producer is told, its workers end with it."""
    code = """
from tsnb.machine import processes
assert not processes.HAS_PROC and not hasattr(os, "memfd_create")
loader = DataLoader(Numbers(6400), batch_size=64, num_workers=1, multiprocessing_context="spawn")
reached, reaches = os.pipe()

def serve():
    with tsnb.serve(loader, name="s", late_join=1.0) as producer:
        say("serving", os.getpid(), tsnb.streams.list()[0].address)
        producer.wait()

def train(name):
    try:
        for epoch in range(1000):
            for step, (images, labels) in enumerate(tsnb.attach(name, "s")):
                assert labels.tolist() == list(range(64 * step, 64 * step + 64))
                assert torch.equal(images[:, 0].long(), labels)
                if (epoch, step) == (0, 20): os.write(reaches, b"!")
            assert step == 99
    except tsnb.errors.ProducerGone as error: say("gone", error)

producer = forked(serve)
while not tsnb.streams.list(): time.sleep(0.01)
stays, goes = forked(train, "stays"), forked(train, "goes")
for _ in range(2): os.read(reached, 1)
os.kill(goes, signal.SIGKILL)
while any(c.name == "goes" for c in tsnb.streams.status("s").consumers): time.sleep(0.05)
say("let go")
os.waitpid(producer, 0)
os.waitpid(stays, 0)
say("producers", tsnb.streams.list())
"""
    script = run(FAMILY + code)
    pid, address = script.expect("serving").split()
    assert address.startswith("/") and os.path.exists(address)
    script.expect("let go")
    producer = psutil.Process(int(pid))
    workers = producer.children(recursive=True)
    assert workers
    producer.kill()
    assert "start it again" in script.expect("gone")
    assert gone(workers), "a worker outlived its producer"
    assert script.expect("producers") == "[]"
    assert not os.path.exists(address), "the next look sweeps the socket"


@pytest.mark.slow
def test_a_death_is_seen_though_a_child_keeps_the_sockets_open(run: Run) -> None:
    """No end of file, and no pidfd: whoever waits looks whether the other process is there, on either side."""
    code = """
import ctypes
begun, begin = os.pipe()

def killed_while_a_child_lives():
    child = ctypes.CDLL(None).fork()  # from C: it runs no hooks of ours, and inherits the sockets
    if child == 0:
        time.sleep(600)
        os._exit(0)
    say("child", child)
    os.kill(os.getpid(), signal.SIGKILL)

def slow(epoch):
    yield torch.zeros(4)
    yield torch.zeros(4)
    time.sleep(1000)

def serve():
    with tsnb.serve(slow, name="s", window=4):
        os.read(begun, 1)
        killed_while_a_child_lives()

def goes():
    loop = iter(tsnb.attach("goes", "s"))
    killed_while_a_child_lives()

forked(serve)
while not tsnb.streams.list(): time.sleep(0.01)
os.waitpid(forked(goes), 0)
while tsnb.streams.status("s").consumers: time.sleep(0.05)
say("let go")
try:
    for batch in tsnb.attach("stays", "s"): os.write(begin, b"!")
except tsnb.errors.ProducerGone: say("gone")
"""
    script = run(FAMILY + code)
    left = []
    try:
        left.append(psutil.Process(int(script.expect("child"))))
        script.expect("let go")
        left.append(psutil.Process(int(script.expect("child"))))
        script.expect("gone")
    finally:
        for process in left:
            process.kill()


@pytest.mark.slow
def test_a_trial_runs_beside_and_ends_with_who_started_it(run: Run, tmp_path: Path) -> None:
    """Its kernel is spawned, since nothing can be forked there; a thread of its own sees its parent's end."""
    script = run(
        """
        def train(path):
            import pathlib, time
            seen = [label for images, labels in tsnb.attach() for label in labels.tolist()]
            pathlib.Path(path).write_text(f"{len(seen)} {seen == sorted(seen)}")
            time.sleep(1000)
        with tsnb.serve(DataLoader(Numbers(640), batch_size=64), name="s", late_join=1.0):
            trial = tsnb.run(train, name="train", stream="s", path=sys.argv[1])
            while not os.path.exists(sys.argv[1]):
                assert trial.state in {"queued", "starting", "running"}, trial.state
                time.sleep(0.05)
            say("trained")
            time.sleep(1000)
        """,
        str(tmp_path / "seen"),
    )
    script.expect("trained")
    assert (tmp_path / "seen").read_text() == "640 True"
    below = psutil.Process(script.process.pid).children(recursive=True)
    assert below
    script.send(signal.SIGKILL)
    assert gone(below), "a kernel outlived its parent"


@pytest.mark.slow
def test_who_looks_at_the_machine_gets_numbers(run: Run) -> None:
    """The panel's line on processes, `tsnb devices`, free memory: from psutil."""
    script = run(
        """
        from tsnb.telemetry.host import HostSampler
        from tsnb.machine.memory import free_memory
        from tsnb.machine.processes import age_s, use_of
        with tsnb.serve([torch.zeros(2)] * 3, name="s") as producer:
            list(tsnb.attach("c"))
            producer.rebalance()
            sampler = HostSampler()
            while (seen := sampler.sample(producer.status())) is None or seen.producer is None: time.sleep(0.05)
            say("memory", seen.producer.memory_bytes > 1 << 20, free_memory().size > 1 << 20)
            say("cores", seen.cores == os.cpu_count(), "GPU" in str(tsnb.devices()))
            say("age", 0 < age_s(use_of(os.getpid()).started) < 1000)
            while producer.status().rebalancing in ("", "off"): time.sleep(0.05)
            say("rebalancing", producer.status().rebalancing)
        """
    )
    assert script.expect("memory") == "True True"
    assert script.expect("cores") == "True True"
    assert script.expect("age") == "True"
    script.expect("rebalancing")


@pytest.mark.slow
def test_the_doctor_tries_everything_and_says_which_pair_is_used() -> None:
    """A stream, a trial, memory, cores, the panel: nothing raises for want of what Linux has."""
    done = subprocess.run(
        [sys.executable, "-m", "tsnb", "doctor"],
        env={**os.environ, "PYTHONPATH": f"{BLIND}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    said = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the portable way" in said
    assert "received every sample once" in said
    assert "A background kernel was ready" in said and "It was started as a new process, not forked" in said
