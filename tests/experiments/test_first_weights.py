"""A trial tells with which weights it begins, before any row of its training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb

pytestmark = pytest.mark.system

TRAIN = """
def train(init, width=8, lr=0.1):
    import torch, tsnb
    torch.manual_seed(init)
    head = torch.nn.Linear(width, 2)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    net = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Dropout(0.5), head)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for (inputs,) in tsnb.attach():
        loss = torch.nn.functional.cross_entropy(net(inputs), inputs.sum(1).gt(0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tsnb.log(loss=loss)
"""


def test_trials_that_begin_with_the_same_weights_tell_the_same_hash(notebook: Any) -> None:
    """Whatever their rate is; another seed or shape tells another hash, though all have the same first loss."""
    train = notebook.run(TRAIN)["train"]
    with tsnb.serve(DataLoader(TensorDataset(torch.randn(32, 4)), 4), name="weights"):
        settings: dict[str, dict[str, Any]] = {
            "one": {"init": 1},
            "same": {"init": 1, "lr": 0.01},
            "other": {"init": 2},
            "wide": {"init": 1, "width": 16},
        }
        trials = [tsnb.run(train, name=name, stream="weights", **given) for name, given in settings.items()]
        for trial in trials:
            trial.wait(240)
        one, same, other, wide = (trial.report["weights"] for trial in trials)
        first = [trial.metrics.rows[0].numbers["loss"] for trial in trials]
    assert first == pytest.approx([first[0]] * 4)
    assert one == same
    assert len({one, other, wide}) == 3
