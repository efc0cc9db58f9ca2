"""The notebook or the producer is killed while trials are steered: nothing stays behind, and nobody loses a sample."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.promises import promptly
from tests.system.scripts import Script, runs, scripts
from tsnb.errors import TsnbError
from tsnb.experiments import run_cell
from tsnb.records.run import Run

pytestmark = [pytest.mark.system, pytest.mark.slow]

Until = Callable[..., None]

ROWS = 48

ENDLESS = """
for epoch in range(10**6):
    for (rows,) in tsnb.attach():
        tsnb.log(rows=len(rows))
"""

NOTEBOOK = """
import signal
from tsnb.experiments.running.branches import Branches
from tsnb.experiments.news import BRANCH
from tsnb.kernels.processes.forking import ForkServer

step = sys.argv[1]
os.chdir(sys.argv[3])

def die():
    os.kill(os.getpid(), signal.SIGKILL)

async def asks(self, child, wish):
    await child.request(BRANCH, wish)
    die()

async def forks(self, child, wish, forked=Branches._forked):
    await forked(self, child, wish)
    die()

async def takes_in(self, pid, take_in=ForkServer.take_in):
    await take_in(self, pid)
    die()

if step == "it was asked for": Branches._forked = asks
if step == "the clone stands there": Branches._forked = forks
if step == "the clone is taken in": ForkServer.take_in = takes_in
from tsnb.experiments import run_cell
from tsnb.kernels.hub import the_hub
from tsnb.kernels.processes.forking import await_server
the_hub().call(await_server(the_hub(), 120))
trial = run_cell("one", sys.argv[2], {}, stream="numbers")
while len(trial.metrics.rows) < 20: time.sleep(0.01)
say("trains")
while not os.path.exists("go"): time.sleep(0.01)
two = trial.clone("two")
while not two.metrics.rows: time.sleep(0.01)
die()
"""

STEPS = ("it was asked for", "the clone stands there", "the clone is taken in", "the clone trains")


def those_in(folder: Path) -> list[psutil.Process]:
    """Return the processes that run and have that folder as their own: the notebook, and whatever came of it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.cwd() == str(folder) and runs(process):
                found.append(process)
    return found


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder for the notebook to run in; what a failed test has left there is killed."""
    folder = tmp_path / "home"
    folder.mkdir()
    yield folder
    for process in those_in(folder):
        with contextlib.suppress(psutil.Error):
            process.kill()


@pytest.mark.parametrize("step", STEPS)
def test_a_notebook_that_is_killed_while_it_clones_leaves_neither_trial_nor_clone(
    step: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any step: their processes end, their names come free, and another gets all of an epoch."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    loader = DataLoader(TensorDataset(torch.arange(ROWS)), batch_size=4, shuffle=True)
    with tsnb.serve(loader, name="numbers", window=4), scripts() as running:
        notebook = Script(NOTEBOOK, step, ENDLESS, str(home))
        running.append(notebook)
        notebook.expect("trains")
        assert len(those_in(home)) >= 2, "the notebook, and its trial at least"
        (home / "go").touch()
        assert notebook.end() == -signal.SIGKILL
        promptly(lambda: not those_in(home), promised_s=5.0)
        promptly(lambda: not [c for c in tsnb.streams.status("numbers").consumers if c.state != "gone"])
        left = tsnb.results()
        assert set(left["name"]) == ({"one", "two"} if step == "the clone trains" else {"one"})
        assert set(left["state"]) == {"crashed"}
        for name in ("one", "two"):
            other = tsnb.attach(name, "numbers")
            assert sorted(row for (rows,) in other for row in rows.tolist()) == list(range(ROWS))
            other.close()


SERVES = """
from torch.utils.data import TensorDataset
loader = DataLoader(TensorDataset(torch.arange(48)), batch_size=4, shuffle=True)
with tsnb.serve(loader, name="numbers", seed=1, window=4, late_join=1.0, reconnect_s=120) as producer:
    say("served")
    producer.wait()
