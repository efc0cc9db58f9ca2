"""A trial goes on from a state that it has kept: after a SIGKILL, and when it is extended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb.errors import TsnbError
from tsnb.experiments import Trial, run_cell
from tsnb.experiments.live_values import NoSuchLiveValue
from tsnb.experiments.running.trial_life import TrialLife
from tsnb.records.run import Run
from tsnb.telemetry.observer import status

pytestmark = pytest.mark.system

Until = Callable[..., None]

CELL = """
import os, random, signal, torch
from pathlib import Path
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
where = tsnb.checkpoint(net=net, optimizer=optimizer, schedule=schedule, every_s=0)
torch.rand(3 if where else 1)
rate = tsnb.live("rate", 1.0)
for epoch in tsnb.epochs(epochs):
    for number, (x, y) in enumerate(tsnb.attach()):
        if epoch == 1 and number == 7 and not where and dies:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y) * float(rate)
        loss.backward()
        optimizer.step()
        tsnb.log(loss=loss, drawn=random.random(), epoch=epoch)
    schedule.step()
weights = [p.detach().clone() for p in net.parameters()]
"""
ROWS = 96
BATCHES = 12


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))


def serve(**options: Any) -> Any:
    drawn = torch.Generator().manual_seed(1)
    x, y = torch.rand(ROWS, 4, generator=drawn), torch.rand(ROWS, 1, generator=drawn)
    return tsnb.serve(DataLoader(TensorDataset(x, y), 8, shuffle=True), name="rows", late_join=1.0, **options)


def start(
    page: Any, name: str, epochs: int, *, dies: bool = False, cell: str = CELL, **options: Any
) -> Trial:
    return run_cell(name, cell, {"epochs": epochs, "dies": dies}, outlet=page, seed=3, **options)


def losses(trial: Trial) -> list[tuple[int, float, float]]:
    return [(row.step, row.numbers["loss"], row.numbers["drawn"]) for row in trial.metrics.rows]


def undisturbed(page: Any, epochs: int) -> Trial:
    with serve(seed=5):
        return start(page, "plain", epochs).wait(300)


@pytest.mark.slow
def test_a_trial_that_is_killed_goes_on_where_it_was_bit_for_bit(page: Any) -> None:
    """SIGKILL in the middle of an epoch: numbers, weights, random draws and the record are those of one that lived."""
    plain = undisturbed(page, 3)
    with serve(seed=5):
        trial = start(page, "killed", 3, dies=True, restart="on-crash").wait(300)
    assert trial.restarts == 1
    assert "it resumes from its checkpoint: epoch 2, batch 7 (1 of 3)" in page.text
    assert losses(trial) == losses(plain)
    assert all(map(torch.equal, trial["weights"], plain["weights"]))
    assert {key: trial.report[key] for key in ("epochs", "batches", "samples")} == {
        key: plain.report[key] for key in ("epochs", "batches", "samples")
    }
    run = Run.find("killed")
    assert run is not None
    rows, _ = run.rows()
    assert [(row.step, row.samples) for row in rows] == [(n, 8 * (n + 1)) for n in range(3 * BATCHES)]
    record = run.read()
    assert record is not None
    assert record.metrics["loss"].count == 3 * BATCHES
    assert record.metrics["loss"].last == trial.metrics["loss"]


@pytest.mark.slow
def test_a_finished_trial_is_extended_twice_and_its_numbers_are_those_of_a_longer_one(page: Any) -> None:
    """The same trial and record: rows and results count on; the magic's and the method's words are the same."""
    plain = undisturbed(page, 4)
    with serve(seed=5):
        trial = start(page, "longer", 2).wait(300)
        assert len(trial.metrics.rows) == 2 * BATCHES
        assert trial.extend(epochs=1) is trial
        trial.wait(300)
        assert len(trial.metrics.rows) == 3 * BATCHES
        trial.extend(1).wait(300)
    assert losses(trial) == losses(plain)
    assert all(map(torch.equal, trial["weights"], plain["weights"]))
    assert (trial.number, trial.state, trial.report["epochs"]) == (1, "done", 4)
    record = Run.find("longer")
    assert record is not None
    found = record.read()
    assert found is not None
    assert (found.state, found.metrics["loss"].count) == ("done", 4 * BATCHES)
    assert len(list((record.directory / "kept" / "longer-1").iterdir())) <= 4
    tsnb.records.delete("longer")
    assert not (record.directory / "kept" / "longer-1").exists()


@pytest.mark.slow
def test_a_trial_whose_process_is_gone_is_extended_from_its_last_state(page: Any, until: Until) -> None:
    """Killed in an epoch: it goes on there to the end of its loop and beyond. Killed once it was done: from its end."""
    plain = undisturbed(page, 5)
    with serve(seed=5):
        trial = start(page, "gone", 3, dies=True)
        until(lambda: trial.state == "crashed", 120)
        trial.extend(1).wait(300)
        assert len(trial.metrics.rows) == 4 * BATCHES
        assert trial.pid is not None
        os.kill(trial.pid, signal.SIGKILL)
        until(lambda: trial.pid is None, 60)
        assert trial.state == "done"
        trial.extend(1).wait(300)
    assert losses(trial) == losses(plain)
    assert all(map(torch.equal, trial["weights"], plain["weights"]))


def test_what_cannot_be_extended_says_what_to_do(page: Any) -> None:
    """One that runs, failed, kept nothing, counts its epochs itself, or whose stream is gone: nothing is started."""
    keeps = "import torch\ntsnb.checkpoint(net=torch.nn.Linear(1, 1))\n"
    with serve():
        some = {
            "failed": start(page, "failed", 1, cell="1 / 0"),
            "bare": start(page, "bare", 1, cell="for _ in tsnb.epochs(1): pass"),
            "own": start(page, "own", 1, cell=f"{keeps}for _ in range(1): pass"),
            "gone": start(
                page, "gone", 1, cell=f"{keeps}for _ in tsnb.epochs(1):\n    for _ in tsnb.attach(): pass"
            ),
        }
        with pytest.raises(TsnbError, match=r"'failed' is \w+ and can be extended once it is done"):
            some["failed"].extend(epochs=1)
        for trial in some.values():
            assert trial.life.ended.wait(120)
    for name, said in {
        "failed": r"would fail again at the same point\. .*rerun\(\)",
        "bare": "has no checkpoint to resume from. Put tsnb.checkpoint",
        "own": r"counts its epochs itself.*for epoch in tsnb\.epochs\(10\)",
        "gone": r"the stream 'rows', which is no longer served. Start the stream again \(%tensorsocket start LOADER",
    }.items():
        with pytest.raises(TsnbError, match=f"[Tt]rial '{name}' .*{said}" if name != "gone" else said):
            some[name].extend(epochs=1)
    with pytest.raises(ValueError, match=r"epochs=0 is invalid\. Pass a whole number of epochs"):
        some["own"].extend(epochs=0)
    assert [trial.state for trial in some.values()] == ["failed", "done", "done", "done"]


WAITS = """
    while number in waits and epoch == 1 and not Path(go).exists():
        asked = this_process.boundary is not None or keeper_here()._clones
        if asked:
            break
        time.sleep(0.005)
