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
from pathlib import Path

import psutil
import pytest

from tests.system.conftest import Run
from tests.system.scripts import ROOT

pytestmark = pytest.mark.system

BLIND = Path(__file__).parent / "without_linux"
PRODUCER = """
    from tsnb.native import processes
    assert not processes.HAS_PROC and not hasattr(os, "memfd_create")
    loader = DataLoader(Numbers(6400), batch_size=64, num_workers=1, multiprocessing_context="spawn")
    if __name__ == "__main__":
        with tsnb.serve(loader, name="s", rubber_band=1.0) as producer:
            say("serving", tsnb.producers()[0].address)
            producer.wait()
"""
CONSUMER = """
    try:
        while True:
            for step, (images, labels) in enumerate(tsnb.attach(sys.argv[1])):
                assert labels.tolist() == list(range(64 * step, 64 * step + 64))
                assert torch.equal(images[:, 0].long(), labels)
                if step == 20: say("taken")
            assert step == 99
    except tsnb.errors.ProducerGone as error: say("gone", error)
"""


@pytest.fixture(autouse=True)
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process that the test starts has lost what macOS lacks; this one has not, and tells starts otherwise."""
    monkeypatch.setenv("PYTHONPATH", str(BLIND))


def gone(processes: list[psutil.Process], timeout_s: float = 20.0) -> bool:
    """Wait until they have ended."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes):
            return True
        time.sleep(0.05)
    return False


def test_a_stream_is_served_by_spawned_workers_and_survives_and_ends_as_everywhere(run: Run) -> None:
    """Exactly once, in order; a killed consumer is let go of, a killed producer is told, its workers end with it."""
    producer = run(PRODUCER)
    address = producer.expect("serving", 60)
    assert address.startswith("/") and os.path.exists(address)
    stays, goes = run(CONSUMER, "stays"), run(CONSUMER, "goes")
    stays.expect("taken", 60)
    goes.expect("taken", 60)
    goes.send(signal.SIGKILL)
    told = run(
        """
        while len(tsnb.status("s").consumers) > 1: time.sleep(0.05)
        say("let go")
        """
    )
    told.expect("let go", 60)
    workers = psutil.Process(producer.process.pid).children(recursive=True)
    assert workers
    producer.send(signal.SIGKILL)
    assert "start it again" in stays.expect("gone", 20)
    assert gone(workers), "a worker outlived its producer"
    assert run('say("producers", tsnb.producers())').expect("producers") == "[]"
    assert not os.path.exists(address), "the next look sweeps the socket"


def test_a_death_is_seen_though_a_child_keeps_the_sockets_open(run: Run) -> None:
    """No end of file, and no pidfd: whoever waits looks whether the other process is there, on either side."""
    forks = """
        def fork():  # from C: it runs no hooks of ours, and inherits the sockets
            import ctypes
            if ctypes.CDLL(None).fork() == 0:
                time.sleep(600)
                os._exit(0)
        """
    producer = run(
        forks
        + """
        def slow(epoch):
            yield torch.zeros(4)
            yield torch.zeros(4)
            time.sleep(1000)
        with tsnb.serve(slow, name="s", window=4) as producer:
            say("serving")
            input()
            fork()
            say("forked")
            producer.wait()
        """,
        stdin=True,
    )
    producer.expect("serving", 60)
    goes = run(forks + """
        loop = iter(tsnb.attach("goes"))
        fork()
        say("forked")
        time.sleep(1000)
        """)  # fmt: skip
    goes.expect("forked", 60)
    left = psutil.Process(goes.process.pid).children()
    try:
        goes.send(signal.SIGKILL)
        stays = run(
            """
            while tsnb.status("s").consumers: time.sleep(0.05)
            say("let go")
            try:
                for batch in tsnb.attach("stays"): say("batch")
            except tsnb.errors.ProducerGone: say("gone")
            """
        )
        stays.expect("let go", 60)
        stays.expect("batch")
        producer.answer("")
        producer.expect("forked")
        left += psutil.Process(producer.process.pid).children()
        producer.send(signal.SIGKILL)
        stays.expect("gone", 20)
    finally:
        for process in left:
            process.kill()


def test_a_trial_runs_beside_and_ends_with_who_started_it(run: Run) -> None:
    """Its kernel is spawned, since nothing can be forked there; a thread of its own sees its parent's end."""
    script = run(
        """
        def train():
            seen = [label for images, labels in tsnb.attach() for label in labels.tolist()]
            return len(seen), seen == sorted(seen)
        def wait():
            import time
            time.sleep(1000)
        with tsnb.serve(DataLoader(Numbers(640), batch_size=64), name="s", rubber_band=1.0):
            trial = tsnb.run(train, name="train", producer="s")
            say("trained", trial.result(80))
            waiting = tsnb.run(wait, name="wait")
            while waiting.state != "running": time.sleep(0.05)
            say("waiting")
            time.sleep(1000)
        """
    )
    assert script.expect("trained", 90) == "(640, True)"
    script.expect("waiting", 60)
    below = psutil.Process(script.process.pid).children(recursive=True)
    assert below
    script.send(signal.SIGKILL)
    assert gone(below), "a kernel outlived its parent"


def test_who_looks_at_the_machine_gets_numbers(run: Run) -> None:
    """The panel's line on processes, `tsnb devices`, free memory: from psutil."""
    script = run(
        """
        from tsnb.telemetry.host import HostSampler
        from tsnb.telemetry.memory import free_memory
        from tsnb.telemetry.usage import age_s, use_of
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


def test_the_doctor_tries_everything_and_says_which_pair_is_used() -> None:
    """A stream, a trial, memory, cores, the panel: nothing raises for want of what Linux has."""
    done = subprocess.run(
        [sys.executable, "-m", "tsnb", "doctor"],
        env={**os.environ, "PYTHONPATH": f"{BLIND}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    said = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the portable pair" in said
    assert "every sample taken once" in said
    assert "A background kernel was ready" in said and "It was started anew, not forked" in said
