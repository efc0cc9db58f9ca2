"""Trials that go on when their notebook has gone, and how another notebook finds them."""

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
from tests import forking
from tsnb.errors import NameInUse, TrialFailed, TsnbError
from tsnb.experiments import run_cell, trials
from tsnb.experiments.overview.board import Board
from tsnb.kernels.hub import short_parent
from tsnb.kernels.output.logfile import LOG_BYTES
from tsnb.machine.owners import owner
from tsnb.records.detached_entries import DetachedEntry, entries_of, entry_of
from tsnb.records.run import Run, RunStart

pytestmark = pytest.mark.system

Until = Callable[..., None]

NOTEBOOK = """
import sys, time
from tsnb.experiments import run_cell
cell, ordinary = sys.argv[1:]
trial = run_cell("far", cell, {}, params={"api_key": "sk-4f9aK2mXq7Lz81aa"}, detach=True)
if ordinary:
    near = run_cell("near", "import time; time.sleep(60)", {})
while trial.state not in {"running", "failed"} or (ordinary and near.state != "running"):
    time.sleep(0.01)
# in one piece: the hub's thread prints that the trial runs
sys.stdout.write(f"pids {trial.pid} {near.pid if ordinary else ''}\\n")
sys.stdout.flush()
sys.stdin.read()
"""

