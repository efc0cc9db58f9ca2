"""Cores and threads of real processes move, and come back whatever ends.

What the balancer decides is tested on simulated machines (`tests/planners`); here it is told to give every trial one
core and three threads at once, and the loader's workers another core.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest
import torch

import tsnb
from tests.system.conftest import Run
from tests.system.scripts import Script
from tsnb.telemetry.observer import rebalance, status
from tsnb.telemetry.readings import StreamReading
from tsnb.telemetry.shown.marks import marks

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be divided"),
]
HOME = sorted(os.sched_getaffinity(0))
SERVE = """
    import tsnb.balancing.controller as controller
    from tsnb.planners.balancing import Balancer
    from tsnb.planners.dividing import Division
    from tsnb.planners.parties import Allot, Moved

    class AtOnce(Balancer):
        def step(self, seen):
            trials = [Allot(p.name, p.home[-1:], 3) for p in seen.trials]
            now = Division("split", (*trials, Allot("", seen.cores[:1], 1)), 0.0)
            if self.now == now: return []
            self.now, self.moves = now, self.moves + 1
            return [*now.allotments, Moved(self.moves, seen.trials[0].name, "1 core of its own", "so the test says")]

    controller.Balancer, controller.TICK_S = AtOnce, 0.1
    loader = DataLoader(Numbers(6400000), batch_size=64, num_workers=1)
    with tsnb.serve(loader, name="s", rebalance=True, late_join=0.0) as p:
        say("serving")
        p.wait()
"""
TRIAL = """
    import json, subprocess, threading
    from tsnb.errors import ProducerGone
    os.environ.pop("OMP_NUM_THREADS", None)
    own = torch.get_num_threads()
    def cores(task): return sorted(os.sched_getaffinity(task))
    def state():
        tasks = [int(t) for t in os.listdir("/proc/self/task")]
        return [torch.get_num_threads(), sorted({tuple(cores(t)) for t in tasks}), cores(child.pid)]
    def orders():
        for line in sys.stdin: asked.append(line.strip())
    asked, last = [], None
    child = subprocess.Popen(["sleep", "1000"])
    threading.Thread(target=orders, daemon=True).start()
    torch.set_num_threads(os.cpu_count())  # what torch begins with: not its user's choice
    consumer = tsnb.attach("a")
    try:
        for images, labels in consumer:
            threads = torch.get_num_threads()
            time.sleep(0.01)
            assert torch.get_num_threads() == threads, "changed in the middle of a step"
            if asked:
                order = asked.pop(0)
                if order == "leave": break
                exec(order)
            now = state()
            if now != last: say("state", json.dumps(now))
            last = now
    except ProducerGone:
        say("gone")
    consumer.close()
    last = None
    while "end" not in asked:
        now = state()
        if now != last: say("after", json.dumps(now))
        last = now
        time.sleep(0.01)
    child.kill()
    child.wait()
"""


def until(look: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    """Wait until a look finds something; return it."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def until_state(trial: Script, threads: int, cores: list[int], said: str = "state") -> None:
    """Read what the trial says until torch, all of its threads and its child are as they should be."""
    wanted = [threads, [cores], cores]
    while json.loads(trial.expect(said)) != wanted:
        pass


def until_put_back(trial: Script) -> None:
    """Wait until a trial that has detached is as it was; a look of the balancer's may be under way. Let it end."""
    until_state(trial, os.cpu_count() or 1, HOME, "after")
    trial.answer("end")
    assert trial.end() == 0


def begin(run: Run) -> tuple[Script, Script]:
    """Serve, and start a trial; return when its cores have been moved."""
    producer = run(SERVE)
    producer.expect("serving")
    trial = run(TRIAL, stdin=True)
    until_state(trial, 3, HOME[-1:])
    return producer, trial


def test_cores_and_threads_move_and_come_back_when_it_is_switched_off_and_when_a_trial_detaches(
    run: Run,
) -> None:
    """All threads, children and loader workers move; torch's threads between steps; all is told; all comes back."""
    producer, trial = begin(run)
    serving = psutil.Process(producer.process.pid)
    [worker] = until(
        lambda: [p for p in serving.children() if p.cpu_affinity() == HOME[:1]], "a worker moves"
    )
    assert serving.cpu_affinity() == HOME, "the producer itself stays where it is"
    reading: StreamReading = until(lambda: (now := status("s")).moves and now, "the move is told")
    assert reading.rebalancing == "on"
    assert [(m.consumer, m.text, m.reason) for m in reading.moves] == [
        ("a", "1 core of its own", "so the test says")
    ]
    producer.expect("tsnb: s: 1 core of its own (so the test says)")

    rebalance("s", on=False)
    until_state(trial, os.cpu_count() or 1, HOME)
    assert worker.cpu_affinity() == HOME
    off = status("s")
    assert off.rebalancing == "off"
    assert off.moves[-1].text == "all cores to all"
    told = [mark.text for mark in marks(reading, off)]
    assert told == ["all cores to all: it was switched off"], "one mark a move"

    rebalance("s", on=True)
    until_state(trial, 3, HOME[-1:])
    trial.answer("leave")
    until_put_back(trial)


def test_what_a_killed_producer_has_moved_puts_itself_back(run: Run) -> None:
    """SIGKILL leaves nobody else to do it: the trial does, when it notices."""
    producer, trial = begin(run)
    producer.send(signal.SIGKILL)
    trial.expect("gone")
    until_put_back(trial)


def test_what_a_user_chooses_stays(run: Run) -> None:
    """Cores that he pins while the balancer is at work, and torch's threads that he sets: they outlast it."""
    producer, trial = begin(run)
    trial.answer(
        "torch.set_num_threads(2); "
        f"[os.sched_setaffinity(int(t), {{{HOME[0]}}}) for t in os.listdir('/proc/self/task')]"
    )
    while json.loads(trial.expect("state"))[:2] != [2, [HOME[:1]]]:
        pass
    # the trial's home is another now, and the plan with it
    until(lambda: len(status("s").moves) >= 2, "its new home is seen")
    rebalance("s", on=False)
    trial.answer("leave")
    while json.loads(trial.expect("after"))[:2] != [2, [HOME[:1]]]:
        pass
    trial.answer("end")
    assert trial.end() == 0
    producer.send(signal.SIGINT)


def test_off_means_off_and_who_cannot_be_moved_is_not() -> None:
    """Without the option there is not even a thread for it; in one process with its producer nothing is moved."""
    import threading

    batches = [torch.zeros(4, 2) for _ in range(50)]
    with tsnb.serve(batches, name="plain") as producer:
        assert producer.status().rebalancing == "off"
        assert not [t for t in threading.enumerate() if t.name.startswith("tsnb-balance")]
        producer.rebalance()
        consumer = tsnb.attach("here", stream="plain")
        for _ in consumer:
            state = until(
                lambda: "the process of the stream" in producer.status().rebalancing and producer.status(),
                "it says why",
            )
            assert state.moves == ()
            break
        consumer.close()
        producer.rebalance(False)
        assert producer.status().rebalancing == "off"
    assert not [t for t in threading.enumerate() if t.name.startswith("tsnb-balance")]