"""
CELL = """
import time
from pathlib import Path
taken = []
for epoch in range(2):
    taken.append([])
    for (rows,) in tsnb.attach():
        taken[-1] += rows.tolist()
        tsnb.log(rows=len(rows))
        while len(taken[-1]) == 20 and epoch == 0 and not Path(go).exists():
            time.sleep(0.005)
"""


def served(running: list[Script]) -> Script:
    script = Script(SERVES)
    running.append(script)
    script.expect("served")
    return script


def states() -> dict[str, str]:
    return {c.name: c.state for c in tsnb.streams.status("numbers").consumers if c.state != "gone"}


def test_a_trial_stays_paused_while_its_producer_is_killed_and_started_again(
    page: Any, until: Until, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In between it is told that there is no stream; then it goes on where it was: each sample once, in both epochs."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    with scripts() as running:
        first = served(running)
        one, two = (
            run_cell(name, CELL, {"go": str(tmp_path / "go")}, outlet=page, stream="numbers")
            for name in ("one", "two")
        )
        until(lambda: [sum(t.metrics.by_step("rows").values()) for t in (one, two)] == [20, 20], 120)
        one.pause()
        (tmp_path / "go").touch()
        until(lambda: (record := Run.find("one").read()) is not None and record.state == "paused", 60)  # type: ignore[union-attr]
        first.kill()
        for act in (one.resume, one.pause):
            with pytest.raises(TsnbError, match=r"'one' reads no stream of this machine now"):
                act()
        assert one.state == "paused"
        second = served(running)
        until(lambda: states().get("one") == "paused", 120)
        two.wait(120)
        assert (one.state, len(one.metrics.rows)) == ("paused", 5), "it took nothing"
        one.resume()
        one.wait(120)
        for trial in (one, two):
            assert [sorted(epoch) for epoch in trial["taken"]] == [list(range(ROWS))] * 2
        tsnb.streams.stop("numbers")
        assert second.end() == 0


DETACHED = """
from tsnb.experiments import run_cell
trial = run_cell("far", sys.argv[1], {"go": sys.argv[2]}, stream="numbers", detach=True)
while len(trial.metrics.rows) < 5: time.sleep(0.01)
trial.pause()
say("paused", trial.pid)
time.sleep(1000)
"""


def test_a_paused_trial_that_outlives_its_notebook_is_resumed_from_a_terminal(
    until: Until, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started with `detach`; its memory is asked for in vain: only what has started it could."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))

    def asked(*words: str) -> Any:
        line = [sys.executable, "-m", "tsnb", *words, "--json"]
        return json.loads(subprocess.run(line, capture_output=True, text=True, check=False).stdout)

    loader = DataLoader(TensorDataset(torch.arange(ROWS)), batch_size=4, shuffle=True)
    with tsnb.serve(loader, name="numbers", window=4), scripts() as running:
        notebook = Script(DETACHED, CELL, str(tmp_path / "go"))
        running.append(notebook)
        pid = int(notebook.expect("paused"))
        notebook.kill()
        try:
            (tmp_path / "go").touch()
            until(lambda: states() == {"far": "paused"}, 60)
            found = tsnb.trials["far"]
            until(lambda: found.state == "paused", 60)
            assert found.why_not_released.startswith("was started by another notebook or script")
            refused = asked("pause", "numbers/far", "--release")["error"]
            assert "'far' of 'numbers'" in refused and "cannot be paused with --release" in refused
            with pytest.raises(
                TsnbError, match=r"was started by another notebook\. Release its memory there"
            ):
                found.pause(release=True)
            assert asked("resume", "numbers/far") == {"stream": "numbers", "resumed": ["far"]}
            found.wait(120)
            assert found.state == "done"
            assert sum(found.metrics.by_step("rows").values()) == 2 * ROWS
        finally:
            if psutil.pid_exists(pid):
                os.killpg(pid, signal.SIGKILL)
