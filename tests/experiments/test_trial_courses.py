"""The courses of trials: one after another, once more after a crash, in place of a former run, many at once.

And what the project remembers of them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.kernels.conftest import cargoes
from tests.leftovers import SHM, leftovers, new_leftovers
from tsnb.errors import TrialFailed, TsnbError
from tsnb.experiments import Trial, run_cell, trials
from tsnb.experiments.news import WentBack
from tsnb.experiments.overview.board import NoSuchTrial
from tsnb.experiments.running.states import RESTARTS_AT_MOST
from tsnb.records.reading import RunRecord, read_runs
from tsnb.records.run import Run

pytestmark = pytest.mark.system

Until = Callable[..., None]

SLEEPS = "import time\nprint('begun', flush=True)\ntime.sleep(60)"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a project of its own, whose runs are numbered from 1."""
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
    return tmp_path / ".tsnb"


def start(name: str, cell: str, page: Any, variables: dict[str, Any] | None = None, **options: Any) -> Trial:
    return run_cell(name, cell, variables or {}, outlet=page, **options)


def recorded(name: str, number: int | None = None) -> RunRecord:
    """Return what the project remembers of a run."""
    run = Run.find(name, number)
    assert run is not None, name
    record = run.read()
    assert record is not None
    return record


# -- what is remembered -----------------------------------------------------------------------------------


def test_the_project_remembers_how_each_trial_ended(page: Any, until: Until) -> None:
    """Done, failed, stopped and lost, with code, parameters and the last numbers; whoever noticed it wrote it."""
    good = start("good", "tsnb.log(loss=lr)", page, params={"lr": 0.25}, seed=3)
    bad = start("bad", "raise ValueError('no')", page)
    for trial in (good, bad):
        until(lambda trial=trial: trial.state in {"done", "failed"}, 120)
    record = recorded("good")
    assert (record.state, record.params, record.seed) == ("done", {"lr": 0.25}, 3)
    assert record.metrics["loss"].last == 0.25
    assert "tsnb.log(loss=lr)" in record.source
    assert record.versions["torch"] == torch.__version__
    assert recorded("bad").state == "failed"
    assert recorded("bad").failure.startswith("ValueError: no\n")
    assert "Trial bad, line 2" in recorded("bad").failure
    killed, stopped = start("killed", SLEEPS, page), start("stopped", SLEEPS, page)
    until(lambda: page.text.count("begun") == 2, 120)
    assert recorded("killed").state == "running"
    assert recorded("killed").owner.pid == killed.pid
    assert killed.pid is not None
    os.kill(killed.pid, signal.SIGKILL)
    stopped.stop()
    until(lambda: killed.state == "crashed")
    assert recorded("killed").state == "crashed"
    assert "SIGKILL" in recorded("killed").failure
    assert (recorded("stopped").state, recorded("stopped").failure) == ("stopped", "by trial.stop()")


def test_rows_know_where_in_training_they_were_logged(page: Any) -> None:
    """Step, epoch, batch and samples of each row, in the notebook and in the records; the last value of each epoch."""
    loader = DataLoader(TensorDataset(torch.arange(32.0)), batch_size=8)
    cell = (
        "tsnb.log(before=1)\n"
        "for epoch in range(3):\n"
        "    for (batch,) in tsnb.attach():\n"
        "        tsnb.log(loss=float(batch[0]) + 100 * epoch)\n"
        "    tsnb.log(accuracy=epoch / 10)"
    )
    with tsnb.serve(loader, name="numbers", late_join=1.0, seed=0):
        trial = start("epochs", cell, page).wait(120)
    rows = trial.metrics.rows
    assert [row.step for row in rows] == list(range(16)), "what is given no step is counted"
    assert rows[0][:4] == (0, None, None, 0)
    within = [(row.epoch, row.batch, row.samples) for row in rows[1:5]]
    assert within == [(1, batch, 8 * batch) for batch in (1, 2, 3, 4)]
    assert (rows[5].epoch, rows[5].batch, rows[5].samples) == (1, 4, 32), (
        "between epochs it is in the one over"
    )
    assert {row.stream_epoch for row in rows[1:6]} == {0}
    assert list(trial.metrics.by_epoch("accuracy").values()) == [0.0, 0.1, 0.2]
    assert list(trial.metrics.by_epoch("loss")) == [1, 2, 3]
    assert trial.metrics.by_epoch("before") == {}
    assert len(trial.metrics.by_step("loss")) == 12
    run = Run.find("epochs")
    assert run is not None
    assert run.rows()[0] == rows
    assert trial.report["samples"] == recorded("epochs").report["samples"] == 96
    assert trial.report["stream"] == "numbers"
    assert trial.report["computing_s"] >= 0
    assert trial.attached


