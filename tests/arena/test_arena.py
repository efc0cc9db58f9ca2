"""The shared memory itself: geometry, free slots, leases, scratch."""

from __future__ import annotations

import gc
import mmap
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tsnb.errors import ArenaFull
from tsnb.native.memfd import SWITCH
from tsnb.stream.memory import slots
from tsnb.stream.memory.arena import HEADER_BYTES, Arena, header_of
from tsnb.stream.memory.leases import lease
from tsnb.stream.memory.scratch import ScratchPool
from tsnb.stream.memory.slots import FreeSlots, SlotPipe

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["", "1"], ids=["memfd", "posix"])
def arena(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Arena]:
    """An arena of each kind."""
    monkeypatch.setenv(SWITCH, request.param)
    made = Arena.create()
    yield made
    made.close()


def test_an_arena_has_no_name_and_costs_only_what_is_touched(arena: Arena) -> None:
    """A hundred roomy slots are address space until a batch is written."""
    arena.fit(100, 1 << 24)
    assert arena.touched_bytes() < 1 << 20
    arena.warm(3, 1 << 20)
    assert 1 << 20 <= arena.touched_bytes() < 1 << 22


CRASHES = """
import ctypes, os, resource, sys
from tsnb.stream.memory.arena import Arena
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
os.chdir(sys.argv[2])
arena = Arena(int(sys.argv[1]))
assert arena.attach()
ctypes.string_at(0)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere nothing can be left out of a dump"
)
def test_a_core_dump_touches_nothing(arena: Arena, tmp_path: Path) -> None:
    """A process that has the arena mapped crashes and is dumped: what was address space before still is."""
    arena.fit(64, 1 << 20)
    arena.warm(3, 1 << 20)
    before = arena.touched_bytes()
    command = [sys.executable, "-c", CRASHES, str(arena.fd), str(tmp_path)]
    status = subprocess.Popen(command, pass_fds=(arena.fd,), env={**os.environ, "PYTHONPATH": str(ROOT)})
    _, ended = os.waitpid(status.pid, 0)
    status.returncode = os.waitstatus_to_exitcode(ended)
    assert os.WTERMSIG(ended) == signal.SIGSEGV
    if not os.WCOREDUMP(ended):
        pytest.skip("this system dumps no cores")
    assert arena.touched_bytes() == before


@pytest.mark.slow
@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere nothing can be left out of a dump"
)
def test_every_process_leaves_the_arena_out_of_its_dumps(arena: Arena) -> None:
    """The one that made it, a forked worker, and a spawned one: the kernel's flag `dd` on each mapping of it."""
    arena.fit(2, 4096)
    with multiprocessing.get_context("fork").Pool(1) as forked:
        found = [_dumped(), forked.apply(_dumped)]
    assert found == [[], []]
    spawned = multiprocessing.get_context("spawn")
    results = spawned.SimpleQueue()
    worker = spawned.Process(target=_tell_dumped, args=(arena, results))
    worker.start()
    assert results.get() == []
    worker.join(120)


def _tell_dumped(arena: Arena, results: Any) -> None:
    assert arena.attach()
    results.put(_dumped())


def _dumped() -> list[str]:
    """Return the mappings of arenas that a core dump of this process would read."""
    found, name = [], ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            name = line
        elif line.startswith("VmFlags:") and re.search(r"/(memfd:|dev/shm/)tsnb", name) and " dd" not in line:
            found.append(name)
    return found


def test_who_maps_before_the_geometry_is_known_finds_it_later(arena: Arena) -> None:
    """Workers are started before the first batch has been seen."""
    other = Arena(os.dup(arena.fd))
    assert not other.attach()
    arena.fit(4, 5000)
    assert other.attach()
    assert (other.slots, other.slot_bytes) == (4, 2 * mmap.PAGESIZE), "rounded up to whole pages"
    arena.buffer[arena.offset_of(2)] = 7
    assert other.buffer[HEADER_BYTES + 2 * other.slot_bytes] == 7
    other.close()


