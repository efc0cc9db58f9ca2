"""A trial is paused and goes on: in its own process, alone and beside others, through deaths on either side."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb import cli
from tsnb.errors import TsnbError
from tsnb.experiments import Trial, run_cell
from tsnb.experiments.trial_life import pause_trials
from tsnb.records.run import Run
from tsnb.telemetry.following import look
from tsnb.telemetry.observer import status
from tsnb.telemetry.view import as_text

pytestmark = pytest.mark.system

Until = Callable[..., None]

CELL = """
import time
from pathlib import Path
taken = []
for epoch in range(epochs):
    taken.append([])
    for (rows,) in tsnb.attach():
        taken[-1] += rows.tolist()
        tsnb.log(step=sum(map(len, taken)), rows=len(rows))
        while len(taken[-1]) == stop_at and epoch == 0 and not Path(go).exists():
            time.sleep(0.005)
    while stop_at == -1 and epoch == 0 and not Path(go).exists():
        time.sleep(0.005)
"""
ROWS = 48


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))


def serve(**options: Any) -> Any:
    loader = DataLoader(TensorDataset(torch.arange(ROWS)), batch_size=4, shuffle=True)
    return tsnb.serve(loader, name="numbers", window=4, rubber_band=1.0, **options)


def start(page: Any, name: str, go: Path, stop_at: int, epochs: int = 2, **options: Any) -> Trial:
    return run_cell(name, CELL, {"go": str(go), "stop_at": stop_at, "epochs": epochs}, outlet=page, **options)


def states() -> dict[str, str]:
    return {c.name: c.state for c in status("numbers").consumers}


def recorded(name: str) -> str:
    run = Run.find(name)
    record = None if run is None else run.read()
    return "" if record is None else record.state


@pytest.mark.parametrize(
    "stop_at", [20, ROWS, -1], ids=["in the epoch's middle", "in its last batch", "between epochs"]
)
def test_a_paused_trial_stands_still_wherever_it_was_and_then_gets_each_sample_once(
    page: Any, until: Until, tmp_path: Path, stop_at: int
) -> None:
    """On a stream without a seed, where nothing is given again; every surface says that it is paused."""
    with serve():
        trial = start(page, "one", tmp_path / "go", stop_at)
        until(lambda: sum(trial.metrics.by_step("rows").values()) == (ROWS if stop_at < 0 else stop_at), 120)
        trial.pause()
        assert (trial.state, states()) == ("paused", {"one": "paused"})
        (tmp_path / "go").touch()
        until(lambda: recorded("one") == "paused", 60)
        assert trial.state == "paused"
        assert "paused" in repr(trial)
        _, view = look("numbers")
        assert "one: paused" in as_text(view, "numbers").replace("  ", " ") or "paused" in as_text(
            view, "numbers"
        )
        with pytest.raises(TimeoutError, match="is still paused"):
            trial.wait(0.3)
        assert len(trial.metrics.rows) == (ROWS if stop_at < 0 else stop_at) / 4, "it took nothing"
        trial.resume()
        trial.wait(60)
        assert [sorted(epoch) for epoch in trial["taken"]] == [list(range(ROWS))] * 2
        assert recorded("one") == "done"
        with pytest.raises(TsnbError, match="'one' is done"):
            trial.pause()


def test_two_are_paused_and_resumed_together_by_the_command_line_and_one_that_is_killed_harms_nobody(
    page: Any, until: Until, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tsnb pause STREAM`; kill -9 of one that is paused; the other goes on, and gets each sample once."""
    with serve():
        both = [start(page, name, tmp_path / "go", 20) for name in ("one", "two")]
        until(lambda: all(sum(t.metrics.by_step("rows").values()) == 20 for t in both), 120)
        assert cli.main(["pause", "numbers/three"]) == 1
        assert "no consumer named 'three'" in capsys.readouterr().err
        assert cli.main(["pause", "numbers"]) == 0
        assert "paused" in capsys.readouterr().out
        (tmp_path / "go").touch()
        until(lambda: all(trial.state == "paused" for trial in both), 60)
        one, two = both
        assert one.pid is not None
        os.kill(one.pid, signal.SIGKILL)
        until(lambda: one.state == "lost", 60)
        with pytest.raises(TsnbError, match="'one' is lost"):
            pause_trials([one.life, two.life], on=False)
        two.wait(60)
        assert [sorted(epoch) for epoch in two["taken"]] == [list(range(ROWS))] * 2


def test_a_paused_trial_can_be_stopped_and_interrupted(page: Any, until: Until, tmp_path: Path) -> None:
    """At once: it does not wait for its next batch."""
    with serve(seed=1):
        both = [start(page, name, tmp_path / "go", 20) for name in ("one", "two")]
        until(lambda: all(sum(t.metrics.by_step("rows").values()) == 20 for t in both), 120)
        pause_trials([trial.life for trial in both], on=True)
        (tmp_path / "go").touch()
        until(lambda: {recorded("one"), recorded("two")} == {"paused"}, 60)
        both[0].stop()
        assert both[0].state == "stopped"
        both[1].interrupt()
        until(lambda: both[1].state == "interrupted", 60)
        assert len(both[1]["taken"][0]) == 20
