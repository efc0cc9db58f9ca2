"""Equal seeds, equal numbers: starting trials and streams draws nothing from the notebook's own generators."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tsnb.draws import Draws
from tsnb.hosting.serving import serve_loader
from tsnb.sweeps.spaces import uniform

pytestmark = pytest.mark.system

HANG_S = 120.0


def train(lr: float) -> float:
    """Draw for each batch, as dropout does."""
    for _ in tsnb.attach():
        tsnb.log(loss=lr + float(torch.rand(())))
    return lr


def test_starting_a_stream_a_trial_and_a_sweep_draws_nothing_here() -> None:
    """Of parameters that are drawn, too."""
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    random.seed(3)
    before = Draws.now()
    kernel = serve_loader(DataLoader(TensorDataset(torch.arange(12.0)), 4, shuffle=True), "rows")
    try:
        assert tsnb.run(train, lr=0.1).wait(HANG_S).result() == 0.1
        tsnb.sweep(train, space={"lr": uniform(0.1, 0.2)}, n=1).wait(HANG_S)
        assert Draws.now().same(before)
    finally:
        kernel.stop()