def test_listeners_hear_rows_and_states(page: Any, until: Until) -> None:
    """Every row once, and [] at each change of state; one that raises does not end the trial."""
    heard: list[tuple[str, list[int]]] = []

    def broken(trial: Trial, rows: Any) -> None:
        raise RuntimeError("of the listener")

    gate = start("first", SLEEPS, page)
    trial = start("heard", "for step in range(5): tsnb.log(step=step, loss=1.0)", page, after="first")
    trial.listen(broken)
    trial.listen(lambda trial, rows: heard.append((trial.state, [row.step for row in rows])))
    until(lambda: gate.state == "running", 120)
    gate.stop()
    assert trial.wait(120).state == "stopped", "the one before was stopped, so it does not run"
    again = trial.rerun(after=None, name="alone")
    again.listen(lambda trial, rows: heard.append((trial.state, [row.step for row in rows])))
    again.wait(120)
    until(lambda: heard[-1] == ("done", []))
    assert [step for _, steps in heard for step in steps] == list(range(5))
    states = list(dict.fromkeys(state for state, _ in heard))
    assert [state for state in states if state != "starting"] == ["stopped", "running", "done"]


def test_numbers_and_files_go_where_they_are_asked_to(page: Any, project: Path) -> None:
    """`log_to` feeds a tracker from the trial's own process; `log_artifact` keeps a file of the run."""
    cell = (
        "for step in range(3): tsnb.log(step=step, loss=1 / (step + 1))\n"
        "import pathlib\npathlib.Path(place, 'net.txt').write_text('weights')\n"
        "tsnb.log_artifact(pathlib.Path(place, 'net.txt'))"
    )
    box = {"place": str(project.parent)}
    start("kept", cell, page, box, params={"lr": 0.1}, log_to=("tensorboard",)).wait(120)
    assert (project / "artifacts" / "kept-1" / "net.txt").read_text() == "weights"
    (events,) = (project / "tensorboard" / "kept-1").rglob("events.*")
    assert b"loss" in events.read_bytes(), "it was written out before the trial ended"


@pytest.mark.slow
def test_a_reply_that_is_lost_holds_up_nothing(page: Any) -> None:
    """What the kernel itself says of the end counts; an interrupt can swallow the reply to the notebook."""
    cell = (
        "session = get_ipython().kernel.session\nsend = session.send\n"
        "def deaf(stream, kind, *rest, **named):\n"
        "    return None if kind == 'execute_reply' else send(stream, kind, *rest, **named)\n"
        "session.send = deaf"
    )
    assert start("unheard", cell, page).wait(120).state == "done"
    assert recorded("unheard").state == "done"


# -- one after another ------------------------------------------------------------------------------------


def test_after_waits_until_the_other_is_done(page: Any, until: Until) -> None:
    """It is queued, and says for whom; a run that replaces the other is waited for in its place."""
    first = start("first", SLEEPS, page)
    second = start("second", "print('second runs')", page, after="first")
    until(lambda: first.state == "running", 120)
    assert second.state == "queued"
    assert "trial 'second' queued: it starts when 'first' is done" in page.text
    assert recorded("second").state == "queued"
    replaced = start("first", "print('quick')", page)
    assert second.wait(120).state == "done"
    assert first.state == "stopped"
    assert page.text.index("trial 'first' done") < page.text.index("second runs")
    assert replaced.number == 2


def test_two_that_would_wait_for_each_other_are_refused(page: Any) -> None:
    """Whoever asks for the second half of the circle is told; the first half waits on."""
    first = start("first", SLEEPS, page)
    second = start("second", "pass", page, after="first")
    third = start("third", "pass", page, after="second")
    with pytest.raises(
        TsnbError, match="'first' cannot start after 'third', because 'third' is queued behind 'first'"
    ):
        first.rerun(after="third")
    assert second.state == third.state == "queued"
    assert trials["first"] is first


def test_after_one_that_fails_nothing_is_run(page: Any) -> None:
    """It fails as well, says why, and so does the one after it."""
    start("bad", "1 / 0", page)
    then = start("then", "print('never')", page, after="bad")
    last = start("last", "print('never')", page, after="then")
    with pytest.raises(
        TrialFailed, match="'last' failed: it was not run, because it waited for 'then', which has failed"
    ):
        last.wait(120)
    assert then.state == "failed"
    assert "never" not in page.text
    assert recorded("then").state == "failed"
    with pytest.raises(TsnbError, match="no longer exist"):
        then["x"]


def test_a_queued_trial_can_be_stopped(page: Any, until: Until) -> None:
    """At once, and the one that it waits for goes on."""
    first = start("first", SLEEPS, page)
    second = start("second", "1", page, after="first")
    until(lambda: first.state == "running", 120)
    second.stop()
    assert second.state == "stopped"
    assert first.state == "running"
    with pytest.raises(NoSuchTrial, match=r"No trial is named 'frist'\. Did you mean 'first'"):
        start("third", "1", page, after="frist")
    assert "third" not in trials


