"""The memory that keeps samples: one for all of a loader's workers, without a name (`memory.nameless`).

    +--------+----------+-------+-------+---------------------------+
    | header | counters | lists | notes | samples, the densest first |
    +--------+----------+-------+-------+---------------------------+

The lists have, for each sample of the dataset, its digest, its cost, its size, what it is when it is packed
(`packed`), whether it is, its place, its state, and the machine whose memory it lies in if that is another one
(`lent`, unpacked there); the header has the table of these machines. No
allocation and no lock is needed: the producer gives every chosen sample its place between two epochs, and a
worker writes a sample there. Two workers that write the same one write the same bytes. A state is set last, so
whatever is killed leaves a sample that is either kept or is not.

Readers copy, then look again: memory that was given back meanwhile reads as zeros, and its samples have another state
by then. A memory outlives the process that served from it where another one holds its descriptor (`adopt`).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import threading
import zlib
from collections.abc import Collection
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np

from tsnb.caching.choice import ALIGN_BYTES, Chosen
from tsnb.caching.encoding import Packed, pack, unpack
from tsnb.config import explained
from tsnb.errors import ArenaFull
from tsnb.native.forks import free_in_child
from tsnb.stream.memory.nameless import give_back, leave_out_of_dumps, make_nameless

__all__ = [
    "ASSIGNED",
    "AWAY",
    "CHOSEN",
    "CUT",
    "GIVEN",
    "LEARNING",
    "MOST_LENDERS",
    "OFF",
    "PROVING",
    "SEEN",
    "SERVING",
    "UNSEEN",
    "WHOLE",
    "WRITTEN",
    "SampleMemory",
    "adopt",
    "adopted",
]

LEARNING, PROVING, SERVING, OFF = range(4)
"""Phases. Learning: what each sample costs; proving: each is prepared a second time, and chosen ones are kept; serving:
kept ones are taken; off: samples cannot be kept (`SampleMemory.why`)."""
WHOLE, CUT = range(2)
"""Forms: a sample as the dataset returns it; its parts before anything is drawn."""
UNSEEN, SEEN, CHOSEN, WRITTEN, GIVEN, ASSIGNED, AWAY = range(7)
"""States of a sample: nothing known; cost and digest are; it has a place; it lies there; its memory was given back; it
has a place on another machine; it lies there."""

_HEADER = struct.Struct("<8sQQ16sI")
"""Magic, samples, bytes in all, what dataset it is, and a checksum of these."""
_MAGIC = b"tsnb-s3\0"
_PHASE, _FORM, _PASSES, _GAVE = 256, 257, 258, 259
_USED = slice(264, 272)
_WHY = slice(512, 1536)
_TOKEN = slice(2048, 2080)
_LENDERS_AT = 2080
_LENDER = np.dtype([("silent_until_s", "<f8"), ("host", "S45"), ("lends", "u1"), ("port", "<u2")])
MOST_LENDERS = 36
"""Machines whose memory is used: so many have room in the header."""
_COUNTERS_AT = 4096
WORKERS = 256
"""Rows of counters: further workers share the last one."""
COUNTERS = ("hits", "misses", "saved_us", "lent_hits")

_fence = free_in_child(threading.Lock())
"""Taken and let go of between a sample's bytes and its state: others may see plain writes in another order."""

_adopted: list[int] = []


def adopt(fd: int) -> None:
    """Let the next stream of this process keep its samples in a memory that another process holds.

    Called once, in a process that serves what another one may serve again after it.

    Args:
        fd: The descriptor; taken over.
    """
    _adopted.append(fd)


def adopted() -> int | None:
    """Return the descriptor that was adopted, once."""
    return _adopted.pop() if _adopted else None


