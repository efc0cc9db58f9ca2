"""Single trials that are started one right after the other begin with the same batches; nobody waits for long."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb.experiments import trials
from tsnb.kernels.beside import WAITING_S, begin_with_others, starting
from tsnb.kernels.hub import the_hub

LIMIT_S = 60


@pytest.fixture
def numbers() -> Iterator[tsnb.streams.Producer]:
    """Serve 0 to 399 in an order of its own each epoch, 4 at a time: an epoch is over at once; any stall timeout."""
    loader = DataLoader(TensorDataset(torch.arange(400.0)), batch_size=4, shuffle=True)
    with tsnb.serve(loader, name="numbers", stall_timeout_s=float("inf")) as producer:
        yield producer


@pytest.fixture
def train(notebook: Any) -> Any:
    """Return a function that prepares for some seconds, takes two epochs, and returns their numbers and batches."""
    return notebook.run(
        """
def train(prepare_s, fails=False, step_s=0.0):
    import time, tsnb
    time.sleep(prepare_s)
    assert not fails
    batches, firsts = tsnb.attach(), []
    for _ in range(2):
        for number, (x,) in enumerate(batches):
            time.sleep(step_s)
            if not number:
                firsts.append((batches.epoch, x.tolist()))
    return firsts
"""
    )["train"]


@pytest.mark.system
def test_trials_that_are_started_in_a_row_begin_with_the_same_batch(numbers: Any, train: Any) -> None:
    """However long each prepares, within bounds; one that fails or is killed before it attaches is not waited for."""
    fails = tsnb.run(train, prepare_s=0.5, fails=True, name="fails")
    killed = tsnb.run(train, prepare_s=100, name="killed")
    three = [tsnb.run(train, prepare_s=after_s, name=f"t{after_s}") for after_s in (0.0, 0.7, 1.4)]
    while killed.state != "running":
        time.sleep(0.01)
    os.kill(killed.pid or 0, signal.SIGKILL)
    first, *others = [trial.result(timeout_s=LIMIT_S) for trial in three]
    assert others == [first, first]
    assert "note:" not in "".join(trial.logs() for trial in three), "all were there"
    assert (fails.state, killed.state) == ("failed", "crashed")
    assert not [*the_hub().directory.glob("starting/*/*")]


@pytest.mark.slow
@pytest.mark.system
def test_one_that_trains_already_is_held_for_less_than_the_patience(train: Any) -> None:
    """So a new one that waits for its neighbour keeps its place in the epoch that both have begun."""
    loader = DataLoader(TensorDataset(torch.arange(400.0)), batch_size=4, shuffle=True)
    with tsnb.serve(loader, name="numbers", stall_timeout_s=1.0):
        old = tsnb.run(train, prepare_s=0.0, step_s=0.02, name="old")
        while not old.report.get("batches"):
            time.sleep(0.01)
        new = tsnb.run(train, prepare_s=0.0, name="new")
        tsnb.run(train, prepare_s=100.0, name="never")
        assert old.result(timeout_s=LIMIT_S)[1] == new.result(timeout_s=LIMIT_S)[0]
        assert "note: 'new' starts without 'never'" in new.logs()
        trials.stop()


def test_nobody_waits_alone_nor_for_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor for one that was started long ago, on another stream, or by a notebook that has gone with its directory."""
    with starting(tmp_path, "s", "old") as old, starting(tmp_path, "t", "other"):
        assert old is not None
        os.utime(old, (0, time.time() - WAITING_S))
        with starting(tmp_path, "s", "own") as own:
            assert own is not None
            began_s = time.monotonic()
            begin_with_others(own, stall_timeout_s=100.0)
            assert time.monotonic() - began_s < WAITING_S / 2
            assert capsys.readouterr().out == ""
            with starting(tmp_path, "s", "late"), starting(tmp_path, "s", "later"):
                begin_with_others(own, stall_timeout_s=0.2)
    assert capsys.readouterr().out == (
        "note: 'own' starts without 'late' and 'later'. Trials that are started together wait at most 0.1 s for "
        "each other.\n"
    )
    assert not [*tmp_path.glob("starting/*/*")]
    shutil.rmtree(tmp_path / "starting")
    begin_with_others(own, stall_timeout_s=100.0)


@pytest.mark.parametrize("stream", ["", "../up"])
def test_without_a_stream_or_a_place_a_trial_begins_when_it_is_ready(tmp_path: Path, stream: str) -> None:
    """A full disk ends no trial."""
    with starting(tmp_path, stream, "own") as mark:
        assert mark is None
    assert not [*tmp_path.iterdir()]
    (tmp_path / "starting").touch()
    with starting(tmp_path, "s", "own") as mark:
        assert mark is None
