"""A trial becomes two at a batch: what both compute, where it cannot be, and what is left when a process is killed."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb.errors import NameInUse, TrialFailed, TsnbError
from tsnb.experiments import Trial, run_cell
from tsnb.experiments.live_values import NoSuchLiveValue
from tsnb.experiments.pausing import pause_trials
from tsnb.kernels.hub import the_hub
from tsnb.kernels.processes import forking
from tsnb.notebook.trial_logs import TrialLogs
from tsnb.records.run import Run
from tsnb.steering import _clone
from tsnb.telemetry.observer import status

pytestmark = pytest.mark.system
SLOW = pytest.mark.slow

Until = Callable[..., None]

CELL = """
import random, time
import numpy as np
import torch
from pathlib import Path
from tsnb.stream.this_process import this_process
layers = torch.nn.Linear(8, 64), torch.nn.BatchNorm1d(64), torch.nn.Dropout(0.3), torch.nn.Linear(64, 1)
net = torch.nn.Sequential(*layers)
lr = tsnb.live("lr", 0.01, bounds=(0.0, 1.0))
optimizer = torch.optim.Adam(net.parameters(), lr=float(lr))
seen, drawn = [], []
for epoch in range(3):
    for x, rows in tsnb.attach(batch_size=own or None):
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        lr.apply(optimizer)
        optimizer.step()
        seen.append((epoch, rows.tolist(), loss.item(), float(lr)))
        drawn.append((random.random(), float(np.random.rand()), float(torch.rand(()))))
        tsnb.log(loss=loss)
        while len(seen) in hold and not (this_process.boundary or Path(go).exists()):
            time.sleep(0.005)  # until a clone is wished for
    while -1 - epoch in hold and not (this_process.boundary or Path(go).exists()):
        time.sleep(0.005)  # between two epochs