COUNTS = (
    "import time\nfor step in range({steps}):\n"
    "    tsnb.log(step=step, loss=1 / (step + 1))\n    print('step', step, flush=True)\n    time.sleep(0.05)\n"
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a project of its own."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    return tmp_path / ".tsnb"


@pytest.fixture(autouse=True)
def nothing_detached(project: Path) -> Iterator[None]:
    """Kill what a failed test has left."""
    yield
    for entry in entries_of(project):
        if entry.runs_here:
            os.killpg(entry.pid, signal.SIGKILL)


def gone(pid: int) -> bool:
    """Return whether a process has ended; who inherits it may be slow to clear it away."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Notebook:
    """Another process that has started a detached trial, as a notebook would."""

    def __init__(self, cell: str, *, ordinary: bool = False) -> None:
        self.process = forking.start(NOTEBOOK, cell, "yes" if ordinary else "", stdin=True)
        assert self.process.stdout is not None
        line = next(line for line in self.process.stdout if line.startswith("pids"))
        self.pids = [int(word) for word in line.split()[1:]]

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self._clear()

    def close(self) -> None:
        """End it as a kernel's shutdown does."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._clear()

    def _clear(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        self.process.wait(120)
        self.process.stdout.close()
        self.process.stdin.close()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill", "close"])
def test_a_detached_trial_outlives_its_notebook_and_an_ordinary_one_does_not(
    end: str, until: Until, tmp_path: Path
) -> None:
    """However the notebook ends; the detached one is found by its name, followed to its end, and leaves nothing."""
    enough = tmp_path / "enough"
    cell = COUNTS.format(steps=9999) + f"    if __import__('os').path.exists({str(enough)!r}): 1 / 0"
    other = Notebook(cell, ordinary=True)
    far, near = other.pids
    getattr(other, end)()
    until(lambda: gone(near))
    assert not gone(far)
    found = trials["far"]
    assert found.pid == far
    assert found.state == "running"
    assert found.options["detach"] is True
    assert "far" in repr(trials)
    assert "running (detached)" in repr(trials)
    heard: list[int] = []
    found.listen(lambda trial, rows: heard.extend(row.step for row in rows))
    until(lambda: heard)
    enough.touch()
    with pytest.raises(TrialFailed, match="trial 'far' failed: ZeroDivisionError"):
        found.wait(120)
    steps = len(found.metrics.rows)
    assert found.metrics.by_step("loss") == {step: 1 / (step + 1) for step in range(steps)}
    assert heard == list(range(heard[0], steps)), "its numbers come while it runs, each once"
    assert f"step {steps - 1}" in found.logs()
    assert "Trial far, line" in found.logs(), "the traceback is in the log"
    assert found.log_path.read_text() == found.logs()
    with pytest.raises(TsnbError, match="no longer exist"):
        found["step"]
    with pytest.raises(TsnbError, match=r"Run its cell here.*lacks the value of api_key"):
        found.rerun()
    until(lambda: gone(far))
    assert not list(short_parent().glob(f"hub-*/k*{far}*"))
    again = Board()
    assert again["far"].state == "failed", "its end can still be looked at"
    assert again["far"].duration_s == pytest.approx(found.duration_s)


@pytest.mark.slow
def test_a_found_trial_can_be_interrupted_and_stopped(until: Until) -> None:
    """`interrupt` and `stop` reach it by signals; it puts things in order and says how it ended."""
    cell = (
        "import time\ntry:\n    print('begun', flush=True)\n    time.sleep(60)\nfinally:\n    print('saved')"
    )
    other = Notebook(cell)
    other.kill()
    found = trials["far"]
    until(lambda: "begun" in found.logs())
    found.interrupt()
    assert found.wait(120).state == "interrupted"
    assert "saved" in found.logs()
    run = Run.find("far")
    assert run is not None
    record = run.read()
    assert record is not None
    assert record.state == "interrupted"
    until(lambda: gone(other.pids[0]))
    deaf = Notebook("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + cell)
    deaf.kill()
    found = trials["far"]
    assert found.number == 2
    found.stop()
    assert found.state == "stopped"
    assert gone(deaf.pids[0])


def test_one_of_another_container_is_never_signalled_from_here() -> None:
    """Its number means somebody else here. It is followed by its records, whose word on its end counts."""
    run = Run.begin(RunStart("far", ""))
    run.state("running")
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as bystander:
        there = owner(bystander.pid)._replace(namespace="pid:[1]")
        DetachedEntry(run.as_settings(), there, "", "").write()
        found = trials["far"]
        for signalled in (found.interrupt, found.stop):
            with pytest.raises(TsnbError, match=r"runs in another container .*stop it there"):
                signalled()
        assert found.pid is None
        assert bystander.poll() is None
        run.end("done")
        assert found.wait(120).state == "done"
        bystander.kill()


@pytest.mark.slow
def test_a_killed_one_is_lost(until: Until) -> None:
    """Nobody is there to see it die: the next look says so, and a wait fails."""
    other = Notebook("import time\ntime.sleep(60)")
    other.kill()
    found = trials["far"]
    os.kill(other.pids[0], signal.SIGKILL)
    with pytest.raises(TrialFailed, match="'far' crashed"):
        found.wait(120)
    assert Board()["far"].state == "crashed"


@pytest.mark.slow
def test_a_name_that_a_detached_trial_has_is_in_use(page: Any, until: Until) -> None:
    """It is not replaced unasked by another notebook; once stopped, its name is free."""
    other = Notebook("import time\ntime.sleep(60)")
    other.kill()
    with pytest.raises(
        NameInUse, match=r"A detached trial named 'far' is already running \(run 1, pid \d+\).*Stop it with"
    ):
        run_cell("far", "1", {}, outlet=page)
    assert trials["far"].pid == other.pids[0]
    trials["far"].stop()
    assert run_cell("far", "x = 1", {}, outlet=page).wait(120).number == 2
    assert trials["far"]["x"] == 1


@pytest.mark.slow
def test_in_its_own_notebook_a_detached_trial_is_like_any_other(page: Any, until: Until) -> None:
    """Output under its cell and numbers live; its kernel ends with its code; the same notebook may replace it."""
    trial = run_cell("far", COUNTS.format(steps=3), {}, outlet=page, detach=True)
    assert trial.wait(120).state == "done"
    assert "step 2" in page.text
    assert "it continues without this notebook, log: " in page.text
    assert trial.metrics["loss"] == pytest.approx(1 / 3)
    until(lambda: trial.pid is None)
    assert list(trials) == ["far"]
    slow = run_cell("far", COUNTS.format(steps=999), {}, outlet=page, detach=True)
    until(lambda: slow.state == "running", 120)
    pid = slow.pid
    quick = run_cell("far", "x = 1", {}, outlet=page, detach=True).wait(120)
    assert (slow.state, quick.state) == ("stopped", "done")
    assert pid is not None
    until(lambda: gone(pid))


@pytest.mark.slow
def test_stop_and_wait_without_a_name_mean_this_notebook_s_own(page: Any) -> None:
    """A trial that runs for another notebook is not stopped by `%trials stop`."""
    other = Notebook("import time\ntime.sleep(60)")
    other.kill()
    run_cell("mine", "1", {}, outlet=page)
    assert set(trials) == {"mine", "far"}
    assert trials.wait(120) is trials
    trials.stop()
    assert trials["far"].state == "running"
    trials["far"].stop()


def test_before_its_code_begins_it_ends_with_its_notebook(until: Until, project: Path) -> None:
    """Killed while it takes in what was shipped: no code of it ever runs, and nothing stays."""
    script = (
        "import time\nfrom tsnb.experiments import run_cell\n"
        "class Slow:\n    def __reduce__(self): return time.sleep, (60,)\n"
        "trial = run_cell('slow', 'slow', {'slow': Slow()}, detach=True)\n"
        "while trial.pid is None: time.sleep(0.01)\nprint(trial.pid, flush=True)\ntime.sleep(60)"
    )
    words = [sys.executable, "-c", script]
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        pid = int(next(line for line in process.stdout if line.strip().isdigit()))
        process.kill()
    until(lambda: gone(pid))
    assert entry_of(project, "slow") is None


def test_old_entries_of_dead_trials_go(project: Path, tmp_path: Path) -> None:
    """After a week; one that still runs stays, and a broken file is no trial."""
    project.mkdir()
    run = {"name": "old", "directory": str(project), "number": 1, "key": "k", "id": 0, "params": "{}"}
    DetachedEntry.here(run, "", "").write()
    gone = owner(os.getpid())._replace(pid=2**22 + 1)
    DetachedEntry({**run, "name": "dead"}, gone, "", "").write()
    (path,) = Path(os.environ["TSNB_RUNTIME_DIR"], "trials").glob("*/dead.json")
    (path.parent / "broken.json").write_text("{")
    assert [entry.name for entry in entries_of(project)] == ["dead", "old"]
    week_ago = time.time() - 8 * 24 * 3600
    for name in ("dead", "old"):
        os.utime(path.parent / f"{name}.json", (week_ago, week_ago))
    assert [entry.name for entry in entries_of(project)] == ["old"]
    (path.parent / "old.json").unlink()


def test_one_whose_records_were_deleted_is_no_trial_any_more(project: Path, tmp_path: Path) -> None:
    """Its file goes as well: nobody is shown a trial that nothing is known of."""
    run = Run.begin(RunStart("far", "x = 1"))
    dead = owner(os.getpid())._replace(started=1)
    DetachedEntry(run.as_settings(), dead, "", str(tmp_path / "far.log")).write()
    run.end("done")
    assert list(Board()) == ["far"]
    assert tsnb.records.delete("far") == ["far-1"]
    assert list(Board()) == []
    assert entry_of(project, "far") is None


@pytest.mark.slow
def test_its_log_does_not_fill_the_disk(until: Until) -> None:
    """It writes to the log itself, with nobody between who would count."""
    cell = (
        "import time\nfor number in range(20):\n    print(f'part {number} ' + 'x' * 2**20)\n"
        "print('nearly')\ntime.sleep(5)\nprint('the end')"
    )
    trial = run_cell("chatty", cell, {}, detach=True)
    until(lambda: "nearly" in trial.logs(), 120)
    until(lambda: trial.log_path.stat().st_size <= LOG_BYTES)
    trial.wait(120)
    text = trial.log_path.read_text()
    assert text.startswith("part 0 ")
    assert "bytes were left out here" in text
    assert text.endswith("the end\n")
    assert trial.logs().endswith("the end\n")