"""


def steered() -> str:
    """A cell that waits in its second epoch until it is to be cloned, with a thread that forbids a fork."""
    head = (
        "import threading, time\nfrom tsnb.stream.this_process import this_process\n"
        "from tsnb.experiments.in_kernel.kept_state import keeper_here\n"
        "threading.Thread(target=threading.Event().wait, name='mine', daemon=True).start()\n"
        "waits = 7, 9\n"
    )
    return head + CELL.replace(
        "        optimizer.zero_grad()", f"{indented(WAITS)}        optimizer.zero_grad()"
    )


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.strip("\n").splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("start_by", ["fork", "spawn"])
def test_a_trial_that_cannot_be_forked_is_cloned_by_its_kept_state_at_that_very_batch(
    page: Any, until: Until, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_by: str
) -> None:
    """Losses, draws and weights are the parent's bit for bit; the change holds from the clone's first batch on."""
    monkeypatch.setenv("TSNB_START", start_by)
    with serve(seed=5):
        one = run_cell(
            "one", steered(), {"epochs": 3, "dies": False, "go": str(tmp_path / "go")}, outlet=page, seed=3
        )
        until(lambda: len(one.metrics.rows) == BATCHES + 7, 120)
        two = one.clone("two")
        hot = one.clone("hot", rate=2.0)
        (tmp_path / "go").touch()
        for trial in (one, two, hot):
            trial.wait(120)
        whole = losses(one)
        assert len(whole) == 3 * BATCHES
        at = two.metrics.rows[0].step
        assert at == BATCHES + 8, "the batch after the one at which it was asked"
        assert losses(two) == whole[at:]
        assert all(map(torch.equal, one["weights"], two["weights"]))
        assert two.parent is not None
        assert two.parent == ("one", 1, 2, at - BATCHES, 8 * at), "its second epoch"
        assert [(change.name, change.value) for change in hot.changes] == [("rate", 2.0)]
        assert losses(hot)[0][1] == 2 * whole[hot.metrics.rows[0].step][1]
        assert "a clone of 'one'" in page.text
        record = Run.find("two")
        assert record is not None
        found = record.read()
        assert found is not None and (found.state, found.parent) == ("done", two.parent)
        assert not list(one.life._run.kept.place.glob(".*"))
        two.extend(epochs=1).wait(120)
        assert two.metrics.rows[-1].step == 4 * BATCHES - 1


@pytest.mark.slow
def test_a_trial_is_cloned_from_an_epoch_of_its_past_and_the_epochs_that_there_are_are_told(
    page: Any, tmp_path: Path
) -> None:
    """One that has ended, from the states that `history` keeps; what it computes from there is what that one did."""
    cell = CELL.replace("every_s=0", "every_s=0, history=2")
    with serve(seed=5):
        one = start(page, "one", 4, cell=cell).wait(120)
        kept = one.life._run.kept
        assert sorted(kept.starts) == [3, 4]
        with pytest.raises(
            TsnbError, match=r"no checkpoint from the start of epoch 2, only of epochs 4, 5\."
        ):
            one.clone(at=2)
        with pytest.raises(TsnbError, match=r"is done, .*\['one'\]\.clone\(at=4\)\. .*of epochs 4, 5$"):
            one.clone()
        with pytest.raises(TsnbError, match=r"epoch 1, which is the top of its code.*rerun"):
            one.clone(at=1)
        with pytest.raises(ValueError, match=r"at=0 is invalid\. Pass an epoch: they count from 1"):
            one.clone(at=0)
        with pytest.raises(NoSuchLiveValue, match="Did you mean 'rate'"):
            one.clone(at=4, rates=2.0)
        two = one.clone("two", at=4).wait(120)
        assert losses(two) == losses(one)[3 * BATCHES :]
        assert all(map(torch.equal, one["weights"], two["weights"]))
        assert two.parent == ("one", 1, None, None, 3 * BATCHES * 8)
        hot = one.clone("hot", at=4, rate=2.0).wait(120)
        assert losses(hot)[0][1] == 2 * losses(two)[0][1]
        assert [change.samples for change in hot.changes] == [(3 * BATCHES + 1) * 8]
        assert kept.starts[3].path.exists(), "the state is the parent's still"


@pytest.mark.slow
@pytest.mark.parametrize("at", [None, 2])
def test_a_clone_of_a_trial_with_restart_goes_on_when_it_is_killed(
    page: Any, until: Until, at: int | None
) -> None:
    """From its own checkpoint, by a fork and by a state alike; it counts, and its parent is left alone."""
    hold = "    if epoch == 2: __import__('time').sleep(0.05 if float(rate) == 1.0 else 0.2)\n    schedule.step()"
    cell = CELL.replace("every_s=0", "every_s=0, history=3").replace("    schedule.step()", hold)
    cell = cell.replace(
        "        optimizer.step()", "        optimizer.step()\n        __import__('time').sleep(0.05)"
    )
    with serve(seed=5):
        one = start(page, "one", 4, cell=cell, restart="on-crash")
        until(lambda: len(one.metrics.rows) > BATCHES + 3, 120)
        two = one.clone("two", at=at)
        begun = len(two.metrics.rows)
        until(lambda: len(two.metrics.rows) > begun + 2, 120)
        assert two.pid is not None
        os.kill(two.pid, signal.SIGKILL)
        assert two.wait(300).state == "done"
        assert two.restarts == 1
        assert one.wait(300).restarts == 0
    assert "trial 'two' crashed" in page.text
    assert "it resumes from its checkpoint" in page.text
    steps = [row.step for row in two.metrics.rows]
    assert steps == list(range(steps[0], 4 * BATCHES)), "each batch of its rest once"


@pytest.mark.slow
@pytest.mark.parametrize("every_s", [0, 3600])
def test_a_clone_that_is_killed_goes_on_without_a_row_twice_and_with_its_latest_values(
    page: Any, tmp_path: Path, every_s: int
) -> None:
    """Its record begins where it branched off: what it logged after the checkpoint goes, and a change of it stays."""
    once = tmp_path / "once"
    dies = f"epoch == 3 and number == 7 and float(rate) == 3.0 and not Path({str(once)!r}).exists()"
    cell = CELL.replace("epoch == 1 and number == 7 and not where and dies", dies)
    cell = cell.replace("os.kill(", f"Path({str(once)!r}).touch(); os.kill(")
    cell = cell.replace("every_s=0", "every_s=0, history=2").replace(
        "drawn=random.random()", "rate=float(rate)"
    )
    cell = cell.replace(
        "        optimizer.step()",
        "        optimizer.step()\n        number == 3 and float(rate) == 2.0 and rate.set(3.0)",
    )
    with serve(seed=5):
        one = start(page, "one", 4, cell=cell).wait(120)
        two = one.clone("two", at=4, rate=2.0)
        with pytest.raises(TsnbError, match="SIGKILL"):
            two.wait(120)
        two.extend(1).wait(120)
    rows = two.metrics.rows
    assert [row.step for row in rows] == list(range(3 * BATCHES, 5 * BATCHES))
    assert [row.numbers["rate"] for row in rows] == [2.0] * 4 + [3.0] * (2 * BATCHES - 4)
    run = Run.find("two")
    assert run is not None
    assert [row.step for row in run.rows()[0]] == [row.step for row in rows]


@pytest.mark.slow
def test_rows_of_a_clone_that_are_written_before_its_beginning_is_heard_of_come_once(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the notebook hears that a clone goes on from a state when it has long logged rows."""
    heard = TrialLife._go_back

    def late(life: TrialLife, rows: int, samples: int) -> None:
        time.sleep(3.0)
        heard(life, rows, samples)

    with serve(seed=5):
        one = start(page, "one", 4, cell=CELL.replace("every_s=0", "every_s=0, history=2")).wait(120)
        monkeypatch.setattr(TrialLife, "_go_back", late)
        two = one.clone("two", at=4).wait(120)
    assert losses(two) == losses(one)[3 * BATCHES :]


