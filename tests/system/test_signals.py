"""SIGSEGV and SIGSTOP of a consumer, a producer and the notebook that started kernels; SIGKILL is in test_faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.system.conftest import Run
from tests.system.scripts import Script
from tsnb.discovery.registry import entries
from tsnb.errors import TsnbError
from tsnb.hosting.stopping import stop
from tsnb.machine.processes import is_stopped
from tsnb.notebook.streams import listing
from tsnb.telemetry.following import look
from tsnb.telemetry.observer import balance, pause, status
from tsnb.telemetry.tuning import tune

pytestmark = pytest.mark.system

NOTICED_S = 25.0
"""A death is told at once, by the socket; on a busy machine that may take seconds. The stall timeout is 30 s."""

ENDLESS = """
    loader = DataLoader(Numbers(640000), batch_size=64, num_workers=2)
    stall_timeout_s = float(sys.argv[1]) if len(sys.argv) > 1 else 30
    with tsnb.serve(loader, name="s", window=4, late_join=0.0, stall_timeout_s=stall_timeout_s) as p:
        say("serving")
        p.wait()
"""
COUNTING = """
    expected = 0
    try:
        for images, labels in together(tsnb.attach(sys.argv[1]), int(sys.argv[2])):
            assert labels[0] == expected and torch.equal(images[:, 0].long(), labels), (labels[0], expected)
            expected += len(labels)
            if expected % 1280 == 0: say("batches", expected // 64)
            time.sleep(float((*sys.argv, 0.002)[3]))
    except tsnb.errors.TsnbError as error: say(type(error).__name__, error)
"""


def serve_endlessly(run: Run, *arguments: str) -> Script:
    producer = run(ENDLESS, *arguments)
    producer.expect("serving")
    return producer


def test_a_consumer_that_crashes_is_noticed(run: Run) -> None:
    """SIGSEGV in compiled code, while it holds the window: the others go on."""
    serve_endlessly(run)
    crashing = run(
        """
        import ctypes
        held = []
        for images, labels in together(tsnb.attach("crashing"), 2):
            held.append(images)
            if len(held) == 3:
                say("holds")
                time.sleep(1000)
        """
    )
    steady = run(COUNTING, "steady", "2")
    crashing.expect("holds")
    deadline = time.monotonic() + 30
    while status("s").state != "blocked":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    crashed = crashing.send(signal.SIGSEGV)
    while len(status("s").consumers) > 1:
        assert time.monotonic() - crashed < NOTICED_S, "not noticed"
        time.sleep(0.01)
    steady.expect("batches 100")


def test_a_producer_that_crashes_raises_in_every_consumer(run: Run) -> None:
    """SIGSEGV, as compiled code in the loader may end the producer; `no_leftovers` looks for its workers."""
    producer = serve_endlessly(run)
    consumers = [run(COUNTING, f"c{i}", "2") for i in range(2)]
    for consumer in consumers:
        consumer.expect("batches")
    producer.send(signal.SIGSEGV)
    for consumer in consumers:
        assert "Batches you hold stay valid" in consumer.expect("ProducerGone", NOTICED_S)


@pytest.mark.slow
def test_a_stopped_producer_is_told_to_those_who_wait_and_goes_on(run: Run) -> None:
    """SIGSTOP, Ctrl-Z, a debugger: it lives, so nothing ends; after SIGCONT not one batch is missing."""
    producer = serve_endlessly(run, "2")
    consumers = [run(COUNTING, f"c{i}", "2") for i in range(2)]
    for consumer in consumers:
        consumer.expect("batches")
    producer.send(signal.SIGSTOP)
    for consumer in consumers:
        line = ""
        while f"The process that serves stream 's' (pid {producer.process.pid}) is stopped" not in line:
            line = consumer.expect("")
    producer.send(signal.SIGCONT)
    for consumer in consumers:
        taken = int(consumer.expect("batches"))
        assert int(consumer.expect("batches")) == taken + 20


@pytest.mark.slow
def test_attaching_to_a_stopped_producer_says_what_may_be_wrong(run: Run) -> None:
    """It would be waited for without end: ten seconds, then an error that names it."""
    producer = serve_endlessly(run)
    producer.send(signal.SIGSTOP)
    script = run(
        """
        try: tsnb.attach("c")
        except tsnb.errors.ProducerGone as error: say("told", error)
        """
    )
    told = script.expect("told")
    assert "did not answer within 10 s" in told and f"`kill -CONT {producer.process.pid}`" in told
    producer.send(signal.SIGCONT)


def stopped(producer: Script) -> int:
    """Stop a producer; return its process number once all its threads stand still."""
    pid = producer.process.pid
    sent = producer.send(signal.SIGSTOP)
    while not is_stopped(pid):
        assert time.monotonic() - sent < NOTICED_S
        time.sleep(0.01)
    return pid


@pytest.mark.slow
def test_what_is_asked_of_a_stopped_producer_says_how_it_goes_on(run: Run) -> None:
    """That it is stopped is known, so it is not "maybe"; whatever was asked."""
    producer = serve_endlessly(run)
    pid = stopped(producer)
    asked: list[Callable[[], object]] = [
        lambda: status("s"),
        lambda: look("s", seconds=0.5),
        lambda: pause("s", "me"),
        lambda: balance("s", "free", timeout_s=0.5),
        lambda: tune("s", 1, timeout_s=0.5),
    ]
    for ask in asked:
        with pytest.raises(TsnbError, match=rf"does not answer: its process is stopped .*`kill -CONT {pid}`"):
            ask()
    (entry,) = entries()
    assert (
        listing()
        == f"{entry}: stopped by a signal, Ctrl-Z or a debugger. Run `kill -CONT {pid}` to continue it"
    )
    producer.send(signal.SIGCONT)
    assert listing() == str(entry)
    assert status("s").pid == pid


def test_a_stopped_producer_that_is_asked_to_stop_ends_once_it_goes_on(run: Run) -> None:
    """And the command that is named for it does end it."""
    producer = serve_endlessly(run)
    pid = stopped(producer)
    with pytest.raises(
        TsnbError, match=rf"its process is stopped .*`kill -CONT {pid}` .*To end it now: `kill -9 {pid}`"
    ):
        stop("s", timeout_s=0.5)
    producer.send(signal.SIGCONT)
    assert producer.process.wait(30) == 0


@pytest.mark.slow
def test_a_stopped_consumer_that_nobody_waits_for_goes_on_where_it_was(run: Run) -> None:
    """Alone, it may stand still for longer than stall timeout: not parked, nothing lost."""
    serve_endlessly(run, "1")
    alone = run(COUNTING, "alone", "1")
    taken = int(alone.expect("batches"))
    alone.send(signal.SIGSTOP)
    time.sleep(3.5)
    alone.send(signal.SIGCONT)
    assert int(alone.expect("batches")) == taken + 20


@pytest.mark.slow
def test_consumers_that_were_killed_cost_no_time_and_no_newcomer(run: Run) -> None:
    """The loader's workers inherit what watches a consumer's process; its end must not be reported for ever."""
    producer = run(
        """
        loader = DataLoader(Numbers(640), batch_size=64, num_workers=1)
        with tsnb.serve(loader, name="s", window=4) as p:
            say("serving")
            p.wait()
        """
    )
    producer.expect("serving")
    epochs = """
        for epoch in range(int(sys.argv[2])):
            rows = sum(len(labels) for _, labels in tsnb.attach(sys.argv[1]))
            say("epoch", rows)
        """
    for turn in range(3):
        consumer = run(epochs, f"c{turn}", "100000")
        for _ in range(3):
            assert consumer.expect("epoch") == "640"
        killed = consumer.send(signal.SIGKILL)
        while status("s").consumers:
            assert time.monotonic() - killed < NOTICED_S
    assert run(epochs, "newcomer", "5").end(20) == 0
    process = psutil.Process(producer.process.pid)
    before = process.cpu_times().user + process.cpu_times().system
    time.sleep(2)
    spent = process.cpu_times().user + process.cpu_times().system - before
    assert spent < 0.5, "nobody is attached: it sleeps"


NOTEBOOK = """
import sys, time
import torch
import tsnb
from torch.utils.data import DataLoader, Dataset
from tsnb.experiments import run_cell, trials
from tsnb.hosting.serving import serve_loader
class Endless(Dataset):
    def __len__(self): return 10_000_000
    def __getitem__(self, index): return torch.tensor([index])
class Page:
    def publish(self, kind, content): print("shown", content.get("text", ""), flush=True)
kernel = serve_loader(DataLoader(Endless(), batch_size=4, num_workers=1), "s", outlet=Page())
cell = '''
import pathlib, time
for step, batch in enumerate(tsnb.attach(stream="s")):
    pathlib.Path(path).write_text(str(step))
    if step % 50 == 0: print("step", step, flush=True)
    time.sleep(0.005)
'''
trial = run_cell("net", cell, {"path": sys.argv[1], "tsnb": tsnb}, outlet=Page())
while trial.pid is None: time.sleep(0.01)
print("pids", kernel.pid, trial.pid, flush=True)
time.sleep(100)
"""


def runs(process: psutil.Process) -> bool:
    """Return whether it has not ended; who clears it away is its parent's business."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def start_notebook(run: Run, path: Path) -> tuple[Script, list[psutil.Process]]:
    """Return the notebook, and its producer's and its trial's kernels with all that they started."""
    notebook = run(NOTEBOOK, str(path))
    pids = [int(pid) for pid in notebook.expect("pids").split()]
    while not path.exists() or not path.read_text():
        time.sleep(0.05)
    kernels = [psutil.Process(pid) for pid in pids]
    return notebook, kernels + [child for kernel in kernels for child in kernel.children(recursive=True)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV"])
def test_producer_and_trials_end_with_the_notebook_that_started_them(
    run: Run, tmp_path: Path, name: str
) -> None:
    """However it ends: both kernels and the loader's worker, and the stream's name is free."""
    notebook, below = start_notebook(run, tmp_path / "step")
    assert len(below) >= 3
    notebook.send(signal.Signals[name])
    ended = time.monotonic()
    while any(map(runs, below)):
        assert time.monotonic() - ended < NOTICED_S, [p for p in below if runs(p)]
        time.sleep(0.01)
    listed = [sys.executable, "-m", "tsnb", "list"]
    assert "s" not in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.slow
def test_trials_go_on_while_the_notebook_stands_still(run: Run, tmp_path: Path) -> None:
    """SIGSTOP of the notebook's kernel: the stream needs it for nothing; afterwards the output comes."""
    path = tmp_path / "step"
    notebook, below = start_notebook(run, path)
    notebook.send(signal.SIGSTOP)
    before, deadline = int(path.read_text() or 0), time.monotonic() + 30
    while int(path.read_text() or 0) < before + 300:
        assert time.monotonic() < deadline, "the trial stands still as well"
        time.sleep(0.05)
    notebook.send(signal.SIGCONT)
    step = -1
    while step < before + 250:
        shown = notebook.expect("shown step")
        step = int(shown.split()[0])
    for process in below:
        assert process.is_running()
    os.kill(notebook.process.pid, signal.SIGKILL)
