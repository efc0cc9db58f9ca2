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
from tsnb.stalling.contention import lone_of

WAIT_S = 0.004


class Reads(Dataset[Any]):
    """Waits for each sample, in front of a lock that one worker at a time can have, if there is one.

    Without one it notes each time that it is asked for its first sample.
    """

    def __init__(self, lock: Path | None, hold_mb: int = 0, noted: Path | None = None) -> None:
        self.lock, self.hold_mb, self.noted, self.held = lock, hold_mb, noted, b""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        if not self.held:
            self.held = random.randbytes(self.hold_mb << 20)
        if self.lock is None:
            if self.noted is not None and index == 0:
                with self.noted.open("ab") as file:
                    file.write(b"1")
        else:
            with self.lock.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                time.sleep(WAIT_S)
        return torch.tensor(index)


@pytest.mark.slow
@pytest.mark.system
def test_a_lock_between_two_loaders_is_noticed_and_their_memory_counted(tmp_path: Path) -> None:
    """In front of the lock a loader has it for all of its time, however busy the machine is."""
    alone = Loading(1.2 * WAIT_S, 0.0001, 0.0001, 1)
    lock = tmp_path / "lock"
    found = contention(DataLoader(Reads(lock, hold_mb=64), 4, num_workers=1), alone, 0.4)
    assert found.lone_s > 0.0
    assert 64 << 20 <= found.memory_bytes < 400 << 20
    assert found.fill_s > 0.0  # a worker starts, and draws its 64 MiB
    assert 0.0 < found.serve_s <= found.fill_s


def test_two_that_take_no_longer_than_one_do_not_hold_each_other_up() -> None:
    """By chance two at once may take a little longer; of what takes twice as long, each has one half."""
    alone = Loading(0.010, 0.001, 0.001, 1)
    assert lone_of(0.010, alone) == lone_of(0.0115, alone) == 0.0
    assert lone_of(0.020, alone) == 0.010
    taken = Loading(0.001, 0.001, 0.001, 1)  # by the one thread that takes the batches of both
    assert lone_of(0.002, taken) == 0.0 and lone_of(0.004, taken) == 0.002


@pytest.mark.slow
@pytest.mark.system
def test_two_short_epochs_are_gone_through_again_and_again(tmp_path: Path) -> None:
    """Both end at once; the one that counts begins anew with the other, epoch after epoch."""
    noted = tmp_path / "begun"
    contention(DataLoader(Reads(None, noted=noted), 100, num_workers=1), Loading(WAIT_S, 0.0, 0.0, 1), 2.0)
    assert noted.stat().st_size >= 4, "two loaders, two epochs each at least"


def test_of_other_loaders_nothing_is_told() -> None:
    """Without workers two loaders of one process would only take turns; what is no DataLoader is not gone through."""
    alone = Loading(WAIT_S, 0.0, 0.0, 0)
    assert contention(DataLoader(Reads(None), 4), alone, 0.1) == LoaderContention()
    assert contention([torch.zeros(2)], alone, 0.1) == LoaderContention()
