"""What observers are told of a trial that lags behind."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb


def test_what_is_ready_for_a_trial_that_lags_is_all_that_the_others_have_had_meanwhile() -> None:
    """Also of the passes after its own: the panel says how far behind it is, and that all of it lies ready."""
    with tsnb.serve(DataLoader(TensorDataset(torch.arange(40)), 2), name="s"):
        fast, slow = tsnb.attach("fast", "s"), tsnb.attach("slow", "s")
        stands, others = iter(slow), iter(fast)
        next(stands)
        for _ in others:
            pass
        for _ in fast:
            pass
        one = next(c for c in tsnb.streams.status("s").consumers if c.name == "slow")
        assert one.fill == 39
        fast.close()
        slow.close()
