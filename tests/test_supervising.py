"""`tsnb serve --restart on-crash` with real processes: who starts, who ends, with which exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import tsnb
from tests.promises import promptly
from tests.system.scripts import ROOT
from tsnb.discovery import registry
from tsnb.errors import ProducerNotFound
from tsnb.hosting import stopping
from tsnb.telemetry import observer

pytestmark = pytest.mark.system

MODULE = """
import os, signal, time
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        if os.path.exists("deadly"): os.kill(os.getpid(), signal.SIGKILL)
        if os.path.exists("broken"): raise ValueError("broken")
        return torch.tensor([float(i)])

def make(): return DataLoader(Numbers(), batch_size=8, shuffle=True)

class Costly(Numbers):
    def __getitem__(self, i):
        time.sleep(0.002)
        return torch.tensor([float(i)])

def costly(): return DataLoader(Costly(), batch_size=8, shuffle=True, num_workers=1)

def slow():
    open("starting", "w").close()
    time.sleep(60)
"""

BACK_S = 90.0
"""How long a process with torch may take to be back on a busy machine."""


def wait_for(condition: Callable[[], Any], timeout_s: float = BACK_S) -> Any:
    """Wait until a condition holds, and return what it gave."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)
    return found


class Serving:
    """A supervised `tsnb serve` in a process group of its own, as in a terminal."""

    def __init__(self, home: Path, target: str = "mydata:make", *options: str) -> None:
        (home / "mydata.py").write_text(MODULE)
        self.said = home / "said"
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tsnb",
                    "serve",
                    target,
                    "--name",
                    "toy",
                    "--restart",
                    "on-crash",
                    *options,
                ],
                cwd=home,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self.said.read_text()

    def producer(self, other_than: int = 0) -> int:
        """Wait for the serving process; return its pid."""

        def served() -> int:
            assert self.process.poll() is None, self.text
            return next((e.pid for e in registry.entries() if e.name == "toy" and e.pid != other_than), 0)

        pid: int = wait_for(served)
        wait_for(lambda: f"(pid {pid})" in self.text)  # its first batch is there
        return pid


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    started: list[Serving] = []

    def start(target: str = "mydata:make", *options: str) -> Serving:
        started.append(Serving(tmp_path, target, *options))
        return started[-1]

    yield start
    for serving in started:
        serving.process.kill()
        serving.process.wait()


@pytest.mark.slow
def test_a_killed_producer_is_back_under_its_name(serve: Callable[..., Serving]) -> None:
    """Another process serves, with the same seed, and `tsnb stop` ends both with status 0."""
    serving = serve()
    first = serving.producer()
    os.kill(first, signal.SIGKILL)
    second = serving.producer(other_than=first)
    assert psutil.Process(second).ppid() == serving.process.pid
    assert "The process that served 'toy' was killed by SIGKILL" in serving.text
    seeds = [line for line in serving.text.splitlines() if "order drawn from seed" in line]
    assert len(seeds) == 2
    assert len(set(seeds)) == 1
    stopping.stop("toy")
    assert serving.process.wait(120) == 0
    assert not psutil.pid_exists(second)


@pytest.mark.slow
def test_a_consumer_goes_on_where_it_was(serve: Callable[..., Serving]) -> None:
    """Every sample once, through a SIGKILL of the serving process in the middle of an epoch."""
    serving = serve()
    pid = serving.producer()
    with tsnb.attach("here", stream="toy") as consumer:
        seen: list[float] = []
        for batch in consumer:
            seen += batch[:, 0].tolist()
            if len(seen) == 16:
                os.kill(pid, signal.SIGKILL)
    assert sorted(seen) == [float(i) for i in range(64)]
    assert consumer.stats().reconnects == 1


@pytest.mark.slow
def test_a_cache_outlives_the_process_that_is_killed(serve: Callable[..., Serving]) -> None:
    """What was kept is there for its successor, in the middle of an epoch; every sample once in each."""
    serving = serve("mydata:costly", "--cache", "1MiB")
    pid = serving.producer()
    with tsnb.attach("here", stream="toy") as consumer:
        for epoch in range(4):
            seen: list[float] = []
            for batch in consumer:
                seen += batch[:, 0].tolist()
                if epoch == 2 and len(seen) == 16:
                    os.kill(pid, signal.SIGKILL)
            assert sorted(seen) == [float(i) for i in range(64)]
        cache = observer.status("toy").cache
    assert consumer.stats().reconnects == 1
    assert cache is not None
    assert (cache.state, cache.kept) == ("serving", 64)
    assert cache.misses == 128, "two epochs, and none after the restart"
    stopping.stop("toy")