print("last", len(seen))
"""
ROWS, BATCH = 96, 8
DISK = Path(__file__).parents[2]  # where a temporary directory may be memory
IN_EPOCH = ROWS // BATCH


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory for the records, and a fork server that is ready: on a busy machine kernels do not wait for it."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    hub = the_hub()

    async def ready() -> None:
        server = forking.the_server(hub)
        assert server is not None
        await server._ready
        server._late = False

    hub.call(ready(), 300)


def serve(**options: Any) -> Any:
    data = TensorDataset(torch.randn(ROWS, 8), torch.arange(ROWS))
    return tsnb.serve(
        DataLoader(data, batch_size=BATCH, shuffle=True), name="numbers", window=4, late_join=1.0, **options
    )


def start(
    page: Any, go: Path, hold: int, own: int = 0, source: str = CELL, also: int = 0, **options: Any
) -> Trial:
    options = {"threads": 1, **options}
    return run_cell("one", source, {"go": str(go), "hold": (hold, also), "own": own}, outlet=page, **options)


def waits_at(trial: Trial, until: Until, hold: int) -> None:
    until(lambda: len(trial.metrics.rows) == hold, 120)


@pytest.mark.parametrize(
    ("hold", "own", "threads"),
    [
        (5, 0, 1),
        pytest.param(7, 12, 2, marks=SLOW),
        pytest.param(IN_EPOCH, 0, 1, marks=SLOW),
        pytest.param(-1, 0, 1, marks=SLOW),
    ],
    ids=["in an epoch", "within a batch that is cut, two threads", "in the last batch", "between two epochs"],
)
def test_a_clone_computes_what_its_parent_computes_bit_for_bit_on_a_stream_without_a_seed(
    page: Any, until: Until, tmp_path: Path, hold: int, own: int, threads: int
) -> None:
    """Batches, losses, dropout, all three random states; its own name, output and record; no line of code for it."""
    with serve():
        one = start(page, tmp_path / "go", hold, own, threads=threads)
        waits_at(one, until, hold if hold > 0 else IN_EPOCH)
        two = one.clone("two")
        assert two.name == "two"
        hold = (
            hold if hold > 0 else IN_EPOCH + 1
        )  # asked between two epochs: after the first batch of the next one
        one.wait(120)
        two.wait(120)
        assert two["seen"] == one["seen"]
        assert two["drawn"] == one["drawn"]
        for mine, other in zip(one["net"].parameters(), two["net"].parameters(), strict=True):
            assert torch.equal(mine, other)
        taken = [[row for e, rows, *_ in two["seen"] if e == epoch for row in rows] for epoch in range(3)]
        assert [sorted(rows) for rows in taken] == [list(range(ROWS))] * 3
        assert "last" in two.logs()
        assert two.parent is not None
        assert (two.parent.name, two.parent.number) == ("one", 1)
        record = Run.find("two").read()  # type: ignore[union-attr]
        assert record is not None and record.state == "done" and record.parent == two.parent
        family = [["one", 0, "", "done"], ["two", 1, two.parent.place, "done"]]
        told = [(TrialLogs().facts(name) or {})["lineage"] for name in ("one", "two")]
        assert told == [family, family], "the panel's drawer shows it for either"
        assert two.parent.samples == hold * (own or BATCH), "what its loop had got"
        assert [row.step for row in two.metrics.rows] == list(range(hold, len(one["seen"])))


SPILLED = CELL.replace(
    "seen, drawn",
    "import warnings; warnings.simplefilter('ignore')\n"
    "net[0] = torch.nn.Linear(8, 64)\n"
    "net.insert(1, torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)))\n"
    "optimizer = torch.optim.Adam(net.parameters(), lr=float(lr))\n"
    "spilled = tsnb.offload(net, optimizer, '200KiB', directory=disk)\n"
    "seen, drawn",
    1,
)


@pytest.mark.slow
def test_a_clone_of_a_spilled_model_has_a_file_of_its_own_and_both_train_right(
    page: Any, until: Until, tmp_path: Path
) -> None:
    """The same losses where nothing is changed; a clone with another rate leaves its parent's as they are."""
    with serve():
        names = {"go": str(tmp_path / "go"), "own": 0, "disk": str(DISK)}
        one = run_cell("one", SPILLED, {**names, "hold": (5, 9)}, outlet=page, threads=1)
        waits_at(one, until, 5)
        two = one.clone("two")
        waits_at(one, until, 9)
        hot = one.clone("hot", lr=0.5)
        (tmp_path / "go").touch()
        for trial in (one, two, hot):
            trial.wait(120)
        assert two["seen"] == one["seen"], "two that share weights would both be at fault: neither is"
        assert len(one["seen"]) == 3 * IN_EPOCH
        assert hot["seen"][:9] == one["seen"][:9]
        assert [loss for *_, loss, _ in hot["seen"][12:]] != [loss for *_, loss, _ in one["seen"][12:]]


def test_a_clones_stream_knows_its_epochs_run_and_live_values_as_its_parents(
    page: Any, until: Until, tmp_path: Path
) -> None:
    """Else nobody could say when it, or all, will be done, and a terminal would find nothing to set in it.

    Made in the second epoch, and again from the clone: the epochs behind it and those that it takes are the loop's.
    """
    source = CELL.replace("range(3)", "range(epochs)")
    box = {
        "go": str(tmp_path / "go"),
        "hold": (IN_EPOCH + 5, IN_EPOCH + 9, 2 * IN_EPOCH + 1),
        "own": 0,
        "epochs": 3,
    }
    with serve() as producer:
        one = run_cell("one", source, box, outlet=page, threads=1)
        waits_at(one, until, IN_EPOCH + 5)
        two = one.clone()
        waits_at(two, until, 4)
        until(lambda: {c.name: (c.epochs_before, c.epochs, c.planned, tuple(c.live), c.run)
                       for c in producer.status().consumers}
              == {"one": (0, 2, 3, ("lr",), 1), "one-2": (1, 1, 2, ("lr",), 1)}, 30)  # fmt: skip
        three = two.clone()
        waits_at(three, until, 4)
        clone = next(c for c in producer.status().consumers if c.name == three.name)
        assert (clone.epochs_before, clone.epochs, clone.planned) == (1, 2, 2), "now in its second"
        for trial in (one, two, three):
            trial.stop()


