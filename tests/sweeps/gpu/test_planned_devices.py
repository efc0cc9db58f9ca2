"""A planned sweep on GPUs: each trial gets one of them. Not yet run on one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb
from tests.promises import HANG_S
from tsnb.experiments import trials

SOURCE = """
def train(width, epochs=2):
    import os
    import torch
    import tsnb
    net = torch.nn.Linear(1, width).cuda()
    for _ in range(epochs):
        for (batch,) in tsnb.attach():
            net(batch.cuda()[:, None]).sum().backward()
    return os.environ["CUDA_VISIBLE_DEVICES"], torch.cuda.device_count()
"""


@pytest.mark.gpu
@pytest.mark.system
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_trials_are_divided_among_the_gpus_that_are_there() -> None:
    """Four equal ones, as even as can be; each sees its own and no other."""
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(SOURCE, made)
    devices = tuple(f"cuda:{number}" for number in range(min(2, torch.cuda.device_count())))
    loader = DataLoader(TensorDataset(torch.arange(400.0)), batch_size=4)
    try:
        with tsnb.serve(loader, name="gpu-numbers"):
            sweep = tsnb.sweep(
                made["train"], grid={"width": [64, 65, 66, 67]}, plan=True, device=devices, name="on-gpus"
            ).wait(HANG_S)
            on = {name: trial.options["device"] for name, trial in sweep.items()}
            assert Counter(on.values()) == Counter({device: 4 // len(devices) for device in devices})
            seen = {on[name]: trial.result() for name, trial in sweep.items()}
            assert len(set(seen.values())) == len(devices) and all(count == 1 for _, count in seen.values())
    finally:
        trials.clear()
