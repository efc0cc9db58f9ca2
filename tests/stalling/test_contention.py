"""What two loaders of the same data cost each other: really run, in front of a lock and without one."""

from __future__ import annotations

import fcntl
import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tsnb.stalling import LoaderContention, Loading, contention

WAIT_S = 0.004


class Reads(Dataset[Any]):
    """Waits for each sample, in front of a lock that one worker at a time can have, if there is one."""

    def __init__(self, lock: Path | None, hold_mb: int = 0) -> None:
        self.lock, self.hold_mb, self.held = lock, hold_mb, b""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        if not self.held:
            self.held = random.randbytes(self.hold_mb << 20)
        if self.lock is None:
            time.sleep(WAIT_S)
        else:
            with self.lock.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                time.sleep(WAIT_S)
        return torch.tensor(index)


@pytest.mark.system
def test_a_lock_between_two_loaders_is_noticed_and_their_memory_counted(tmp_path: Path) -> None:
    """In front of the lock a loader has it for all of its time; without one, two get on beside each other."""
    alone = Loading(1.2 * WAIT_S, 0.0001, 0.0001, 1)
    lock = tmp_path / "lock"
    found = contention(DataLoader(Reads(lock, hold_mb=64), 4, num_workers=1), alone, 0.4)
    assert 0.8 * WAIT_S < found.lone_s < 4 * WAIT_S
    assert 64 << 20 <= found.memory_bytes < 400 << 20
    assert found.fill_s > WAIT_S  # a worker starts, and draws its 64 MiB
    assert contention(DataLoader(Reads(None), 4, num_workers=1), alone, 0.4).lone_s == 0.0


@pytest.mark.system
def test_two_short_epochs_are_gone_through_again_and_again() -> None:
    """Both end at once; the one that counts begins anew with the other, epoch after epoch."""
    found = contention(DataLoader(Reads(None), 100, num_workers=1), Loading(2 * WAIT_S, 0.0, 0.0, 1), 2.0)
    assert found.lone_s == 0.0


def test_of_other_loaders_nothing_is_told() -> None:
    """Without workers two loaders of one process would only take turns; what is no DataLoader is not gone through."""
    alone = Loading(WAIT_S, 0.0, 0.0, 0)
    assert contention(DataLoader(Reads(None), 4), alone, 0.1) == LoaderContention()
    assert contention([torch.zeros(2)], alone, 0.1) == LoaderContention()