@SLOW
def test_a_change_holds_from_the_clones_first_batch_and_a_clone_of_a_clone_is_one_too(
    page: Any, until: Until, tmp_path: Path
) -> None:
    """Its name says the change; the table and the results say whose clone it is; a run of it makes the same changes."""
    with serve():
        one = start(page, tmp_path / "go", 5, also=9)
        waits_at(one, until, 5)
        two = one.clone(lr=0.05)
        waits_at(two, until, 4)
        three = two.clone("three", lr=0.07)
        four = one.clone()
        assert (two.name, four.name) == ("one-lr0.05", "one-2")
        for trial in (one, two, three, four):
            trial.wait(120)
        at = len(two.metrics.rows)
        assert [lr for *_, lr in one["seen"]] == [0.01] * (3 * IN_EPOCH) == [lr for *_, lr in four["seen"]]
        assert four["seen"] == one["seen"]
        begun = 3 * IN_EPOCH - at
        assert begun == 5
        assert [lr for *_, lr in two["seen"]] == [0.01] * begun + [0.05] * at
        assert two["seen"][:begun] == one["seen"][:begun]
        later = [lr for *_, lr in three["seen"]]
        assert later == sorted(later) and set(later) == {0.01, 0.05, 0.07}
        assert [change.value for change in three.changes] == [0.05, 0.07]
        assert (two.parent and two.parent.name, three.parent and three.parent.name) == ("one", "one-lr0.05")
        rows = {row["name"]: row["parent"] for row in tsnb.results().to_dict("records")}
        assert not isinstance(rows["one"], str)
        assert rows["three"].startswith("one-lr0.05, batch ")
        assert "parent" in repr(tsnb.trials)
        with pytest.raises(
            TsnbError,
            match=r"'one' is done, and only a running trial can be cloned\. .*tsnb\.trials\['one'\]\.rerun\(name=",
        ):
            one.clone()


def test_a_clone_in_the_cell_of_its_parent_prints_marked_lines_and_its_own_log(
    page: Any, until: Until, tmp_path: Path
) -> None:
    """Whoever reads the cell, now or in the saved notebook, sees which of the two a line is of, the last one too."""
    late = (
        "import sys\nsys.stdout.flush_interval = 30.0\n"  # ipykernel joins what is printed within that time
    )
    with serve():
        one = start(page, tmp_path / "go", 5, source=late + CELL)
        waits_at(one, until, 5)
        two = one.clone("two")
        for trial in (one, two):
            trial.wait(120)
    lines = page.text.splitlines()
    assert lines.count(f"last {3 * IN_EPOCH}") == 1 and lines.count(f"[two] last {3 * IN_EPOCH}") == 1
    assert all(line.startswith("[two] ") for line in lines if "'two'" in line), lines
    assert f"\nlast {3 * IN_EPOCH}\n" in two.logs()


@SLOW
def test_a_clone_of_a_paused_trial_is_paused_where_that_stands_and_both_get_each_sample_once(
    page: Any, until: Until, tmp_path: Path
) -> None:
    """On a stream without a seed; both go on when they are told, one after the other."""
    with serve():
        one = start(page, tmp_path / "go", 5)
        waits_at(one, until, 5)
        one.pause()
        (tmp_path / "go").touch()
        until(lambda: Run.find("one").read().state == "paused", 60)  # type: ignore[union-attr]
        two = one.clone("two")
        until(lambda: two.state == "paused", 60)
        assert {c.name: c.state for c in status("numbers").consumers} == {"one": "paused", "two": "paused"}
        pause_trials([one.life, two.life], on=False)
        one.wait(120)
        two.wait(120)
        assert two["seen"] == one["seen"]
        assert len(two["seen"]) == 3 * IN_EPOCH


