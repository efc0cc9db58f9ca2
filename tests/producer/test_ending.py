"""What is left of a producer in its own process once it has stopped."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import tsnb


@pytest.mark.system
@pytest.mark.parametrize("asked_by", ["the owner", "somebody else"])
def test_no_thread_outlives_the_stop(asked_by: str) -> None:
    """A thread that still held the dataset while the interpreter ends would abort the process inside torch."""
    before = set(threading.enumerate())
    producer = tsnb.serve(DataLoader(TensorDataset(torch.zeros(8, 2)), batch_size=4), name="short")
    assert set(threading.enumerate()) - before
    if asked_by == "the owner":
        producer.stop()
    else:
        tsnb.stop("short")
        assert producer.wait(120)
    assert not set(threading.enumerate()) - before