HALF = """
import os, signal
from tsnb.records import kept
written = kept._write
def half(path, save, *, end):
    if path.name.startswith(".clone"):
        path.write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    written(path, save, end=end)
kept._write = half
"""
EARLY = """
import os, signal
from tsnb.stream.this_process import this_process
if this_process.name == "two":
    os.kill(os.getpid(), signal.SIGKILL)
"""
LATE = (
    EARLY.replace("two", "none")
    + """
def boundary(*_):
    if this_process.name == "two":
        os.kill(os.getpid(), signal.SIGKILL)
this_process.gate = None
import tsnb.stream.consumer.talking.line as line
came = line.Line.next
line.Line.next = lambda self: (boundary(), came(self))[1]
"""
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prelude", "who"),
    [(HALF, "one"), (EARLY, "two"), (LATE, "two")],
    ids=["the trial as it writes", "the clone before it has its state", "the clone at its first batch"],
)
def test_killed_at_any_step_of_a_clone_by_kept_state_the_other_goes_on(
    page: Any, until: Until, tmp_path: Path, prelude: str, who: str
) -> None:
    """The reason is told or the loss shown; no half state is gone on from; nothing is on the stream any more."""
    with serve(seed=5):
        beside = start(page, "beside", 3)
        given = {"epochs": 3, "dies": False, "go": str(tmp_path / "go")}
        one = run_cell("one", prelude + steered(), given, outlet=page, seed=3)
        until(lambda: len(one.metrics.rows) == BATCHES + 7, 120)
        if who == "one":
            with pytest.raises(TsnbError, match=r"died before it was cloned|was killed by SIGKILL"):
                one.clone("two")
            until(lambda: one.state == "crashed", 60)
            assert Run.find("two") is None
            folder = one.life._run.kept.place
            assert [path.name for path in folder.glob(".clone*")], (
                "half of a state, which nobody goes on from"
            )
            tsnb.trials.drop(one)
            tsnb.records.delete("one")
            assert not folder.exists()
        else:
            two = one.clone("two")
            (tmp_path / "go").touch()
            until(lambda: two.state == "crashed", 120)
            assert "SIGKILL" in page.text
            one.wait(120)
            assert len(losses(one)) == 3 * BATCHES
            assert two.life._run.kept.newest is not None, "what it was to begin with is there still"
        beside.wait(120)
        assert len(losses(beside)) == 3 * BATCHES
        assert [c.name for c in status("rows").consumers if c.state != "gone"] == []