def test_half_a_header_is_none(arena: Arena) -> None:
    """Another process may see what is written in any order, or look in between: it goes on without the arena."""
    other = Arena(os.dup(arena.fd))
    whole = header_of(2, 4096)
    os.ftruncate(arena.fd, HEADER_BYTES + 2 * 4096)
    with mmap.mmap(arena.fd, HEADER_BYTES) as header:
        for written in (whole[:-1] + b"\0", whole[:8] + bytes(16), bytes(8) + whole[8:]):
            header[: len(whole)] = written.ljust(len(whole), b"\0")
            assert not other.attach()
        header[: len(whole)] = whole
    assert other.attach()
    other.close()


def test_a_descriptor_of_something_else_is_no_arena(tmp_path: Path) -> None:
    """A pipe, an empty file, a large one, a number that is not open."""
    read, write = os.pipe()
    empty = os.open(tmp_path / "empty", os.O_RDWR | os.O_CREAT)
    large = os.open(tmp_path / "large", os.O_RDWR | os.O_CREAT)
    os.ftruncate(large, 1 << 20)
    for fd in (read, empty, large):
        assert not Arena(fd).attach()
    for fd in (read, write, empty, large):
        os.close(fd)
    assert not Arena(read).attach()


def test_an_arena_that_cannot_be_had_is_a_clear_error(arena: Arena) -> None:
    """The message names the options that make it smaller."""
    with pytest.raises(ArenaFull, match="window="):
        arena.fit(1 << 20, 1 << 50)


def _write_from_a_spawned_process(arena: Arena, pipe: SlotPipe) -> None:
    assert arena.attach()
    slot = pipe.take(1.0)
    assert slot is not None
    arena.buffer[arena.offset_of(slot)] = 42 + slot


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_arena_and_the_pipe_travel_to_a_worker(arena: Arena, method: str) -> None:
    """By inheritance or by multiprocessing's pickling."""
    arena.fit(2, 4096)
    free = FreeSlots()
    free.open(2)
    worker = multiprocessing.get_context(method).Process(  # type: ignore[attr-defined]  # typeshed: BaseContext
        target=_write_from_a_spawned_process, args=(arena, free.pipe)
    )
    worker.start()
    worker.join(120)
    assert worker.exitcode == 0
    assert arena.buffer[arena.offset_of(0)] == 42
    free.close()


def test_only_as_many_slots_as_asked_for_wait_in_the_pipe_and_the_warm_ones_go_round() -> None:
    """The last freed is the next taken; the rest of the arena stays untouched."""
    free = FreeSlots(2)
    free.open(100)
    used = set()
    for _ in range(50):
        slot = free.pipe.take(0.1)
        assert slot is not None
        used.add(slot)
        free.delivered(slot)
        free.free(slot)
    assert len(used) <= 3
    free.close()


def test_slots_in_the_hands_of_dead_workers_are_reclaimed() -> None:
    """None is lost when an epoch is abandoned."""
    free = FreeSlots(3)
    free.open(5)
    assert free.pipe.take(0.1) is not None
    free.reclaim()
    taken = [free.take() for _ in range(6)]
    assert sorted(t for t in taken if t is not None) == [0, 1, 2, 3, 4]
    assert taken[5] is None
    assert free.pipe.take(0.01) is None
    free.close()


def test_memory_of_free_slots_is_given_back_and_taken_again(arena: Arena) -> None:
    """Neighbours keep theirs; another process that had the slot warm faults it in at once again."""
    arena.fit(8, 1 << 20)
    other = Arena(os.dup(arena.fd))
    assert other.attach()
    for slot in range(8):
        arena.warm(slot, 1 << 20)
        other.warm(slot, 1 << 20)
        arena.buffer[arena.offset_of(slot)] = arena.buffer[arena.offset_of(slot + 1) - 1] = slot + 1
    full = arena.touched_bytes()
    arena.punch([5, 2, 3])
    assert arena.touched_bytes() == full - (3 << 20)
    ends = [(arena.offset_of(slot), arena.offset_of(slot + 1) - 1) for slot in range(8)]
    kept = [slot + 1 if slot not in (2, 3, 5) else 0 for slot in range(8)]
    assert [(other.buffer[first], other.buffer[last]) for first, last in ends] == [(n, n) for n in kept]
    before = arena.touched_bytes()
    other.warm(2, 1 << 20)
    other.warm(2, 1 << 19)
    assert arena.touched_bytes() >= before + (1 << 20) - 2 * mmap.PAGESIZE, "in one call, not page by page"
    arena.punch([])
    other.close()


