"""A trial goes on from a state that it has kept: after a SIGKILL, and when it is extended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb.errors import TsnbError
from tsnb.experiments import Trial, run_cell
from tsnb.records.run import Run

pytestmark = pytest.mark.system

Until = Callable[..., None]

CELL = """
import os, random, signal, torch
from pathlib import Path
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
where = tsnb.keep(net=net, optimizer=optimizer, schedule=schedule, every_s=0)
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
    return tsnb.serve(
        DataLoader(TensorDataset(x, y), 8, shuffle=True), name="rows", rubber_band=1.0, **options
    )


def start(
    page: Any, name: str, epochs: int, *, dies: bool = False, cell: str = CELL, **options: Any
) -> Trial:
    return run_cell(name, cell, {"epochs": epochs, "dies": dies}, outlet=page, seed=3, **options)


def losses(trial: Trial) -> list[tuple[int, float, float]]:
    return [(row.step, row.numbers["loss"], row.numbers["drawn"]) for row in trial.metrics.rows]


def undisturbed(page: Any, epochs: int) -> Trial:
    with serve(seed=5):
        return start(page, "plain", epochs).wait(60)


@pytest.mark.slow
def test_a_trial_that_is_killed_goes_on_where_it_was_bit_for_bit(page: Any) -> None:
    """SIGKILL in the middle of an epoch: numbers, weights, random draws and the record are those of one that lived."""
    plain = undisturbed(page, 3)
    with serve(seed=5):
        trial = start(page, "killed", 3, dies=True, restart="on-crash").wait(60)
    assert trial.restarts == 1
    assert "it goes on from its kept state: epoch 1, batch 7 (1 of 3)" in page.text
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
        trial = start(page, "longer", 2).wait(60)
        assert len(trial.metrics.rows) == 2 * BATCHES
        assert trial.extend(epochs=1) is trial
        trial.wait(60)
        assert len(trial.metrics.rows) == 3 * BATCHES
        trial.extend(1).wait(60)
    assert losses(trial) == losses(plain)
    assert all(map(torch.equal, trial["weights"], plain["weights"]))
    assert (trial.number, trial.state, trial.report["epochs"]) == (1, "done", 4)
    record = Run.find("longer")
    assert record is not None
    found = record.read()
    assert found is not None
    assert (found.state, found.metrics["loss"].count) == ("done", 4 * BATCHES)
    assert len(list((record.directory / "kept" / "longer-1").iterdir())) <= 4
    tsnb.delete("longer")
    assert not (record.directory / "kept" / "longer-1").exists()


def test_what_cannot_be_extended_says_what_to_do(page: Any) -> None:
    """One that runs, failed, kept nothing, counts its epochs itself, or whose stream is gone: nothing is started."""
    keeps = "import torch\ntsnb.keep(net=torch.nn.Linear(1, 1))\n"
    with serve():
        some = {
            "failed": start(page, "failed", 1, cell="1 / 0"),
            "bare": start(page, "bare", 1, cell="for _ in tsnb.epochs(1): pass"),
            "own": start(page, "own", 1, cell=f"{keeps}for _ in range(1): pass"),
            "gone": start(
                page, "gone", 1, cell=f"{keeps}for _ in tsnb.epochs(1):\n    for _ in tsnb.attach(): pass"
            ),
        }
        with pytest.raises(TsnbError, match=r"'failed' is \w+: it can be extended once it is done"):
            some["failed"].extend(epochs=1)
        for trial in some.values():
            assert trial.life.ended.wait(120)
    for name, said in {
        "failed": r"is failed; only one that is done can be extended\. .*rerun\(\)",
        "bare": "has kept no state to go on from: put tsnb.keep",
        "own": r"counts its epochs itself.*for epoch in tsnb\.epochs\(10\)",
        "gone": r"the stream 'rows', which is not served any more: start it again \(%tensorsocket start LOADER",
    }.items():
        with pytest.raises(TsnbError, match=f"trial '{name}' .*{said}" if name != "gone" else said):
            some[name].extend(epochs=1)
    with pytest.raises(ValueError, match=r"extend\(epochs=0\)"):
        some["own"].extend(epochs=0)
    assert [trial.state for trial in some.values()] == ["failed", "done", "done", "done"]
