"""The machine, looked at from outside: real processes, and control groups of every kind as files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest

import tsnb.telemetry.host as host_module
from tests.system.scripts import ROOT
from tests.telemetry.test_diagnosis import consumer, stream
from tsnb.machine.processes import children_of, part_bytes, use_of
from tsnb.telemetry.host import EVERY_S, HostSampler
from tsnb.telemetry.readings import HostReading, StreamReading

BUSY = "while True: pass"
IDLE = "import time; time.sleep(600)"
PARENT = f"""
import multiprocessing, time
def spin():
    while True: pass
multiprocessing.get_context("fork").Process(target=spin).start()
{IDLE}
"""
BREEDER = """
import os, time
while True:  # children that live for a tenth of a second: they are gone before anybody looks
    pid = os.fork()
    if not pid:
        end = time.process_time() + 0.1
        while time.process_time() < end: pass
        os._exit(0)
    os.waitpid(pid, 0)
"""

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python processes; they and all below them are killed at the end."""
    running: list[subprocess.Popen[str]] = []

    def run(code: str) -> subprocess.Popen[str]:
        running.append(
            subprocess.Popen([sys.executable, "-c", f"print(flush=True)\n{code}"], stdout=-1, text=True)
        )
        assert running[-1].stdout is not None
        running[-1].stdout.readline()
        return running[-1]

    yield run
    for process in running:
        for child in children_of(process.pid):
            os.kill(child, 9)
        process.kill()
        process.communicate()


def child_of(parent: subprocess.Popen[str]) -> int:
    """Wait until a process has one child; return it."""
    while len(found := children_of(parent.pid)) != 1:
        time.sleep(0.01)
    return found[0]


class Clock:
    """Runs ahead of the real one by what a test adds, so that a look is due without waiting."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


def reading(*pids: int, producer: int | None = None) -> StreamReading:
    trials = [consumer(f"t{k}", pid=pid) for k, pid in enumerate(pids)]
    return stream(*trials, pid=os.getpid() if producer is None else producer, time_s=time.time())


def looked(sampler: HostSampler, of: StreamReading, seconds: float = 1.0) -> HostReading:
    """Hand over readings for a while; return the first host reading after it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sampler.sample(of)
        time.sleep(0.1)
    while (host := sampler.sample(of)) is None:
        time.sleep(0.1)
    return host


@pytest.mark.slow
def test_each_trial_has_the_cpu_and_memory_of_its_processes(start: Start) -> None:
    """A busy one more than an idle one, as psutil says too; children count for the process above them."""
    busy, idle, parent = start(BUSY), start(IDLE), start(PARENT)
    sampler = HostSampler()
    host = looked(sampler, reading(busy.pid, idle.pid, parent.pid), 3.0)
    spinning = psutil.Process(busy.pid)
    assert host.consumers["t0"].cpu > 0.05
    assert host.consumers["t1"].cpu < 0.02
    assert host.consumers["t2"].cpu > 0.05, "its child spins"
    assert host.consumers["t0"].cpu < 1.1
    assert host.consumers["t0"].memory_bytes == pytest.approx(spinning.memory_full_info().uss, abs=16 << 20)
    assert 0 < host.cpu <= host.cores
    assert host.producer is not None
    assert 0 < host.memory_used_bytes < host.memory_total_bytes
    assert msgspec.convert(_json(host), HostReading) == host


def _json(host: HostReading) -> dict[str, object]:
    text = replace(stream(), host=host).to_json()
    assert StreamReading.from_json(text).host == host
    found: dict[str, object] = json.loads(text)["host"]
    return found


@pytest.mark.slow
def test_children_that_have_ended_before_a_look_are_counted(start: Start) -> None:
    """Loader workers that live for one epoch: their seconds have gone to the process above them."""
    breeder = start(BREEDER)
    host = looked(HostSampler(), reading(breeder.pid), 2.0)
    assert host.consumers["t0"].cpu > 0.05


@pytest.mark.slow
def test_a_process_below_a_trial_that_is_a_trial_itself_counts_once(start: Start) -> None:
    """A notebook that attaches is above its own trial kernels."""
    parent = start(PARENT)
    below = [child_of(parent)]
    host = looked(HostSampler(), reading(parent.pid, below[0]), 2.0)
    assert host.consumers["t0"].cpu < 0.02
    assert host.consumers["t1"].cpu > 0.05
    assert children_of(parent.pid, frozenset(below)) == []


@pytest.mark.slow
def test_what_other_streams_keep_below_a_producer_is_not_its_own(start: Start) -> None:
    """A notebook that serves two streams: of each only the workers count, where they are known."""
    parent = start(
        PARENT.replace("start()", "start(); multiprocessing.get_context('fork').Process(target=spin).start()")
    )
    while len(both := children_of(parent.pid)) != 2:
        time.sleep(0.01)
    of = reading(producer=parent.pid)
    sampler, other = HostSampler(), HostSampler()
    for _ in range(2):
        looked(sampler, of)
    whole = looked(sampler, of, 3.0).producer
    part = looked(other, replace(of, worker_pids=(both[0],), workers=1), 3.0).producer
    assert whole is not None and part is not None
    assert part.cpu == part.workers > 0.05 and whole.workers == 0
    assert whole.cpu > 1.3 * part.cpu, "two spin, and one is a worker"


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this system does not tell who waits for a core"
)
def test_it_tells_who_waits_for_a_core(start: Start) -> None:
    """Three that compute all the time on one core: each is kept waiting for two thirds of it."""
    pinned = [
        start("import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n" + BUSY) for _ in range(3)
    ]
    idle = start(IDLE)
    host = looked(HostSampler(), reading(*(process.pid for process in pinned), idle.pid), 3.0)
    assert all(0.3 < host.consumers[f"t{k}"].kept_waiting < 1.0 for k in range(3))
    assert host.consumers["t3"].kept_waiting < 0.1


