"""A way of a plan, carried out with real trials."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb.planners import queueing
from tsnb.planners.fluid import Job
from tsnb.planners.scheduling import Schedule
from tsnb.planners.strategies import Strategy
from tsnb.planning.conducting import Started, conduct
from tsnb.planning.ways import APART, LISTED, Foretold
from tsnb.planning.wishes import wanted

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    yield
    tsnb.trials.clear()


SOURCE = """
def train(epochs):
    import time, tsnb
    batches = tsnb.attach()
    seen = []
    for epoch in tsnb.epochs(epochs):
        for batch in batches:
            time.sleep(0.1)
        seen.append(batches.epoch)
    return seen
"""


def ran(way: str, epochs: dict[str, int], at_once: int) -> dict[str, list[int]]:
    """Run trials of 40 batches an epoch in one way; return the epochs of the stream that each took."""
    named: dict[str, Any] = {"__name__": "__main__"}  # travels by value
    exec(compile(SOURCE, "<cell>", "exec"), named)
    several = wanted({name: (named["train"], {"epochs": each}) for name, each in epochs.items()}, None)
    planned = Schedule(dict.fromkeys(epochs, 0.0), {name: 4.0 * each for name, each in epochs.items()})
    found = Foretold(way, planned, 0.1, tuple(epochs), at_once, strategies=dict.fromkeys(epochs, Strategy(1)))
    jobs = {name: Job(name, 160.0 * each, 0.1, 0.0, start_s=2.0) for name, each in epochs.items()}
    loader = DataLoader(TensorDataset(torch.arange(160.0)), batch_size=4)
    done = conduct(found, several, loader, "listed", jobs, 1e18, Started())
    for trial in done.values():
        assert "note:" not in trial.logs(), trial.logs()
    return {name: trial.result() for name, trial in done.items()}


@pytest.mark.slow
def test_the_next_trial_of_a_list_is_there_when_an_epoch_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of three epochs and three of one on two places share three; one that came late would take a fourth."""
    monkeypatch.setattr(queueing, "LEAD", 8.0)  # a start may take long on a busy machine
    seen = ran(LISTED, {"long": 3, "a": 1, "b": 1, "c": 1}, 2)
    assert [len(each) for each in seen.values()] == [3, 1, 1, 1]
    assert len({epoch for each in seen.values() for epoch in each}) == 3, seen


@pytest.mark.slow
def test_with_a_loader_each_nobody_is_started_early() -> None:
    """Each takes an epoch of its own stream, and there is no more than one at a time."""
    assert ran(APART, {"a": 1, "b": 1}, 1) == {"a": [0], "b": [0]}
    assert not tsnb.streams.list()