@pytest.mark.slow
@pytest.mark.parametrize("whole_group", [True, False], ids=["Ctrl-C", "kill -INT"])
def test_an_interrupt_ends_both(serve: Callable[..., Serving], whole_group: bool) -> None:
    """In a terminal both get it, from another only the one that was called; the status is that of an interrupt."""
    serving = serve()
    pid = serving.producer()
    (os.killpg if whole_group else os.kill)(serving.process.pid, signal.SIGINT)
    assert serving.process.wait(120) == 128 + signal.SIGINT
    assert not psutil.pid_exists(pid)
    assert "Traceback" not in serving.text
    assert "tsnb restarts the stream" not in serving.text


@pytest.mark.slow
def test_a_termination_ends_both(serve: Callable[..., Serving]) -> None:
    """As a batch system or systemd asks for it, before and after the stream is there."""
    serving = serve("mydata:slow")
    wait_for((serving.said.parent / "starting").exists)
    with pytest.raises(ProducerNotFound, match=r"'toy' is being started\. Try again in a moment"):
        registry.find("toy")
    serving.process.terminate()
    assert serving.process.wait(120) == 128 + signal.SIGTERM
    serving = serve()
    pid = serving.producer()
    serving.process.terminate()
    assert serving.process.wait(120) == 128 + signal.SIGTERM
    assert not psutil.pid_exists(pid)


def test_a_producer_that_is_asked_to_end_is_not_started_again(serve: Callable[..., Serving]) -> None:
    """SIGTERM to the serving process itself is no crash."""
    serving = serve()
    pid = serving.producer()
    os.kill(pid, signal.SIGTERM)
    assert serving.process.wait(120) == 128 + signal.SIGTERM
    assert "tsnb restarts the stream" not in serving.text


def test_killing_the_one_that_was_called_leaves_no_orphan(serve: Callable[..., Serving]) -> None:
    """The serving process dies with it, within a second."""
    serving = serve()
    pid = serving.producer()
    serving.process.kill()
    serving.process.wait()
    promptly(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


@pytest.mark.slow
def test_a_producer_that_crashes_in_a_row_is_given_up(serve: Callable[..., Serving], tmp_path: Path) -> None:
    """Two more attempts, then status 1 and the reason."""
    serving = serve()
    pid = serving.producer()
    (tmp_path / "deadly").touch()
    os.kill(pid, signal.SIGKILL)
    assert serving.process.wait(3 * BACK_S) == 1
    assert serving.text.count("tsnb restarts the stream in pass 1") == 2
    assert serving.text.rstrip().endswith("It is not started again: it crashed 3 times within 60 s.")


@pytest.mark.slow
def test_what_cannot_be_served_is_no_crash(serve: Callable[..., Serving], tmp_path: Path) -> None:
    """One message and status 1, at the first start and at a later one."""
    (tmp_path / "broken").touch()
    serving = serve()
    assert serving.process.wait(BACK_S) == 1
    assert "tsnb restarts the stream" not in serving.text
    (tmp_path / "broken").unlink()
    serving = serve()
    pid = serving.producer()
    (tmp_path / "broken").touch()
    os.kill(pid, signal.SIGKILL)
    assert serving.process.wait(BACK_S) == 1
    assert serving.text.count("tsnb restarts the stream") == 1
    assert "ValueError: broken" in serving.text


ASKED_AT_THE_FORK = """
import os, signal, sys, time
from tsnb.hosting.supervising import supervise

def serve(epoch):
    print("went on", flush=True)
    time.sleep(60)
    return 0

os.register_at_fork(before=lambda: os.kill(os.getpid(), getattr(signal, sys.argv[1])))
os.register_at_fork(after_in_child=lambda: time.sleep(0.5))
sys.exit(supervise("toy", serve))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_asked_to_end_in_the_moment_of_a_start_ends(number: signal.Signals) -> None:
    """The process that is just being forked does not take the request for its parent's, and serve for 15 s."""
    ended = subprocess.run(
        [sys.executable, "-c", ASKED_AT_THE_FORK, number.name], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + number, "", "")