@pytest.mark.slow
def test_two_consumers_of_one_process_share_its_numbers(start: Start) -> None:
    """Threads that train side by side cannot be told apart from outside."""
    busy = start(BUSY)
    host = looked(HostSampler(), reading(busy.pid, busy.pid))
    assert host.consumers["t0"] == host.consumers["t1"]


def test_who_has_gone_or_is_not_ours_is_left_out(start: Start) -> None:
    """No zeros for those who cannot be seen: they are not there."""
    gone = start(IDLE)
    gone.kill()
    gone.wait()
    host = looked(HostSampler(), reading(gone.pid, 2**22 - 1, producer=2**22 - 2))
    assert host.consumers == {}
    assert host.producer is None


def test_a_process_younger_than_the_reading_is_another_one(start: Start) -> None:
    """A recorded reading's process numbers belong to others by now."""
    busy = start(BUSY)
    old = replace(reading(busy.pid), time_s=time.time() - 60)
    host = looked(HostSampler(), old)
    assert host.consumers == {}


@pytest.mark.slow
def test_a_number_given_to_another_process_is_not_taken_for_the_trial(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a trial is attached, its process number stands for one process only."""
    busy = start(BUSY)
    sampler = HostSampler()
    assert "t0" in looked(sampler, reading(busy.pid)).consumers

    def reused(pid: int) -> object:
        found = use_of(pid)
        return found._replace(started=found.started + 500) if found and pid == busy.pid else found

    monkeypatch.setattr(host_module, "use_of", reused)
    assert "t0" not in looked(sampler, reading(busy.pid), EVERY_S).consumers


def test_it_looks_seldom_and_cheaply(start: Start) -> None:
    """A tick without a look costs next to nothing; looks are as far apart as they must be to stay in the budget."""
    busy = [start(BUSY).pid for _ in range(2)]
    clock = Clock()
    sampler = HostSampler(clock=clock)
    now, looks, spent_s = reading(*busy), 0, 0.0
    ticks = 800
    for _ in range(ticks):
        clock.ahead_s += 0.25
        before_s = time.thread_time()
        looks += sampler.sample(now) is not None
        spent_s += time.thread_time() - before_s
    assert ticks * 0.25 / 30 - 1 <= looks <= ticks * 0.25 / EVERY_S + 1
    assert spent_s / ticks < 0.3e-3, "0.1 ms where the machine has nothing else to do"


def test_a_trials_cores_are_those_it_may_use(start: Start) -> None:
    """As set by taskset, a scheduler, or who moves cores between trials."""
    idle = start(IDLE)
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(idle.pid, allowed[:1])
    host = looked(HostSampler(), reading(idle.pid))
    assert host.consumers["t0"].cores == 1
    assert host.cores == len(allowed)


def test_pages_that_a_fork_shares_are_not_counted_twice(start: Start) -> None:
    """Of 64 MiB filled before a fork, parent and child have half each."""
    parent = start(f"import os, time\nheap = os.urandom(64 << 20)\nos.fork()\n{IDLE}")
    child = child_of(parent)
    for pid in (parent.pid, child):
        part, use = part_bytes(pid), use_of(pid)
        assert part is not None
        assert use is not None
        assert 32 << 20 <= part < 48 << 20
        assert use.anonymous_bytes > 64 << 20
    clock = Clock()
    sampler = HostSampler(clock=clock)
    now = reading(parent.pid)
    hosts: list[HostReading | None] = []
    for _ in range(200):
        clock.ahead_s += 0.25
        hosts.append(sampler.sample(now))
    host = [found for found in hosts if found][-1]
    assert 64 << 20 <= host.consumers["t0"].memory_bytes < 96 << 20


@pytest.mark.slow
def test_the_follower_adds_the_host(tmp_path: Path) -> None:
    """A real stream, followed: readings carry the producer's and the trial's processes, now and then."""
    code = """
        import threading, time, torch, tsnb
        from tsnb.telemetry.following import Follower
        def train():
            for batch in tsnb.attach("cnn", stream="s"): time.sleep(0.02)
        with tsnb.serve([torch.zeros(4)] * 400, name="s"):
            threading.Thread(target=train, daemon=True).start()
            found = []
            follower = Follower("s", found.append, print)
            follower.start()
            while not any(r.host and r.host.consumers for r in found): time.sleep(0.1)
            follower.close()
        host = next(r.host for r in found if r.host and r.host.consumers)
        print(sum(r.host is None for r in found) > 0, host.producer == host.consumers["cnn"])
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout.strip() == "True True", done.stderr