class SampleMemory:
    """One process's hold on the memory.

    Attributes:
        fd: The shared memory; travels by fork, or by `multiprocessing` pickling while a worker is spawned.
        samples: How many samples the dataset has; 0 before `fit`.
        room_bytes: Memory for samples, without the lists.
        lenders: The machines that lend memory, a row each: `host`, `port`, whether it `lends` (1), and until when on
            the monotonic clock it is not asked (`silent_until_s`), because it did not answer.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.samples = 0
        self.room_bytes = 0
        self._map: mmap.mmap | None = None

    @classmethod
    def create(cls) -> SampleMemory:
        """Make an empty one.

        Raises:
            TsnbError: This process may not open more descriptors.
        """
        with explained("make shared memory"):
            return cls(make_nameless())

    def fit(self, samples: int, limit_bytes: int, identity: bytes) -> bool:
        """Give it its geometry, before workers are started; return whether it has samples of a predecessor.

        Args:
            samples: In the dataset.
            limit_bytes: What it may use, lists included.
            identity: The dataset's fingerprint, 16 bytes; another one begins anew.

        Raises:
            ArenaFull: There is not so much memory.
        """
        lists = _lists_bytes(samples)
        asked_bytes = limit_bytes
        limit_bytes -= limit_bytes % mmap.PAGESIZE  # a page that is begun is in use as a whole
        if limit_bytes - lists < mmap.PAGESIZE:
            raise ArenaFull(
                f"cache={asked_bytes:,} bytes is too small: the bookkeeping for {samples:,} samples "
                f"alone takes {lists:,}. Pass {_human(4 * lists)} or more, or leave cache= out."
            )
        header = _header(samples, limit_bytes, identity)
        if self._header_now() == header:
            self._attach(samples, limit_bytes)
            return True
        try:
            os.ftruncate(self.fd, 0)
            os.ftruncate(self.fd, limit_bytes)
        except (OSError, OverflowError) as error:
            raise ArenaFull(
                f"A cache of {limit_bytes:,} bytes cannot be created ({error}). Serve with a smaller "
                "cache=, or raise `ulimit -f`."
            ) from None
        self._attach(samples, limit_bytes)
        self._bytes[: len(header)] = np.frombuffer(header, np.uint8)
        return False

    def _header_now(self) -> bytes:
        if os.fstat(self.fd).st_size < _COUNTERS_AT:
            return b""
        with contextlib.closing(mmap.mmap(self.fd, mmap.PAGESIZE)) as page:
            return page[: _HEADER.size]

    def _attach(self, samples: int, limit_bytes: int) -> None:
        try:
            self._map = mmap.mmap(self.fd, limit_bytes)
        except (OSError, ValueError, OverflowError) as error:
            raise ArenaFull(
                f"This process cannot map a cache of {limit_bytes:,} bytes ({error}). Raise its limits "
                "(`ulimit -v`), or serve with a smaller cache=."
            ) from None
        leave_out_of_dumps(self._map)
        self.samples = samples
        self._limit_bytes = limit_bytes
        self._start = _lists_bytes(samples)
        self.room_bytes = limit_bytes - self._start
        whole = self._bytes = np.frombuffer(self._map, np.uint8)
        self.counters = whole[_COUNTERS_AT : _COUNTERS_AT + 8 * len(COUNTERS) * WORKERS].view(np.uint64)
        self.counters = self.counters.reshape(WORKERS, len(COUNTERS))
        place = _COUNTERS_AT + self.counters.nbytes

        def column(dtype: Any) -> np.ndarray[Any, Any]:
            nonlocal place
            size = samples * np.dtype(dtype).itemsize
            made: np.ndarray[Any, Any] = whole[place : place + size].view(dtype)
            place += -(-size // 64) * 64
            return made

        ends = _LENDERS_AT + MOST_LENDERS * _LENDER.itemsize
        self.lenders: np.ndarray[Any, Any] = whole[_LENDERS_AT:ends].view(_LENDER)
        self.offsets = column(np.int64)
        self.digests = column(np.uint64), column(np.uint64)
        self.cost_s = column(np.float32)
        self.sizes = column(np.uint32)
        self.packed_sizes = column(np.uint32)
        self.unpack_s = column(np.float32)
        self.states = column(np.uint8)
        self.forms = column(np.uint8)
        self.owners = column(np.uint8)
        self.packed = column(np.bool_)

    # -- what all see ------------------------------------------------------------------------------------

    @property
    def phase(self) -> int:
        """One of `LEARNING`, `PROVING`, `SERVING`, `OFF`."""
        return int(self._bytes[_PHASE])

    @phase.setter
    def phase(self, phase: int) -> None:
        self._bytes[_PHASE] = phase

    @property
    def form(self) -> int:
        """`WHOLE` or `CUT`: what of a sample is kept."""
        return int(self._bytes[_FORM])

    @form.setter
    def form(self, form: int) -> None:
        self._bytes[_FORM] = form

    @property
    def gave(self) -> bool:
        """Whether memory was given back while samples were being written."""
        return bool(self._bytes[_GAVE])

    @gave.setter
    def gave(self, gave: bool) -> None:
        self._bytes[_GAVE] = gave

    @property
    def used_bytes(self) -> int:
        """The end of the last chosen sample."""
        return int(self._bytes[_USED].view(np.int64)[0])

    @used_bytes.setter
    def used_bytes(self, used: int) -> None:
        self._bytes[_USED].view(np.int64)[0] = used

    @property
    def why(self) -> str:
        """Why samples are kept in another form than whole, or not at all; "" where neither is so."""
        return bytes(self._bytes[_WHY]).rstrip(b"\0").decode(errors="replace")

    @why.setter
    def why(self, why: str) -> None:
        text = why.encode()[: _WHY.stop - _WHY.start]
        self._bytes[_WHY] = np.frombuffer(text.ljust(_WHY.stop - _WHY.start, b"\0"), np.uint8)

    @property
    def token(self) -> bytes:
        """What the machines that lend memory know this stream by; `shard_wire.TOKEN_BYTES` of them."""
        return bytes(self._bytes[_TOKEN])

    @token.setter
    def token(self, token: bytes) -> None:
        self._bytes[_TOKEN] = np.frombuffer(token, np.uint8)

    # -- samples -----------------------------------------------------------------------------------------

    def learn(
        self, index: int, digest: bytes, cost_s: float, size: int, form: int, packed: Packed | None = None
    ) -> None:
        """Note what was measured of a sample; `packed`: what it is if it may be packed. Called by a worker."""
        first, second = struct.unpack("<QQ", digest)
        known = self.states[index] != UNSEEN and self.forms[index] == form
        self.cost_s[index] = min(cost_s, self.cost_s[index]) if known else cost_s
        self.digests[0][index], self.digests[1][index] = first, second
        self.sizes[index] = size
        self.packed_sizes[index], self.unpack_s[index] = packed or (0, 0.0)
        self.forms[index] = form
        with _fence:
            self.states[index] = SEEN

    def same(self, index: int, digest: bytes) -> bool:
        """Whether a sample had this digest before."""
        first, second = struct.unpack("<QQ", digest)
        return bool(self.digests[0][index] == first and self.digests[1][index] == second)

    def write(self, index: int, record: bytes) -> None:
        """Keep a chosen sample, at its place. Called by a worker."""
        if self.packed[index]:
            record = pack(record)
            if (
                len(record) != self.packed_sizes[index]
            ):  # it was another zlib that learned it: there is no such place
                self.states[index] = GIVEN
                return
        start = self._start + int(self.offsets[index])
        self._bytes[start : start + len(record)] = np.frombuffer(record, np.uint8)
        with _fence:
            if self.states[index] == CHOSEN:
                self.states[index] = WRITTEN

    def read(self, index: int) -> np.ndarray[Any, Any] | None:
        """Return a private copy of a sample's record, uint8; None where it is not kept (any more)."""
        if self.states[index] != WRITTEN or self.forms[index] != self._bytes[_FORM]:
            return None
        size = int(self.sizes[index])
        with _fence:
            start = self._start + int(self.offsets[index])
            taken = int(self.packed_sizes[index]) if self.packed[index] else size
            made: np.ndarray[Any, Any] = self._bytes[start : start + taken].copy()
        if self.states[index] != WRITTEN:
            return None
        return unpack(made, size) if self.packed[index] else made

    def count(self, worker: int, *, hit: bool, saved_s: float = 0.0, lent: bool = False) -> None:
        """Count one sample. Called by a worker, on a row of its own."""
        row = self.counters[min(worker, WORKERS - 1)]
        row[0 if hit else 1] += 1
        if hit:
            row[2] += int(saved_s * 1e6)
        if lent:
            row[3] += 1

    # -- the producer's ----------------------------------------------------------------------------------

    def place(self, chosen: Chosen) -> None:
        """Give samples their places. Called while no worker runs."""
        self.states[(self.states == CHOSEN) | (self.states == WRITTEN)] = SEEN
        self.offsets[chosen.indices] = chosen.offsets
        self.packed[chosen.indices] = chosen.packed
        self.states[chosen.indices] = CHOSEN
        self.used_bytes = chosen.used_bytes

    def assign(
        self,
        indices: np.ndarray[Any, Any],
        owners: np.ndarray[Any, Any],
        offsets: np.ndarray[Any, Any],
    ) -> None:
        """Give samples their places on other machines, by the rows of `lenders`. Called while no worker runs."""
        self.owners[indices] = owners
        self.offsets[indices] = offsets
        self.packed[indices] = False
        self.states[indices] = ASSIGNED

    def withdraw(self, rows: Collection[int]) -> None:
        """Forget what lies on some machines. Called while no worker runs."""
        placed = (self.states == ASSIGNED) | (self.states == AWAY)
        self.states[placed & np.isin(self.owners, list(rows))] = SEEN

    def end_of(self, row: int) -> int:
        """Return the end of the last sample that has its place on a machine, at a cache line."""
        mine = ((self.states == ASSIGNED) | (self.states == AWAY)) & (self.owners == row)
        end = int((self.offsets[mine] + self.sizes[mine]).max(initial=0))
        return -(-end // ALIGN_BYTES) * ALIGN_BYTES

    def away(self) -> np.ndarray[Any, Any]:
        """Return which samples lie on machines that lend memory still, bool [samples]."""
        there: np.ndarray[Any, Any] = (self.states == AWAY) & (self.forms == self.form)
        if there.any():
            there &= self.lenders["lends"][np.minimum(self.owners, MOST_LENDERS - 1)] != 0
        return there

    def give_back(self, size: int) -> int:
        """Give memory back to the system, what saves least first; return how much. Called at any time.

        Args:
            size: Bytes, at least.
        """
        used = self.used_bytes
        if not used or size <= 0:
            return 0
        keep = max(0, used - size)
        end = -(-(self._start + keep) // mmap.PAGESIZE) * mmap.PAGESIZE  # on a page's border
        keep = min(used, end - self._start) if keep else 0
        if self.phase == PROVING:
            self.gave = True
        placed = (self.states == CHOSEN) | (self.states == WRITTEN)
        with _fence:
            ends = self.offsets + np.where(self.packed, self.packed_sizes, self.sizes)
            self.states[placed & (ends > keep)] = GIVEN
            self.used_bytes = keep
        self._punch(self._start + keep, self._start + used)
        return used - keep

    def _punch(self, start: int, end: int) -> None:
        start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        end = min(self._limit_bytes, -(-end // mmap.PAGESIZE) * mmap.PAGESIZE)
        if self._map is not None:
            give_back(self._map, start, end)

    def empty(self) -> None:
        """Give all memory back: it is no longer used, but a child of this process may hold it."""
        if self._map is not None:
            self.phase = OFF
            self._punch(self._start, self._limit_bytes)

    def touched_bytes(self) -> int:
        """Return the memory that it really uses, in all processes together."""
        return os.fstat(self.fd).st_blocks * 512 if self.fd >= 0 else 0

    def close(self) -> None:
        """Let go of the descriptor; the mapping goes with this object."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __getstate__(self) -> Any:
        return DupFd(self.fd), self.samples, self._limit_bytes  # only while multiprocessing spawns a worker

    def __setstate__(self, state: Any) -> None:
        fd, samples, limit_bytes = state
        self.__init__(fd.detach())  # type: ignore[misc]  # one constructor for both ways in
        self._attach(samples, limit_bytes)


def _header(samples: int, limit_bytes: int, identity: bytes) -> bytes:
    fields = struct.pack("<8sQQ16s", _MAGIC, samples, limit_bytes, identity)
    return fields + struct.pack("<I", zlib.crc32(fields))


def _lists_bytes(samples: int) -> int:
    """Return the bytes before the first sample, in whole pages."""
    columns = sum(-(-samples * width // 64) * 64 for width in (8, 8, 8, 4, 4, 4, 4, 1, 1, 1, 1))
    return -(-(_COUNTERS_AT + 8 * len(COUNTERS) * WORKERS + columns) // mmap.PAGESIZE) * mmap.PAGESIZE


def _human(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{-(-size // 2**20):,} MiB"