# -- once more --------------------------------------------------------------------------------------------

DIES = (
    "import os, pathlib, signal\nmark = pathlib.Path(place)\nlives = len(mark.read_text()) if mark.exists() else 0\n"
    "mark.write_text('x' * (lives + 1))\nprint('life', lives, flush=True)\n"
    "if lives < {deaths}: os.kill(os.getpid(), signal.SIGKILL)"
)


def test_a_trial_that_lost_its_process_is_started_again(page: Any, tmp_path: Path) -> None:
    """From the top, with the same variables; it is said under its cell and counted."""
    box = {"place": str(tmp_path / "mark")}
    trial = start("again", DIES.format(deaths=1), page, box, restart=True)
    assert trial.wait(120).state == "done"
    assert trial.restarts == 1
    assert trial["lives"] == 1
    assert "trial 'again' crashed: its kernel was killed by SIGKILL" in page.text
    assert (
        "it starts again from the top, because it has no checkpoint (tsnb.checkpoint) (1 of 3)" in page.text
    )
    assert recorded("again").state == "done"


def test_restarts_have_an_end(page: Any, tmp_path: Path) -> None:
    """A cell that kills its process each time is lost after three more attempts; without `restart` at once."""
    box = {"place": str(tmp_path / "mark")}
    trial = start("dies", DIES.format(deaths=99), page, box, restart=True)
    with pytest.raises(TrialFailed, match="'dies' crashed: its kernel was killed by SIGKILL"):
        trial.wait(120)
    assert trial.restarts == RESTARTS_AT_MOST
    assert len((tmp_path / "mark").read_text()) == RESTARTS_AT_MOST + 1


def test_stopping_is_no_reason_to_start_again(page: Any, until: Until) -> None:
    """A trial that ignores its interrupt is killed, and stays stopped."""
    cell = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + SLEEPS
    trial = start("deaf", cell, page, restart=True)
    until(lambda: "begun" in page.text, 120)
    trial.stop()
    assert trial.state == "stopped"
    assert trial.restarts == 0


UNTOLD = """
import gc, os, signal
from tsnb.experiments.in_kernel.reporter import Reporter, tell_rows
tsnb.log(loss=3.0)
reporter = next(one for one in gc.get_objects() if isinstance(one, Reporter))
reporter.flush()
reporter._sinks.remove(tell_rows)  # as when the kernel is killed before what it has sent is on its way
for loss in (2.0, 1.0):
    tsnb.log(loss=loss)
reporter.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_trial_has_all_numbers_that_its_record_has(page: Any, until: Until) -> None:
    """What was written down and not told any more is read: the table shows the last number, as the results do."""
    trial = start("killed", UNTOLD, page)
    until(lambda: trial.state == "crashed")
    assert [row.numbers["loss"] for row in trial.metrics.rows] == [3.0, 2.0, 1.0]
    assert trial.metrics["loss"] == tsnb.results("killed")["loss"].iloc[0] == 1.0
    trial.metrics.cut(1)
    trial.life.hear(WentBack(2, 0))
    assert [row.numbers["loss"] for row in trial.metrics.rows] == [3.0, 2.0], "up to where it goes on"


def test_a_replaced_run_is_asked_to_stop_and_stays_in_the_records(page: Any, until: Until) -> None:
    """Its `finally` runs, its numbers stay as run 1; the new one is run 2, and the table says so."""
    cell = "import time\ntsnb.log(loss=0.5)\ntry:\n    print('begun', flush=True)\n    time.sleep(60)\n"
    old = start("same", cell + "finally:\n    print('put in order')", page)
    until(lambda: "begun" in page.text, 120)
    new = start("same", "tsnb.log(loss=0.25)", page).wait(120)
    assert "put in order" in page.text
    assert (old.number, new.number) == (1, 2)
    assert old.successor is new
    assert recorded("same", 1).state == "stopped"
    assert recorded("same", 1).metrics["loss"].last == 0.5
    assert recorded("same", 2).metrics["loss"].last == 0.25
    assert "same (run 2)" in repr(trials)


def test_a_cell_with_parameters_is_run_again_with_others(page: Any) -> None:
    """They are variables of the cell, as others that it reads; what is none of them is refused."""
    trial = start("cell", "out = [lr, width]", page, {"width": 3}, params={"lr": 0.1})
    assert trial.wait(120)["out"] == [0.1, 3]
    again = trial.rerun(lr=0.2, seed=1)
    assert again.wait(120)["out"] == [0.2, 3]
    assert again.params == {"lr": 0.2}
    assert again.options["seed"] == 1
    assert "lr 0.2" in repr(trials)
    assert again.rerun(width=4)["out"] == [0.2, 4]
    with pytest.raises(TypeError, match=r"reads no variable 'depth'.* It reads: lr, width"):
        again.rerun(depth=4)


# -- many, and together -----------------------------------------------------------------------------------


def test_twenty_at_once(page: Any) -> None:
    """All start, run beside each other, and end; each kernel goes with its trial."""
    cell = "tsnb.log(number=n)\nmine = n"
    started = [start(f"t{n}", cell, page, params={"n": n}) for n in range(20)]
    started_names = {trial.name for trial in started}
    trials.wait(120)
    assert [trial.metrics["number"] for trial in started] == list(range(20))
    records = [record for record in read_runs(Run.find("t0").directory) if record.name in started_names]  # type: ignore[union-attr]
    pids = {record.owner.pid for record in records}
    assert len(pids) == 20
    assert started[7]["mine"] == 7
    assert {record.state for record in read_runs(Run.find("t0").directory)} == {"done"}  # type: ignore[union-attr]
    trials.stop()
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


WORKERS = """
class Squares(Dataset):
    def __init__(self, size): self.size = size
    def __len__(self): return self.size
    def __getitem__(self, index): return square(index)
