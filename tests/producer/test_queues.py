"""Queues of packets between a DataLoader and its workers keep what torch's own loop gets from `multiprocessing`'s."""

from __future__ import annotations

import multiprocessing
import os
import queue
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

import tsnb
from tests.producer.sources import Numbers, Stand, same
from tsnb.show.words import footnotes
from tsnb.stream.loader.queues import PACKET_BYTES, PacketQueue, QueueContext

METHODS = ["fork", *(pytest.param(method, marks=pytest.mark.slow) for method in ("spawn", "forkserver"))]
fork = multiprocessing.get_context("fork")
_CONTEXT = "_DataLoader__multiprocessing_context"


def over_packets(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Let a plain loader of torch's use the queues, so that all that it gives has come through them."""
    vars(loader)[_CONTEXT] = QueueContext(loader.multiprocessing_context)
    return loader


def is_over_packets(stand: Stand) -> bool:
    """Whether a source's workers use the queues now."""
    return isinstance(stand.source.workers._loading[-1]()._worker_result_queue, PacketQueue)


# -- one queue ----------------------------------------------------------------------------------------------


def test_a_queue_gives_each_object_to_one_and_ends_for_all() -> None:
    """Large ones too, and more than the socket has room for; the process that made it never waits."""
    line = PacketQueue()
    large = list(range(PACKET_BYTES))
    line.put(large)
    for number in range(5000):
        line.put([number] * 50)
    assert line.get() == large
    for number in range(5000):
        assert line.get() == [number] * 50
    theirs = line._reader.dup()
    line.end()
    assert theirs.recv(1) == b""
    theirs.close()


def test_whoever_waits_is_told_when_nothing_came_in_time() -> None:
    """As by `multiprocessing`, and the limit may change with every call."""
    waiting = PacketQueue()
    for timeout_s in (0.05, 0.2, 0.0):
        began = time.monotonic()
        with pytest.raises(queue.Empty):
            waiting.get(timeout=timeout_s)
        assert timeout_s <= time.monotonic() - began < timeout_s + 1.0
    waiting.put("here")
    assert waiting.get(timeout=5.0) == "here"


def _put_many(results: PacketQueue, which: int) -> None:
    for number in range(60):
        results.put((which, number, bytes([which]) * (number % 3 * PACKET_BYTES)))


@pytest.mark.parametrize("method", METHODS)
def test_several_workers_put_into_one_queue_and_each_object_arrives_whole(method: Any) -> None:
    """Small and large ones mixed, in the order of each worker, however the workers were started."""
    results = PacketQueue()
    context = multiprocessing.get_context(method)
    workers = [context.Process(target=_put_many, args=(results, which)) for which in range(3)]
    for worker in workers:
        worker.start()
    came: dict[int, list[int]] = {}
    for _ in range(180):
        which, number, rest = results.get(timeout=60)
        assert rest == bytes([which]) * (number % 3 * PACKET_BYTES)
        came.setdefault(which, []).append(number)
    assert came == {which: list(range(60)) for which in range(3)}
    for worker in workers:
        worker.join(20)
        assert worker.exitcode == 0


def test_a_worker_that_waits_for_room_goes_on_when_the_loader_ends() -> None:
    """Else each would be waited for, five seconds long, and then killed."""
    context = QueueContext(None)
    results, done = context.Queue(), context.Event()

    def fill() -> None:
        while not done.is_set():
            results.put(b"." * 1000)

    worker = fork.Process(target=fill)
    worker.start()
    assert results.get(timeout=20) == b"." * 1000
    time.sleep(0.2)  # it has filled the socket by now
    done.set()
    worker.join(4)
    assert worker.exitcode == 0


def test_a_killed_worker_takes_no_lock_with_it() -> None:
    """The others go on, wherever it was."""
    results = PacketQueue()

    def put_for_ever(which: int) -> None:
        while True:
            results.put(which)

    workers = [fork.Process(target=put_for_ever, args=(which,)) for which in range(2)]
    for worker in workers:
        worker.start()
    try:
        while results.get(timeout=20) != 0:
            pass
        os.kill(workers[0].pid or 0, signal.SIGKILL)
        workers[0].join()
        for _ in range(2000):  # more than the socket holds
            last = results.get(timeout=20)
        assert last == 1
    finally:
        workers[1].kill()
        workers[1].join()


def test_too_many_open_files_are_told_as_such() -> None:
    """An object in memory of its own comes as a descriptor; torch says what to do where there is no room for it."""
    results = PacketQueue()
    results.put(bytes(2 * PACKET_BYTES))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            results.get(timeout=5)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# -- torch's own loop over them -----------------------------------------------------------------------------


class Told(Dataset[Any]):
    """Samples that tell who prepared them, and what was drawn there."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        info = get_worker_info()
        assert info is not None
        told = (index, info.id, info.num_workers, info.seed % 1000, int(torch.randint(1000, ())))
        return torch.tensor(told)


class Parts(IterableDataset[Any]):
    """Gives each worker's part; they end at different times."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        return iter([torch.tensor([info.id, number]) for number in range(3 + 4 * info.id)])


def begin_worker(worker: int) -> None:
    torch.manual_seed(1000 + worker)


WAYS: dict[str, Callable[[], dict[str, Any]]] = {
    "map-style": lambda: {"dataset": Told()},
    "iterable": lambda: {"dataset": Parts()},
    "with a function that begins workers": lambda: {"dataset": Told(), "worker_init_fn": begin_worker},
    "without batches": lambda: {"dataset": Told(), "batch_size": None},
    "with a timeout": lambda: {"dataset": Told(), "timeout": 30},
}


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_torch_gives_the_same_over_them(way: str, persistent: bool) -> None:
    """Batches, their order, which worker prepared them, its seed and what it drew, in two epochs."""
    _compare(way, "fork", persistent=persistent)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("way", ["map-style", "iterable"])
def test_torch_gives_the_same_over_them_by_every_start_method(way: str, method: str) -> None:
    """Ends of the queues travel to workers that are not forked."""
    _compare(way, method, persistent=True)


def _compare(way: str, method: str, *, persistent: bool) -> None:

    def loader() -> DataLoader[Any]:
        options = {"batch_size": 4, "num_workers": 2, **WAYS[way]()}
        return DataLoader(
            **options, persistent_workers=persistent, multiprocessing_context=method,
            generator=torch.Generator().manual_seed(5),
        )  # fmt: skip

    own, ours = loader(), over_packets(loader())
    for _ in range(2):
        assert same(list(ours), list(own))


@pytest.mark.slow
def test_more_is_ordered_ahead_than_the_sockets_hold() -> None:
    """Neither side waits for the other: the loading thread keeps what there is no room for."""
    batches = DataLoader(Numbers(6000), 1, num_workers=1, prefetch_factor=3000)
    given: list[Any] = []
    thread = threading.Thread(target=lambda: given.extend(over_packets(batches)), daemon=True)
    thread.start()
    thread.join(60)
    assert [int(batch) for batch in given] == list(range(6000))


def test_nothing_is_left_of_an_iterator(tmp_path: Path) -> None:
    """No descriptor, whether it came to its end or not; and its end does not wait for workers that would still send."""
    loader = over_packets(DataLoader(Numbers(200), 1, num_workers=2, prefetch_factor=10))
    vars(loader)[_CONTEXT] = None

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    with Stand(loader) as stand:
        within = descriptors()
        assert len(stand.epoch(0)) == 200
        batches = stand.give(1)
        next(batches)
        assert is_over_packets(stand)
        began = time.monotonic()
        batches.close()  # type: ignore[attr-defined]
        assert time.monotonic() - began < 4.0
        del batches
        assert descriptors() == within
    assert descriptors() == before


# -- a stream over them -------------------------------------------------------------------------------------


class Large(Dataset[Any]):
    """Samples of 8 MB."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1 << 21,), float(index))


@pytest.mark.slow
def test_a_batch_without_a_slot_comes_through_them_whatever_its_size() -> None:
    """Before the arena has its geometry, and where no slot comes free."""
    with Stand(DataLoader(Large(), 2, num_workers=1), fit=False) as stand:
        batches = stand.give(0)
        first = next(batches)
        assert is_over_packets(stand)
        assert same([first, *batches], list(DataLoader(Large(), 2)))


class _OwnQueues(multiprocessing.context.ForkContext):
    """A context that counts its queues."""

    made = 0

    def Queue(self, maxsize: int = 0) -> Any:  # noqa: N802
        _OwnQueues.made += 1
        return super().Queue(maxsize)


def test_a_loader_whose_context_makes_queues_keeps_them_and_status_says_why() -> None:
    """They are the user's choice."""
    loader = DataLoader(Numbers(32), 4, num_workers=1, multiprocessing_context=_OwnQueues())
    with tsnb.serve(loader, name="own"):
        assert len(list(tsnb.attach("c", stream="own"))) == 8
        assert _OwnQueues.made >= 2
        (said,) = [line for line in footnotes(tsnb.streams.status("own")) if "queues" in line]
        assert said == (
            "workers use Python's own queues: the multiprocessing_context, a _OwnQueues, makes the queues"
        )


def test_a_loader_of_another_kind_keeps_its_queues_and_status_says_why() -> None:
    """It may do anything with its workers; without any there is nothing to say."""

    class Mine(DataLoader[Any]):
        def __iter__(self) -> Any:
            return super().__iter__()

    for workers in (1, 0):
        with tsnb.serve(Mine(Numbers(32), 4, num_workers=workers), name="mine"):
            said = tsnb.streams.status("mine").ordinary
        why = "workers use Python's own queues: a Mine is iterated in its own way"
        assert said == (why if workers else "")


def test_an_ordinary_loader_has_nothing_to_say() -> None:
    """Its workers use the faster queues."""
    with tsnb.serve(DataLoader(Numbers(32), 4, num_workers=1), name="plain"):
        reading = tsnb.streams.status("plain")
        assert reading.ordinary == "" and not [line for line in footnotes(reading) if "queues" in line]
