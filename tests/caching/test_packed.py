"""Samples in fewer bytes: only where that pays, never another sample, and twice as many in the same memory."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
import torch

from tests.caching.test_caching import SAMPLES, Kept, Pictures, equal, jitter, plain, work
from tsnb.caching import encoding
from tsnb.caching.encoding import encode, pack, unpack, worth
from tsnb.caching.memory import GIVEN, WRITTEN

LIMIT = 1 << 17


class Smooth(Pictures):
    """Samples of 6 KB, of which two of three become smaller by half, and the third one not at all."""

    def raw(self, index: int) -> torch.Tensor:
        self.prepared[index] += 1
        work(8)
        draws = np.random.default_rng(index)
        if index % 3:
            return torch.from_numpy(draws.integers(0, 16, (3, 16, 32)).astype(np.float32))
        return (
            torch.from_numpy(draws.integers(0, 256, (3, 16, 128)).astype(np.uint8))
            .view(torch.float32)
            .nan_to_num(0.0)
        )


def test_a_record_comes_back_and_bytes_that_are_none_are_told() -> None:
    """Writable and of nobody else; zeros, as of memory that was given back, another length, half of one."""
    record = encode((torch.arange(9000) % 7, "label"))
    packed = pack(record)
    made = unpack(np.frombuffer(packed, np.uint8), len(record))
    assert made is not None
    assert made.tobytes() == record
    made[0] = 1
    for bad in (bytes(len(packed)), packed[: len(packed) // 2], pack(record + b"x")):
        assert unpack(bad, len(record)) is None


def test_only_what_becomes_smaller_and_is_dear_enough_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise is told from a piece of it: packing all of it would cost what preparing it does."""
    smooth = encode(torch.arange(100_000) % 100)
    found = worth(smooth, 1.0)
    assert found is not None
    assert found.size == len(zlib.compress(smooth, 1)) < len(smooth) / 2
    assert 0 <= found.take_s < 1
    assert worth(smooth, 1e-3) is None, "packing it would take as long"
    assert worth(encode(torch.zeros(100)), 1.0) is None, "too small"
    packed: list[int] = []

    def noting(record: bytes) -> bytes:
        packed.append(len(record))
        return pack(record)

    monkeypatch.setattr(encoding, "pack", noting)
    assert worth(encode(torch.randint(256, (400_000,), dtype=torch.uint8)), 1.0) is None
    assert packed == [encoding.PIECE_BYTES]


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize("transform", [None, jitter])
def test_a_stream_of_packed_samples_is_the_same_and_more_of_them_fit(transform: Any) -> None:
    """Whole samples, and what goes into `transform`; also when memory is given back in the middle."""
    wanted = plain(Smooth(transform), 6)
    pictures = Smooth(transform)
    with Kept(pictures, LIMIT) as kept:
        memory = kept.keeper._memory
        found = kept.epochs(0, 2)
        counts = kept.keeper.counts()
        assert counts.state == "serving"
        written = memory.states == WRITTEN
        assert counts.packed == (written & memory.packed).sum() > 0
        assert not memory.packed[::3].any(), "these become no smaller"
        assert memory.sizes[written].sum() > memory.room_bytes, "more than fits as it is"
        assert counts.kept_bytes <= counts.limit_bytes
        before = pictures.prepared.clone()
        found += kept.epochs(2, 4)
        assert (pictures.prepared - before).sum() == 2 * (SAMPLES - counts.kept)
        assert memory.give_back(memory.used_bytes // 2) > 0
        found += kept.epochs(4, 6)
        less = kept.keeper.counts()
        assert 0 < less.kept < counts.kept
        assert less.hits > 2 * counts.kept
    assert equal(found, wanted)


@pytest.mark.system
def test_packed_bytes_that_are_torn_are_a_miss() -> None:
    """As memory is that was given back while a worker wrote: found at the end of the proving epoch, or when taken."""
    wanted = plain(Smooth(), 4)
    with Kept(Smooth(), LIMIT) as kept:
        memory = kept.keeper._memory
        found = kept.epochs(0, 2)
        torn = int(np.flatnonzero((memory.states == WRITTEN) & memory.packed)[0])
        memory._bytes[memory._start + memory.offsets[torn] :][:100] = 0
        assert memory.read(torn) is None
        found += kept.epochs(2, 3)
        kept.keeper._forget_torn()
        assert memory.states[torn] == GIVEN
        found += kept.epochs(3, 4)
    assert equal(found, wanted)