def square(n): return torch.tensor(float(n * n))
def join(samples): return torch.stack(samples)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_loader_workers_inside_a_trial_load_the_notebook_s_classes(
    method: str, notebook: Any, page: Any
) -> None:
    """A loader of the trial's own, over a dataset and a collate function that a cell of the notebook has defined."""
    box = notebook.run("import torch\nfrom torch.utils.data import DataLoader, Dataset\n" + WORKERS)
    cell = (
        "loader = DataLoader(Squares(8), batch_size=4, num_workers=1, collate_fn=join,\n"
        f"                    multiprocessing_context={method!r})\n"
        "got = [batch.tolist() for batch in loader]"
    )
    trial = start(f"workers-{method}", cell, page, box).wait(120)
    assert trial["got"] == [[0.0, 1.0, 4.0, 9.0], [16.0, 25.0, 36.0, 49.0]]


@pytest.mark.slow
def test_a_killed_trial_leaves_no_semaphore_of_its_workers(notebook: Any, page: Any, until: Until) -> None:
    """Spawned workers share named semaphores; the kernel is killed with its group, and they go all the same."""
    before = leftovers()
    box = notebook.run("import torch\nfrom torch.utils.data import DataLoader, Dataset\n" + WORKERS)
    cell = (
        "loader = DataLoader(Squares(8), batch_size=4, num_workers=1, multiprocessing_context='spawn')\n"
        "batches = iter(loader)\nnext(batches)\n"
    )
    trial = start("killed", cell + SLEEPS, page, box)
    until(lambda: "begun" in page.text, 120)
    assert any(name.startswith(SHM + "sem.mp-") for name in new_leftovers(before))
    assert trial.pid is not None
    os.kill(trial.pid, signal.SIGKILL)
    until(lambda: trial.state == "crashed")


def test_a_name_that_a_live_consumer_has_is_told_in_the_trial(page: Any, until: Until) -> None:
    """A trial of another notebook with the same name has the consumer's name: this one fails with who holds it."""
    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4)
    with tsnb.serve(loader, name="numbers"), tsnb.attach("taken", "numbers"):
        trial = start("taken", "tsnb.attach()", page)
        with pytest.raises(TrialFailed, match="NameInUse"):
            trial.wait(120)


def test_the_first_attach_waits_at_its_gate(page: Any, until: Until, tmp_path: Path) -> None:
    """It is told of; the batches come when the gate opens."""
    import fcntl

    gate = tmp_path / "gate"
    lock = os.open(gate, os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4)
    try:
        with tsnb.serve(loader, name="numbers", late_join=1.0):
            trial = start(
                "gated", "got = [len(b[0]) for b in tsnb.attach()]\nprint('through')", page, gate=gate
            )
            until(lambda: trial.attached, 120)
            time.sleep(0.3)
            assert trial.state == "running"
            assert "through" not in page.text
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert trial.wait(120)["got"] == [4, 4]
    finally:
        os.close(lock)


def test_a_cleared_table_is_empty_and_keeps_the_records() -> None:
    """What was captured goes with it; the records of the project stay."""
    before = len(cargoes())
    trial = run_cell("forgotten", "tsnb.log(loss=1.5)", {"big": list(range(1000))}).wait(120)
    assert len(cargoes()) > before
    trials.clear()
    assert list(trials) == []
    assert len(cargoes()) <= before
    with pytest.raises(TsnbError, match="it was cleared"):
        trial.rerun()
    assert Run.find("forgotten") is not None
