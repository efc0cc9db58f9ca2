"""Slow samples do not hold the line: their batches are begun earlier, and the stream stays the same bit for bit."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Subset

from tests.producer.sources import Fails, Noisy, Numbers, Stand, same
from tsnb.stream.loader.crew import file_sizes

pytestmark = pytest.mark.system

in_order = pytest.mark.skipif(
    not hasattr(DataLoader(Numbers()), "in_order"), reason="torch 2.6 lets answers through as they come"
)


class Uneven(Noisy):
    """One sample is slow; notes in a file in which order samples are begun."""

    def __init__(self, samples: int, slow: int, slow_s: float, log: Path) -> None:
        super().__init__(samples)
        self.slow, self.slow_s, self.log = slow, slow_s, log

    def __getitem__(self, index: int) -> Any:
        with self.log.open("a") as file:  # one short line: whole, whoever else writes
            file.write(f"{index}\n")
        if index == self.slow:
            time.sleep(self.slow_s)
        return super().__getitem__(index)

    def begun(self) -> list[int]:
        order = [int(line) for line in self.log.read_text().splitlines()]
        self.log.write_text("")
        return order


@in_order
def test_a_slow_batch_is_begun_earlier_once_it_is_known_and_given_at_its_place(tmp_path: Path) -> None:
    """Its cost is known from the first epoch; no other worker stands behind it, and no value is another."""
    data = Uneven(40, 25, 0.3, tmp_path / "log")
    with Stand(DataLoader(data, 1, num_workers=1), seed=3) as stand:
        expected = [stand.epoch(number) for number in range(2)]
    data.begun()
    with Stand(DataLoader(data, 1, num_workers=2), seed=3) as stand:
        stand.tickets_of(1)
        assert same(stand.epoch(0), expected[0])
        first = data.begun()
        assert same(stand.epoch(1), expected[1])
        second = data.begun()
        assert same(stand.epoch(1, 20), expected[1][20:])
    assert sorted(first) == sorted(second) == list(range(40))
    assert first.index(25) >= 24, "nothing was known of it"
    assert second.index(25) < second.index(24), "begun before one that is given before it"


@in_order
def test_a_loader_that_need_not_keep_the_order_is_given_in_it_and_can_be_given_again(tmp_path: Path) -> None:
    """in_order=False has no effect: neither on the batches, nor on the promise to repeat them, nor on slow ones."""
    data = Uneven(40, 25, 0.3, tmp_path / "log")
    with Stand(DataLoader(data, 1, shuffle=True, num_workers=2), seed=3) as stand:
        order, expected = stand.source.order, [stand.epoch(number) for number in range(2)]
    with Stand(DataLoader(data, 1, shuffle=True, num_workers=2, in_order=False), seed=3) as stand:
        assert stand.source.order == order != ""
        assert stand.source.workers._by_line()
        assert same(stand.epoch(0), expected[0])
        assert same(stand.epoch(1, 20), expected[1][20:])
    with Stand(DataLoader(Numbers(40), 2, num_workers=2, in_order=False)) as stand:
        assert stand.source.order
        assert torch.cat(stand.epoch(1, 5)).tolist() == list(range(10, 40))


@in_order
@pytest.mark.parametrize("ticket", [1, 3])
def test_the_stream_is_the_same_while_workers_come_and_go(ticket: int, tmp_path: Path) -> None:
    """Two, one, three: with slow samples known, begun by one crew and left to the next."""
    data = Uneven(90, 41, 0.1, tmp_path / "log")
    with Stand(DataLoader(data, 2, shuffle=True, num_workers=1), seed=3) as stand:
        expected = stand.epoch(1)
    with Stand(DataLoader(data, 2, shuffle=True, num_workers=2, persistent_workers=True), seed=3) as stand:
        stand.tickets_of(ticket)
        stand.epoch(0)
        assert same(stand.epoch(1), expected), "by the workers that stayed"
        given = []
        for number, batch in enumerate(stand.give(1)):
            given.append(batch)
            if number in {5, 20}:
                stand.source.workers.change(1 if number == 5 else 3)
        assert same(given, expected)
        assert same(stand.epoch(1, 7), expected[7:])


@in_order
@pytest.mark.parametrize("bad", [0, 9, 39])
def test_an_error_stands_at_its_place_though_its_batch_was_begun_early(bad: int) -> None:
    """All before it arrive."""
    given: list[Any] = []
    loader = DataLoader(Fails(40, bad), 2, num_workers=3)
    with Stand(loader, seed=1) as stand, pytest.raises(ValueError, match=f"sample {bad} is rotten"):
        given.extend(stand.give(0))
    assert torch.cat([torch.empty(0), *given]).tolist() == list(range(bad // 2 * 2))


@in_order
@pytest.mark.slow
def test_a_worker_that_is_killed_ends_the_epoch_with_an_error() -> None:
    """What it had taken is nobody's: torch notices its death within some seconds, and nothing hangs."""
    with Stand(DataLoader(Numbers(4000), 2, num_workers=2), seed=1) as stand:
        stand.tickets_of(1)
        batches = stand.give(0)
        next(batches)
        pid = stand.source.workers._loading[0]()._workers[1].pid
        with contextlib.suppress(RuntimeError):  # torch's signal handler raises wherever this thread is
            os.kill(pid, signal.SIGKILL)
            time.sleep(1.0)
        with pytest.raises(RuntimeError, match=rf"\(pid\(s\) {pid}\) exited unexpectedly"):
            for _ in batches:
                pass


def test_sizes_of_files_are_read_where_a_dataset_shows_them(tmp_path: Path) -> None:
    """Of torchvision's folders, lists of paths and subsets of them; of others nothing is guessed."""
    paths = []
    for number in range(3):
        paths.append(tmp_path / str(number))
        paths[-1].write_bytes(b"." * (number + 1))
    data = Numbers(3)
    assert file_sizes(data) is None
    data.samples = 3
    assert file_sizes(data) is None
    data.paths = paths  # type: ignore[attr-defined]
    sizes = file_sizes(data)
    assert sizes is not None and [sizes(i) for i in range(3)] == [1, 2, 3]
    folder = Numbers(3)
    folder.imgs = [(str(path), 0) for path in paths]  # type: ignore[attr-defined]
    part = file_sizes(Subset(folder, [2, 0]))
    assert part is not None and [part(i) for i in range(2)] == [3, 1]
    paths[0].unlink()
    assert part(1) == 0.0
