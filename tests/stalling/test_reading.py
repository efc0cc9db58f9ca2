"""What a loader reads: files found in its workers, their share of the page cache, and the cost of a cold read.

The disk is played by the dataset: it sleeps where the page cache does not hold a file, so what is expected is known
whatever else runs on the machine.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

import tsnb
from tsnb.machine.disks import cached_bytes, put_out
from tsnb.stalling.reading import storage_of

pytestmark = pytest.mark.system

SIZE = 40_000
WAIT_S = 0.01


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """48 files of 40 kB, on the disk and in the page cache."""
    for number in range(48):
        with (tmp_path / f"{number}.bin").open("wb") as file:
            file.write(os.urandom(SIZE))
            os.fsync(file.fileno())
    if put_out([str(tmp_path / "0.bin")]) not in (0.0, 0):
        pytest.skip("this file system keeps what it is asked to drop")
    return tmp_path


class Files(Dataset[Any]):
    """Each sample is a file; one that is not in the page cache takes `wait_s`, in a queue or not."""

    def __init__(self, folder: Path, wait_s: float = 0.0, *, in_a_queue: bool = False) -> None:
        self.folder, self.wait_s, self.in_a_queue = folder, wait_s, in_a_queue

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> torch.Tensor:
        path = self.folder / f"{index}.bin"
        if self.wait_s and not cached_bytes(str(path)):
            with (self.folder / "queue").open("w") as queue:
                if self.in_a_queue:
                    fcntl.flock(queue, fcntl.LOCK_EX)
                time.sleep(self.wait_s)
        return torch.tensor(len(path.read_bytes()))


def test_files_of_a_sample_are_found_with_their_share_in_memory(folder: Path) -> None:
    """Bytes and files of a sample, of the epoch, and what was in memory before anything was read."""
    put_out([str(folder / f"{number}.bin") for number in range(48)])
    for number in range(12):
        (folder / f"{number}.bin").read_bytes()
    told = storage_of(DataLoader(Files(folder), 4), 30.0)
    assert told is not None and told.files == 1.0 and told.samples == 48
    assert told.sample_bytes == SIZE and told.total_bytes == 48 * SIZE and told.unseen == 0.0
    assert told.cached == pytest.approx(12 / 48, abs=0.03) and told.wait_s is None


def test_nothing_leaves_the_page_cache_unless_it_is_asked_for(folder: Path) -> None:
    """Looking costs nobody else anything."""
    for number in range(48):
        (folder / f"{number}.bin").read_bytes()
    storage_of(DataLoader(Files(folder), 4), 30.0)
    assert all(cached_bytes(str(folder / f"{number}.bin")) == SIZE for number in range(48))


@pytest.mark.slow
@pytest.mark.parametrize("in_a_queue", [True, False])
def test_a_cold_read_costs_what_the_disk_takes(folder: Path, in_a_queue: bool) -> None:
    """The wait of one sample, and whether several workers stand in a queue for it."""
    loader = DataLoader(Files(folder, WAIT_S, in_a_queue=in_a_queue), 4, shuffle=True, num_workers=4)
    told = storage_of(loader, 30.0, cold=True)
    assert told is not None and told.wait_s is not None and told.busy_s is not None, told
    assert WAIT_S * 0.95 < told.wait_s < WAIT_S * 2
    assert (told.busy_s > 0.7 * WAIT_S) == in_a_queue


def test_files_that_were_open_before_are_found_too(tmp_path: Path) -> None:
    """A memory map, and one large file that all samples are read from."""
    np.save(tmp_path / "all.npy", np.zeros((64, 50_000), np.float32))
    mapped = np.load(tmp_path / "all.npy", mmap_mode="r")
    size = (tmp_path / "all.npy").stat().st_size

    class Mapped(Dataset[Any]):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.from_numpy(mapped[index].copy())

    class Sliced(Mapped):
        def __init__(self) -> None:
            self.file = (tmp_path / "all.npy").open("rb", buffering=0)

        def __getitem__(self, index: int) -> torch.Tensor:
            self.file.seek(200_000 * index)
            return torch.tensor(len(self.file.read(200_000)))

    for dataset in (Mapped(), Sliced()):
        told = storage_of(DataLoader(dataset, 4), 30.0)
        assert told is not None and told.total_bytes is not None, dataset
        assert size <= told.total_bytes < 1.2 * size
        assert told.sample_bytes == pytest.approx(200_000, rel=0.3)


def test_what_a_worker_inherits_and_does_not_read_is_not_counted(folder: Path) -> None:
    """A map with a page that was written, which a fork copies; a log that others write while a sample is fetched."""
    np.save(folder / "other.npy", np.ones(400_000, np.float32))
    private = np.load(folder / "other.npy", mmap_mode="c")
    private[:2000] = 2
    private.sum()

    class Logging(Files):
        def __getitem__(self, index: int) -> torch.Tensor:
            os.write(log.fileno(), b"a line")
            return super().__getitem__(index)

    with (folder / "log").open("wb") as log:
        told = storage_of(DataLoader(Logging(folder), 4), 30.0)
    assert told is not None and told.sample_bytes == SIZE and told.total_bytes == 48 * SIZE


def test_where_there_are_no_files_nothing_is_claimed(folder: Path) -> None:
    """Tensors in memory, plain iterables; streams are looked at, but not read twice."""

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(Files(folder)[index] for index in range(48))

    assert storage_of(DataLoader(torch.utils.data.TensorDataset(torch.zeros(64)), 4), 1.0, cold=True) is None
    assert storage_of([torch.zeros(3)] * 9, 1.0) is None
    told = storage_of(DataLoader(Stream(), 4), 30.0, cold=True)
    assert told is not None and told.sample_bytes == SIZE
    assert told.wait_s is None and "IterableDataset" in told.why_not


def test_stalls_tells_of_the_disk_and_disturbs_no_generator(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In its sentences; the loader's own generator is where it was, and processes that fork later are not warned."""
    mine = torch.Generator().manual_seed(3)
    before = mine.get_state()
    told = tsnb.stalls(DataLoader(Files(folder), 4, shuffle=True, generator=mine), seconds=0.2)
    assert torch.equal(mine.get_state(), before)
    assert told.storage is not None and told.storage.sample_bytes == SIZE
    assert "40 kB" in told.text and "page cache" in told.text
    assert len(list(DataLoader(Files(folder), 4, num_workers=1))) == 12
    assert "forked now" not in caplog.text


@pytest.mark.slow
def test_a_cold_measurement_that_meets_no_file_says_so() -> None:
    """In its sentences, and where a figure would need the disk: nobody is told to ask for what was asked for."""
    told = tsnb.stalls(DataLoader(torch.utils.data.TensorDataset(torch.zeros(64)), 4), seconds=0.1, cold=True)
    assert "The disk was not measured" in told.text and "opened no visible file" in told.text
    with pytest.raises(ValueError, match="opened no visible file") as refused:
        told.with_cached(0.5)
    assert "cold=True" not in str(refused.value)
    plain = tsnb.stalls(DataLoader(torch.utils.data.TensorDataset(torch.zeros(64)), 4), seconds=0.1)
    assert "disk" not in plain.text