THREAD = (
    "import threading; threading.Thread(target=threading.Event().wait, name='mine', daemon=True).start()\n"
)
PROCESS = "import subprocess; subprocess.Popen(['sleep', '100'])\n"
AWAITS = "import asyncio; await asyncio.sleep(0)\n"


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (THREAD, r"it has a running thread .'mine'."),
        pytest.param(PROCESS, "it has started processes that are still running", marks=SLOW),
        pytest.param(AWAITS, "its cell uses await", marks=SLOW),
    ],
    ids=["a thread", "a process", "await"],
)
def test_where_a_fork_is_not_safe_the_reason_is_told_and_the_trial_goes_on(
    page: Any, until: Until, tmp_path: Path, before: str, why: str
) -> None:
    with serve(seed=1):
        one = start(page, tmp_path / "go", 5, source=before + CELL)
        waits_at(one, until, 5)
        with pytest.raises(TsnbError, match=f"'one' cannot be cloned now: {why}"):
            one.clone()
        one.wait(120)
        assert len(one["seen"]) == 3 * IN_EPOCH
        assert [c.name for c in status("numbers").consumers if c.state != "gone"] == []
        assert list(tsnb.trials) == ["one"]


@SLOW
def test_names_changes_and_places_that_cannot_be_are_told_before_anything_is_forked(
    page: Any, until: Until, tmp_path: Path
) -> None:
    with serve(seed=1):
        one = start(page, tmp_path / "go", 5)
        waits_at(one, until, 5)
        with pytest.raises(NameInUse, match=r"Give the clone another name, for example clone.name='one-2'."):
            one.clone("one")
        with pytest.raises(NoSuchLiveValue, match=r"Live hyperparameters: lr=0\.01"):
            one.clone(momentum=0.9)
        with pytest.raises(ValueError, match=r"lr=2 is invalid\. Pass a number from 0 to 1"):
            one.clone(lr=2)
        with pytest.raises(ValueError, match="cannot name a trial"):
            one.clone("no name")
        other = tsnb.attach("taken", "numbers")
        with pytest.raises(TsnbError, match=r"cannot be cloned now: .*'taken'"):
            one.clone("taken")
        other.close()
        one.wait(120)
        assert list(tsnb.trials) == ["one"]
        assert tsnb.results().shape[0] == 1
    alone = run_cell("alone", "import time\ntime.sleep(100)", {}, outlet=page)
    until(lambda: alone.state == "running", 60)
    with pytest.raises(TsnbError, match="has not taken a batch of a stream"):
        alone.clone()
    alone.stop()


@pytest.mark.slow
def test_a_clone_outlives_its_parent_is_a_kernel_and_leaves_nothing(
    page: Any, until: Until, tmp_path: Path
) -> None:
    """Kill -9 of the parent; the clone can be interrupted, asked for its variables, stopped; no zombie, no orphan."""
    with serve(seed=1):
        one = start(page, tmp_path / "go", 5, source=CELL.replace("range(3)", "range(10**6)"))
        waits_at(one, until, 5)
        two, three = one.clone("two"), one.clone("three")
        assert one.pid is not None and two.pid is not None
        os.kill(one.pid, signal.SIGKILL)
        until(lambda: one.state == "crashed", 60)
        rows = len(two.metrics.rows)
        until(lambda: len(two.metrics.rows) > rows + 3, 60)
        assert two.state == "running"
        assert forking._current is not None
        assert psutil.Process(two.pid).ppid() == forking._current.pid
        two.interrupt()
        until(lambda: two.state == "interrupted", 60)
        assert len(two["seen"]) > rows
        pid = three.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: three.state == "crashed", 60)
        two.stop()
        until(lambda: not psutil.Process(forking._current.pid).children(recursive=True), 60)


KEEPING = CELL.replace(
    "for epoch in range(3):",
    "tsnb.checkpoint(net=net, optimizer=optimizer, every_s=0)\nfor epoch in EPOCHS:",
)


