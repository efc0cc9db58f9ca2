"""Copying batches to a device ahead: when, in which order, and what is kept until a copy is over."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tsnb.attaching import attach
from tsnb.device_sharing.driver import Driver, PinnedSlots
from tsnb.errors import GroupBroken, LoaderFailed
from tsnb.options import StreamOptions
from tsnb.serving import serve_here
from tsnb.stream.consumer.batches.device import Prefetch, uploads_for
from tsnb.stream.consumer.batches.unpacking import Delivered
from tsnb.stream.consumer.talking import line
from tsnb.stream.memory.arena import Arena
from tsnb.stream.protocol.layout import Layout

LAYOUT = Layout("a", (), has_values=False)  # type: ignore[arg-type]


class FakeUploads:
    """Copies are under way from `begin` until `give`, which is noted."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.given: list[int] = []
        self.closed = 0

    def begin(self, delivered: Delivered) -> Any:
        self.begun.append(int(delivered.leaves[0][0, 0]))
        delivered.leaves = [leaf.clone() for leaf in delivered.leaves]
        delivered.shared = False
        return self.begun[-1]

    def give(self, delivered: Delivered, ticket: Any) -> None:
        assert ticket == int(delivered.leaves[0][0, 0])
        self.given.append(ticket)

    def close(self) -> None:
        self.closed += 1


def batches(*numbers: int, end: BaseException | None = None) -> deque[Any]:
    return deque([*numbers, end or StopIteration()])


def taking(source: deque[Any]) -> Any:
    def take() -> Delivered:
        found = source.popleft()
        if isinstance(found, BaseException):
            raise found
        return Delivered(LAYOUT, [torch.full((1, 1), float(found))], 1, shared=True)

    return take


def number(delivered: Delivered) -> int:
    return int(delivered.leaves[0][0, 0])


def test_as_many_as_asked_for_are_copied_ahead_in_order() -> None:
    """While a batch is worked on, the next two are under way already."""
    uploads, source = FakeUploads(), batches(0, 1, 2, 3, 4)
    ahead = Prefetch(2, uploads, lambda: True)
    assert number(ahead.next(taking(source))) == 0
    assert (uploads.begun, uploads.given) == ([0, 1, 2], [0])
    assert [number(ahead.next(taking(source))) for _ in range(4)] == [1, 2, 3, 4]
    with pytest.raises(StopIteration):
        ahead.next(taking(source))


def test_a_batch_is_not_held_back_for_one_that_has_not_come() -> None:
    """Where the loader is the limit nothing is copied ahead, and nothing is later than without."""
    uploads, source = FakeUploads(), batches(0, 1, 2)
    ahead = Prefetch(2, uploads, lambda: False)
    assert [number(ahead.next(taking(source))) for _ in range(2)] == [0, 1]
    assert uploads.begun == [0, 1]


def test_what_went_wrong_comes_after_what_came_before_it() -> None:
    """A loader's error at batch 2 is raised when 0 and 1 were given, once and again."""
    source = batches(0, 1, end=LoaderFailed("The loader raised", ""))
    ahead = Prefetch(4, FakeUploads(), lambda: True)
    assert [number(ahead.next(taking(source))) for _ in range(2)] == [0, 1]
    for _ in range(2):
        with pytest.raises(LoaderFailed, match="The loader raised"):
            ahead.next(taking(source))


@pytest.mark.parametrize("at_once", [True, False])
def test_a_rank_that_died_ends_the_others_before_what_was_copied_ahead(at_once: bool) -> None:
    """The next step's collective would wait for it; where it left in order, all that it had is given first."""
    error = GroupBroken("rank 1 has gone")
    error.at_once = at_once
    source = batches(0, 1, 2, end=error)
    uploads = FakeUploads()
    ahead = Prefetch(1, uploads, lambda: True)
    with pytest.raises(GroupBroken):
        deque((ahead.next(taking(source)) for _ in range(9)), maxlen=0)
    assert uploads.given == ([0, 1] if at_once else [0, 1, 2])


@pytest.fixture
def fake_uploads(monkeypatch: pytest.MonkeyPatch) -> list[FakeUploads]:
    """Let every device be one that is copied to, by a fake."""
    made: list[FakeUploads] = []

    def make(device: torch.device, pin: Any) -> FakeUploads:
        made.append(FakeUploads())
        return made[-1]

    monkeypatch.setattr(line, "uploads_for", make)
    return made


def loader() -> Any:
    return DataLoader([torch.full((4,), float(i)) for i in range(64)], batch_size=4)  # type: ignore[arg-type]