def test_cold_is_what_lay_free_for_long_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """At random: slots in use, and those taken again and again, are never cold; after a rest all but a few are."""
    monkeypatch.setattr(slots, "COLD_LOOKS", 3)
    draws = random.Random(7)
    for _ in range(30):
        free = FreeSlots(2)
        free.open(60)
        used: list[int] = []
        last_used = dict.fromkeys(range(60), -100)
        for look in range(60):
            wide = look % 20 < 4
            for _ in range(draws.randrange(40)):
                if len(used) < (draws.randrange(50) if wide else 4):
                    taken = free.take()
                    assert taken is not None
                    used.append(taken)
                    last_used[taken] = look
                elif used:
                    freed = used.pop(draws.randrange(len(used)))
                    free.free(freed)
                    last_used[freed] = look
            cold = free.cold(draws.randrange(1, 9), keep=2)
            assert not set(cold) & set(used)
            assert all(look - last_used[slot] >= 2 for slot in cold), "through three looks"
            if draws.random() < 0.5 and (taken := free.take()) is not None:  # while they are being punched
                used.append(taken)
                last_used[taken] = look
            free.cooled(cold)
            assert sorted([*free._stack, *free._issued, *used]) == list(range(60)), "none is lost or doubled"
            assert free.resting == len(free.free_ones())
        for slot in used:
            free.free(slot)
        for _ in range(30):
            free.cooled(free.cold(8, keep=2))
        assert free.resting <= 2
        assert free.free_ones() <= set(free._stack[-2:])
        free.close()


class Released:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def test_a_lease_ends_with_the_last_reference_of_any_kind() -> None:
    """Tensor, view, numpy array, DLPack capsule, autograd: each keeps the batch."""
    released = Released()
    memory = mmap.mmap(-1, 8192)
    buffer = lease(memory, 4096, 4096, released)
    tensor = torch.frombuffer(buffer, dtype=torch.float32, count=64).view(8, 8)
    del buffer
    holders = [tensor[2:4], tensor.numpy()[1:], tensor[1].__dlpack__()]
    weight = torch.ones(8, requires_grad=True)
    loss = (tensor * weight).sum()
    del tensor
    while holders:
        gc.collect()
        assert released.times == 0
        holders.pop()
    assert released.times == 0, "autograd has saved it"
    torch.autograd.backward(loss)
    del loss
    gc.collect()
    assert released.times == 1
    assert weight.grad is not None


def test_scratch_goes_round_and_is_never_given_twice() -> None:
    """Steady use makes no new blocks; a block that is held is not handed out."""
    pool = ScratchPool()
    for _ in range(20):
        block, size = pool.take(5000)
        assert size >= 5000
        del block
    assert pool.made == 1
    held = [np.frombuffer(pool.take(5000)[0], np.uint8) for _ in range(3)]
    for value, array in enumerate(held):
        array[:] = value
    assert [int(a[0]) for a in held] == [0, 1, 2]
    assert pool.made == 3


def test_scratch_is_private_to_a_process_and_its_forked_child_keeps_what_it_saw() -> None:
    """The parent reuses a block; a child that was forked meanwhile still reads its batch."""
    pool = ScratchPool()
    block, _ = pool.take(4096)
    tensor = torch.frombuffer(block, dtype=torch.uint8)
    tensor.fill_(1)
    read, write = os.pipe()
    go, come = os.pipe()
    child = os.fork()
    if not child:
        os.read(go, 1)
        os.write(write, bytes(tensor[:1].tolist()))
        os._exit(0)
    tensor.fill_(2)
    os.write(come, b"!")
    assert os.read(read, 1) == b"\x01"
    os.waitpid(child, 0)
    for fd in (read, write, go, come):
        os.close(fd)