@SLOW
@pytest.mark.parametrize("epochs", ["tsnb.epochs(3)", "range(3)"])
def test_a_clone_keeps_states_of_its_own_from_its_first_batch_on(
    page: Any, until: Until, tmp_path: Path, epochs: str
) -> None:
    """Beside its parent's, which stay; a clone that has ended is extended from them."""
    with serve(seed=1):
        one = start(page, tmp_path / "go", 5, source=KEEPING.replace("EPOCHS", epochs), also=7)
        waits_at(one, until, 5)
        kept = tmp_path / ".tsnb" / "kept"
        before = sorted(file.name for file in (kept / "one-1").iterdir())
        two = one.clone("two")
        waits_at(two, until, 2)  # it waits at its seventh batch, within the epoch in which it was made
        assert list((kept / "two-1").iterdir())
        assert before
        (tmp_path / "go").touch()
        one.wait(120)
        two.wait(120)
        assert two["seen"] == one["seen"]
        if "tsnb" in epochs:
            two.extend(epochs=2).wait(120)
            assert two.state == "done"
            assert len(two["seen"]) == 2 * IN_EPOCH
            assert [row.step for row in two.metrics.rows][-1] == 5 * IN_EPOCH - 1


@SLOW
def test_a_terminal_clones_and_extends_trials_of_any_notebook_of_this_user(
    page: Any, until: Until, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tsnb clone`, `tsnb extend`: another process asks; what is refused is told as the notebook would be."""

    def asked(*words: str, status: int = 0) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "tsnb", *words, "--json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return json.loads(done.stdout)

    with serve(seed=1):
        source = KEEPING.replace("EPOCHS", "tsnb.epochs(3)")
        one = run_cell("one", source, {"go": str(tmp_path / "go"), "hold": (5,), "own": 0}, outlet=page)
        waits_at(one, until, 5)
        assert (
            "lr=2 is invalid. Pass a number from 0 to 1"
            in asked("clone", "numbers/one", "lr=2", status=1)["error"]
        )
        assert "Did you mean 'one'" in asked("clone", "numbers/ones", status=1)["error"]
        assert "cannot name a trial" in asked("clone", "numbers/one", "--name", "no name", status=1)["error"]
        running = asked("extend", "numbers/one", "--epochs", "2", status=1)["error"]
        assert "'one' is running and can be extended once it is done" in running
        told = asked("clone", "numbers/one", "--name", "hot", "lr=0.03")
        two = tsnb.trials["hot"]
        assert told == {
            "stream": "numbers", "trial": "one", "clone": "hot", "pid": told["pid"],
            "epoch": 1, "batch": 5, "samples": 5 * BATCH,
        }  # fmt: skip
        assert two.parent is not None and two.parent[:2] == ("one", 1)
        mine = tsnb.attach("mine", "numbers")
        with pytest.raises(
            TsnbError, match=r"'mine' of 'numbers' cannot be .*, because the notebook or script"
        ):
            _clone(argparse.Namespace(target="numbers/mine", changes=[], new=None, at=None, json=True))
        mine.close()
        (tmp_path / "go").touch()
        one.wait(120)
        two.wait(120)
        assert {lr for *_, lr in two["seen"][5:]} == {0.03}
        extended = asked("extend", "numbers/hot", "--epochs", "1")
        assert extended == {"stream": "numbers", "trial": "hot", "epochs": 1}
        two.wait(120)
        assert [row.step for row in two.metrics.rows][-1] == 4 * IN_EPOCH - 1
        assert (
            "the notebook or script that started it has ended"
            in asked("extend", "other/one", "--epochs", "1", status=1)["error"]
        )
    assert "is no longer served" in asked("extend", "numbers/one", "--epochs", "1", status=1)["error"]


DIES = "import os, signal\nimport tsnb.experiments.in_kernel.cloning as steps\n"
DIES += "steps.STEP = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"


@SLOW
@pytest.mark.parametrize(
    "step", ["turn_output", "open_front", "taken in: the clone", "taken in: the trial", "taken in: by nobody"]
)
def test_killed_at_any_step_of_a_clone_nothing_is_left_and_the_others_go_on(
    page: Any, until: Until, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the clone has its place, when it has, when the notebook takes it in: no process, no name, no record."""
    take_in = forking.ForkServer.take_in

    async def killed(self: Any, pid: int) -> Any:
        if step.endswith("nobody"):
            raise forking.Unable("the fork server did not answer")
        if step.startswith("taken in"):
            assert one.pid is not None
            os.kill(pid if step.endswith("clone") else one.pid, signal.SIGKILL)
        return await take_in(self, pid)

    monkeypatch.setattr(forking.ForkServer, "take_in", killed)
    former = connections()
    source = CELL if step.startswith("taken in") else DIES.replace("STEP", step) + CELL
    with serve():
        one = start(page, tmp_path / "go", 5, source=source)
        waits_at(one, until, 5)
        beside = run_cell(
            "beside", CELL, {"go": str(tmp_path / "others"), "hold": (5,), "own": 0}, outlet=page
        )
        waits_at(beside, until, 5)
        (tmp_path / "others").touch()
        if step.endswith("the trial"):
            two = one.clone("two")
            until(lambda: one.state == "crashed", 60)
            two.wait(120)
            assert len(two["seen"]) == 3 * IN_EPOCH
        else:
            with pytest.raises(TsnbError):
                one.clone("two")
            one.wait(120)
            assert len(one["seen"]) == 3 * IN_EPOCH
            assert Run.find("two") is None
        beside.wait(120)
        assert len(beside["seen"]) == 3 * IN_EPOCH
        assert forking._current is not None
        kernels = {trial.pid for trial in tsnb.trials.values()}
        server = psutil.Process(forking._current.pid)
        until(lambda: {child.pid for child in server.children()} <= kernels, 60)
        until(lambda: len(connections() - former) <= len(server.children()), 60)


def connections() -> set[Path]:
    """Return the files of kernels in the hub's directory: one of each that lives."""
    return {*the_hub().directory.glob("k*.json")}


class Killing:
    """Trials that wait at every batch until they are to be cloned, and somebody who kills one of two now and then."""

    def __init__(self, page: Any, go: Path, until: Until, seed: int) -> None:
        self.page, self.go, self.until = page, go, until
        self.drawn = random.Random(seed)
        self.takes_s = 0.1  # a clone, the last time
        self.killed: set[int] = set()
        self.said: list[str] = []
        self.pids: dict[str, int] = {}

    @property
    def forks(self) -> set[int]:
        """The processes that the fork server looks after."""
        assert forking._current is not None
        return {child.pid for child in psutil.Process(forking._current.pid).children()}

    def kill(self, *pids: int | None) -> None:
        for pid in filter(None, pids):
            with contextlib.suppress(ProcessLookupError):
                self.killed.add(pid)
                os.kill(pid, signal.SIGKILL)

    def parent(self) -> Trial:
        """Return a trial that comes to its next batch when it is to be cloned: none that is far ahead of another."""
        able = [t for t in tsnb.trials.values() if t.state == "running" and t.pid not in self.killed]
        if not able:
            holds = {"go": str(self.go), "hold": tuple(range(1, 3 * IN_EPOCH)), "own": 0}
            fresh = run_cell(f"fresh{len(self.pids)}", CELL, holds, outlet=self.page, threads=1)
            self.until(lambda: fresh.metrics.rows, 120)
            self.pids[fresh.name] = fresh.pid or 0
            return fresh
        self.kill(*(trial.pid for trial in able[:-5]))
        able = able[-5:]
        least = min(map(taken, able))
        return self.drawn.choice([trial for trial in able if taken(trial) <= least + 2])

    def clone(self, name: str) -> None:
        parent, known = self.parent(), self.forks
        whom = self.drawn.choice(["nobody", "the parent", "the clone"])
        later = threading.Timer(
            self.drawn.uniform(0.0, 1.5 * self.takes_s),
            lambda: self.kill(*([parent.pid] if whom == "the parent" else self.forks - known)),
        )
        if whom != "nobody":
            later.start()
        began_s = time.monotonic()
        try:
            twin = parent.clone(name)
            self.takes_s = min(2.0, time.monotonic() - began_s)
            self.pids[name] = twin.pid or 0
        except (TsnbError, TimeoutError) as error:
            self.said.append(str(error))
        if whom != "nobody":
            later.join()


def taken(trial: Trial) -> int:
    """Return how many batches a trial has taken."""
    rows = trial.metrics.rows
    return rows[-1].step + 1 if rows else trial.parent.samples // BATCH if trial.parent else 0


@SLOW
def test_a_hundred_clones_under_random_kills_lose_none_without_a_word_and_no_sample(
    page: Any, until: Until, tmp_path: Path
) -> None:
    """SIGKILL of the trial or of its clone, some moment after the wish: those that live get every sample once.

    A clone that is asked for is there, or the reason is told; what is lost was killed; no process, no name on the
    stream and no memory is left.
    """
    memory = set(os.listdir("/dev/shm"))
    with serve(seed=1, stall_timeout_s=1000.0):
        killing = Killing(page, tmp_path / "go", until, seed=18)
        for turn in range(100):
            killing.clone(f"c{turn}")
        killing.parent()  # one lives on, whoever was killed last
        killing.go.touch()
        ended = dict(tsnb.trials)
        for trial in ended.values():
            assert trial.life.ended.wait(300), trial
        lost = [trial for trial in ended.values() if trial.state == "crashed"]
        done = [trial for trial in ended.values() if trial.state == "done"]
        assert len(lost) + len(done) == len(ended)
        assert {killing.pids[trial.name] for trial in lost} <= killing.killed
        fresh = sum(name.startswith("fresh") for name in ended)
        assert len(killing.said) + len(ended) - fresh == 100, "each wish is a trial, or a reason"
        assert all(killing.said), killing.said
        assert done and lost
        for trial in done[-5:]:  # those that ended last have their processes still
            for epoch in range(3):
                rows = [row for e, drawn, *_ in trial["seen"] if e == epoch for row in drawn]
                assert sorted(rows) == list(range(ROWS)), (trial.name, epoch)
        assert [c.name for c in status("numbers").consumers if c.state != "gone"] == []
        assert {name: Run.find(name).read().state for name in ended} == {  # type: ignore[union-attr]
            name: trial.state for name, trial in ended.items()
        }
        tsnb.trials.stop()
        until(lambda: not killing.forks, 60)
    assert set(os.listdir("/dev/shm")) <= memory


SERVES = """
import sys, time, torch, tsnb
from torch.utils.data import DataLoader, TensorDataset
rows = torch.randn(96, 8, generator=torch.Generator().manual_seed(1))
loader = DataLoader(TensorDataset(rows, torch.arange(96)), batch_size=8, shuffle=True)
with tsnb.serve(loader, name="numbers", window=4, late_join=1.0, seed=3):
    print("serves", flush=True)
    sys.stdin.read()
"""

KILLS_PRODUCER = """
import os, signal
import tsnb.experiments.in_kernel.cloning as steps
turned = steps.turn_output
def turn_output(log):
    os.kill(producer, signal.SIGKILL)
    turned(log)
steps.turn_output = turn_output
"""


def producer() -> subprocess.Popen[str]:
    """Start a process that serves the stream, the same each time."""
    started = subprocess.Popen(
        [sys.executable, "-c", SERVES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "serves\n"
    return started


@SLOW
def test_the_producer_is_killed_as_a_clone_is_made_and_both_ends_are_told(
    page: Any, tmp_path: Path, until: Until
) -> None:
    """After the fork, before the clone has its place: no clone, and the trial is told as at any other step."""
    served = producer()
    try:
        given = {"go": str(tmp_path / "go"), "hold": (5,), "own": 0, "producer": served.pid}
        one = run_cell("one", KILLS_PRODUCER + CELL, given, outlet=page, threads=1)
        waits_at(one, until, 5)
        with pytest.raises(TsnbError, match=r"'one' cannot be cloned now: .*'numbers'"):
            one.clone("two")
        served.wait(30)
        with pytest.raises(TrialFailed, match=r"ProducerGone: Stream 'numbers' .* died.*start it again"):
            one.wait(120)
        assert len(one["seen"]) >= 5, "its variables are there"
        assert Run.find("two") is None
        assert list(tsnb.trials) == ["one"]
        assert forking._current is not None
        left = {child.pid for child in psutil.Process(forking._current.pid).children()}
        assert left <= {one.pid}
    finally:
        served.kill()
        served.communicate()