def test_batches_for_a_gpu_are_copied_ahead_by_default() -> None:
    """Unless another number is asked for, or the copy is shared; a change of it is another connection."""
    with serve_here(loader(), StreamOptions(seed=1), name="s"):
        asked: list[dict[str, Any]] = [
            {}, {"device": "cpu"}, {"device": "cuda:0"}, {"device": torch.device("cuda", 0), "prefetch_to_device": 0},
            {"device": "cuda:0", "prefetch_to_device": 3},
        ]  # fmt: skip
        made = [attach("c", **options) for options in asked]
        assert [consumer._inner.options.prefetch_to_device for consumer in made] == [0, 0, 2, 0, 3]
        assert made[0] is made[1] and made[1] is not made[2] and made[2] is not made[3]
        assert made[3] is not made[4], "locked memory is for copies of our own only"
        sharing = attach("shared", device="cuda:0", share_on_device=True)
        assert sharing._inner.options.prefetch_to_device == 0


@pytest.mark.parametrize("options", [{}, {"batch_size": 6}, {"batch_size": 6, "drop_last": True}])
def test_a_loop_gets_the_same_with_prefetch_as_without(
    options: dict[str, Any], fake_uploads: list[FakeUploads]
) -> None:
    """Once, in order; the place that is saved is that of what was given, not of what was copied ahead."""
    with serve_here(loader(), StreamOptions(seed=1), name="s"):
        plain = [batch[:, 0].tolist() for batch in attach("plain", **options)]
        consumer = attach("ahead", device="cpu", prefetch_to_device=2, **options)
        loop = iter(consumer)
        first = [next(loop)[:, 0].tolist() for _ in range(3)]
        state = consumer.state_dict()
        assert first + [batch[:, 0].tolist() for batch in loop] == plain
        assert len(fake_uploads) == 1 and len(fake_uploads[0].given) == len(plain)
        consumer.load_state_dict(state)
        assert [batch[:, 0].tolist() for batch in consumer] == plain[3:]


def test_a_loop_that_is_left_waits_for_its_copies_and_goes(fake_uploads: list[FakeUploads]) -> None:
    """By `break`: with the last reference, not at some garbage collection."""
    with serve_here(loader(), name="s"):
        gc.disable()
        try:
            loop = iter(attach("c", device="cpu", prefetch_to_device=2))
            next(loop)
            gone = weakref.ref(loop)
            del loop
            assert gone() is None
            assert fake_uploads[0].closed == 1
        finally:
            gc.enable()


def test_on_the_cpu_it_changes_nothing() -> None:
    """Batches stay where they are, in shared memory."""
    with serve_here(loader(), name="s"):
        consumer = attach("c", device="cpu", prefetch_to_device=3)
        assert sum(len(batch) for batch in consumer) == 64
        assert consumer.stats().copied == 0
        for wrong in (-1, 1.5, True):
            with pytest.raises(ValueError, match=r"prefetch_to_device=.*0 or more"):
                attach("d", prefetch_to_device=wrong)  # type: ignore[arg-type]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_torch_itself_says_that_there_is_none() -> None:
    """Not some class of its own that lacks a base."""
    assert uploads_for(torch.device("cuda:0"), lambda _: None) is None


class FakeLibrary:
    """The driver's functions for it: what is locked twice, or unlocked without, fails."""

    def __init__(self, code: int = 0) -> None:
        self.code, self.calls = code, 0
        self.locked: dict[int, int] = {}

    def cuMemHostRegister_v2(self, address: Any, size: Any, flags: Any) -> int:  # noqa: N802
        assert address.value not in self.locked and size.value % 4096 == 0
        self.calls += 1
        if not self.code:
            self.locked[address.value] = size.value
        return self.code

    def cuMemHostUnregister(self, address: Any) -> int:  # noqa: N802
        del self.locked[address.value]
        return 0

    def cuGetErrorString(self, code: Any, text: Any) -> int:  # noqa: N802
        return 0

    def cuCtxGetCurrent(self, context: Any) -> int:  # noqa: N802
        context._obj.value = 1
        return 0


def test_slots_are_locked_once_and_as_far_as_they_are_used() -> None:
    """A longer batch locks more of its slot; where the system refuses, it is asked no more."""
    arena = Arena.create()
    try:
        arena.fit(3, 40_960)
        library = FakeLibrary()
        pinned = PinnedSlots(arena, Driver(library))
        assert pinned.pin(1, 5000) and pinned.pin(1, 8000)
        assert library.locked == {arena.address_of(1): 8192}
        assert pinned.pin(1, 10_000) and pinned.pin(2, 40_960)
        assert library.locked == {arena.address_of(1): 12_288, arena.address_of(2): 40_960}
        calls = library.calls
        assert pinned.pin(1, 10_000) and library.calls == calls
        arena.punch([1])  # its memory is another one now: what was locked would be copied from
        assert pinned.pin(1, 8000) and library.calls > calls
        assert library.locked == {arena.address_of(1): 8192, arena.address_of(2): 40_960}
        pinned.close()
        assert not library.locked
        refusing = FakeLibrary(code=2)
        pinned = PinnedSlots(arena, Driver(refusing))
        assert not pinned.pin(0, 10) and not pinned.pin(1, 10)
        assert refusing.calls == 1
    finally:
        arena.close()
