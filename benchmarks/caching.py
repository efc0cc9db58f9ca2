"""What a cache of prepared samples saves: which samples are kept, and by whom.

What is isolated: one data set of JPEG photos whose sizes have a real spread (log-normal, sigma 0.8), decoded anew at
each access. Every rule gets the same memory and the same epochs, and is counted in `__getitem__` calls and in seconds
of CPU: what decoding a photo takes, or taking it from the memory, and unpacking it where it is kept packed, each
measured once for each photo, alone. Wall clock would only say how busy this machine is.

- none: every photo is decoded in every epoch;
- LRU: the last ones that were used are kept;
- MinIO (CoorDL): what comes first, until the memory is full; then nothing changes any more;
- MinIO, packed: the same, where every photo is kept packed that becomes smaller so;
- best, unpacked: what saves most a byte, if each photo's cost were known beforehand: no rule that keeps photos as they
  are can do better;
- tsnb: what saves most a byte, packed or not, as a real stream with `cache=` has chosen it (its own `kept`), from its
  own clock.

All but tsnb are computed over the same measured costs and sizes. Then "four private": four runs on four private
MinIO caches of a quarter of the memory each, against one shared cache on one stream.

    python -m benchmarks.caching [--photos 400] [--side 480] [--epochs 6] [--json FILE] [--quick]
    python -m benchmarks.caching --forms [--quick]
    python -m benchmarks.caching --cluster [--quick]

`--forms` measures what samples of several kinds are when they are packed, and what that costs.
`--cluster` measures instead what a sample costs that lies in the memory of another machine (docs/cache.md, "On a
cluster"), against one that is kept here and one that is prepared: the same photos, made 224x224, as uint8 and as
float32. The other machine is a process of this one that has a real shard, and the network is the loopback: so the
figures tell what both sides have to do, not what a network takes beside that.

The figures are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import tsnb
from tsnb.caching.encoding import decode, digest, encode, pack, unpack
from tsnb.caching.lent import ShardLink
from tsnb.caching.memory import WRITTEN
from tsnb.caching.shard import Shard
from tsnb.caching.shard_wire import TOKEN_BYTES

SIGMA = 0.8
MEDIAN_SIDE = 480
SMALL = 64
USUAL = 224
"""Pixels a side of what is fetched from another machine."""
BATCH = 16
TRIALS = 4


@dataclass(frozen=True)
class Row:
    """One rule at one size of memory."""

    rule: str
    """As above; "4 private MinIO" for all four of them together."""
    memory: float
    """Share of what all decoded photos take."""
    kept: int
    """Photos in memory after the last epoch."""
    misses: float
    """Photos decoded an epoch, from the third on."""
    cpu_s: float
    """Seconds of CPU that decoding them takes, and taking the others, an epoch."""
    packed: int = 0
    """Of those in memory, how many are packed."""


class Photos(Dataset[Any]):
    """JPEG files in memory; decoded, and made small, at each access: as for training, all have one size then."""

    def __init__(self, photos: int, side: int = MEDIAN_SIDE, seed: int = 0, small: int = SMALL) -> None:
        self.small = small
        draws = np.random.default_rng(seed)
        # the area is log-normal with sigma: so is what decoding takes
        sides = np.clip(side * np.exp(SIGMA / 2 * draws.standard_normal(photos)), 24, 4 * side)
        self.files = [
            _photo(int(side), draws, quality)
            for side, quality in zip(sides, draws.integers(50, 98, photos), strict=True)
        ]
        self.calls = torch.zeros(photos, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        self.calls[index] += 1
        picture = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        small = picture.resize((self.small, self.small), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.asarray(small).copy()), index


def _photo(side: int, draws: np.random.Generator, quality: int) -> bytes:
    coarse = draws.integers(0, 255, (max(2, side // 8), max(2, side // 8), 3), np.uint8)
    picture = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)
    noisy = np.clip(np.asarray(picture, np.int16) + draws.normal(0, 12, (side, side, 3)), 0, 255).astype(
        np.uint8
    )
    file = io.BytesIO()
    Image.fromarray(noisy).save(file, "JPEG", quality=int(quality))
    return file.getvalue()


def rows_of(samples: list[Any]) -> list[int]:
    """Stand in for training: the photos' numbers are all that is sent."""
    return [label for _, label in samples]


def together(samples: list[Any]) -> torch.Tensor:
    """Collate numbers alone: photos of other sizes make no batch."""
    return torch.tensor(rows_of(samples))


class Alone(NamedTuple):
    """What each photo takes, measured alone: float64 [photos]."""

    cost_s: np.ndarray[Any, Any]
    """Seconds of CPU to decode it."""
    sizes: np.ndarray[Any, Any]
    """Bytes when it is kept as it is."""
    hit_s: np.ndarray[Any, Any]
    """Seconds of CPU to take it then."""
    packed_sizes: np.ndarray[Any, Any]
    """Bytes when it is kept packed; as it is where that is no less."""
    unpack_s: np.ndarray[Any, Any]
    """Seconds of CPU more to take it then."""
    pack_s: np.ndarray[Any, Any]
    """Seconds of CPU to pack it."""

    def spent_s(self, missed: Any, packed: Any = ()) -> float:
        """Return the seconds of an epoch in which some are decoded, and others taken, some of them packed."""
        missed, packed = np.asarray(missed, int), np.asarray(packed, int)
        taken = self.hit_s.sum() - self.hit_s[missed].sum()
        return float(self.cost_s[missed].sum() + taken + self.unpack_s[packed].sum())


def costs_of(photos: Any) -> Alone:
    """Measure each sample alone, the least of three."""
    return Alone(*np.array([_alone(photos, index) for index in range(len(photos))]).T)


def _alone(photos: Any, index: int) -> tuple[float, ...]:
    cost_s, sample = least(lambda: photos[index])
    record = encode(sample)
    hit_s, _ = least(lambda: decode(np.frombuffer(record, np.uint8).copy()))
    pack_s, packed = least(lambda: pack(record))
    unpack_s, _ = least(lambda: unpack(packed, len(record)))
    if len(packed) >= len(record):
        return cost_s, len(record), hit_s, len(record), 0.0, pack_s
    return cost_s, len(record), hit_s, len(packed), unpack_s, pack_s


def least(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the least seconds of CPU of three times, and what came of it."""
    times = []
    for _ in range(3):
        began = time.thread_time()
        made = work()
        times.append(time.thread_time() - began)
    return min(times), made


def in_floats(photos: Photos) -> list[Any]:
    """Return all photos as many data sets give them."""
    return [(image / 255, label) for image, label in map(photos.__getitem__, range(len(photos)))]


def forms_table(photos: int) -> str:
    """Return as Markdown what samples of several kinds are when they are packed: medians."""
    torch.set_num_threads(1)
    small, usual = Photos(photos), Photos(photos, small=USUAL)
    kinds = {
        f"photo {SMALL}x{SMALL}, uint8": small,
        f"photo {SMALL}x{SMALL} of a median side of 1400, uint8": Photos(photos, 1400),
        f"photo {SMALL}x{SMALL}, float32": in_floats(small),
        f"photo {USUAL}x{USUAL}, uint8": usual,
        f"photo {USUAL}x{USUAL}, float32": in_floats(usual),
        "noise, float32": [(torch.randn(SMALL, 3 * SMALL), label) for label in range(photos)],
    }
    lines = [
        "| sample | bytes | packed | taking it | unpacking it | packing it |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for kind, samples in kinds.items():
        alone = costs_of(samples)
        sizes = f"{np.median(alone.sizes) / 1e3:,.0f} kB | {np.median(alone.packed_sizes / alone.sizes):.0%}"
        times = (f"{1e3 * np.median(each):.2f} ms" for each in (alone.hit_s, alone.unpack_s, alone.pack_s))
        lines.append(f"| {kind} | {sizes} | {' | '.join(times)} |")
    return "\n".join(lines)


def orders_of(photos: int, epochs: int, seed: int) -> list[list[int]]:
    """Return permutations, one an epoch."""
    draws = np.random.default_rng(seed)
    return [draws.permutation(photos).tolist() for _ in range(epochs)]


def least_recently_used(
    orders: list[list[int]], sizes: np.ndarray[Any, Any], room: int
) -> tuple[list[int], int]:
    """Return the misses of the last epoch, and how many are kept."""
    kept: OrderedDict[int, int] = OrderedDict()
    used, missed = 0, list[int]()
    for order in orders:
        missed = []
        for index in order:
            if index in kept:
                kept.move_to_end(index)
                continue
            missed.append(index)
            size = int(sizes[index])
            if size > room:
                continue
            while used + size > room:
                used -= kept.popitem(last=False)[1]
            kept[index] = size
            used += size
    return missed, len(kept)


def minio(order: list[int], sizes: np.ndarray[Any, Any], room: int) -> tuple[list[int], int]:
    """Return the misses of a later epoch, and how many are kept: the first that fit, in bytes."""
    kept: set[int] = set()
    used = 0
    for index in order:
        if used + sizes[index] <= room:
            kept.add(index)
            used += int(sizes[index])
    return [index for index in order if index not in kept], len(kept)


def ours(photos: Photos, limit: int, epochs: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Serve a stream with a cache; return which are decoded from the third epoch on, and which are kept packed."""
    loader = DataLoader(photos, BATCH, shuffle=True, num_workers=2, collate_fn=together)
    with tsnb.serve(loader, name="benchmark-caching", seed=1, cache=limit) as producer:
        with tsnb.attach("reader", stream=producer.name) as consumer:
            for epoch in range(epochs):
                if epoch == 2:
                    before = photos.calls.clone()
                seen = [label for batch in consumer for label in batch.tolist()]
                assert sorted(seen) == list(range(len(photos)))
        cache = producer.status().cache
        keeper: Any = producer.core.keeper
        assert cache is not None
        memory = keeper._memory
        packed = np.flatnonzero((memory.states == WRITTEN) & memory.packed)
    assert len(packed) == cache.packed
    decoded = np.flatnonzero(photos.calls - before)
    assert len(decoded) == len(photos) - cache.kept, "misses are exactly what is not kept"
    return decoded, packed


def notes_bytes(photos: int) -> int:
    """Return what a cache notes of each photo: it is part of its memory, and the other rules get as much."""
    from tsnb.caching.memory import _lists_bytes

    return _lists_bytes(photos)


def measure(photos: Photos, shares: Sequence[float], epochs: int) -> list[Row]:
    """Return all rows."""
    alone = costs_of(photos)
    sizes, everything = alone.sizes, np.arange(len(photos))
    orders, whole = orders_of(len(photos), epochs, 2), int(sizes.sum())
    rows = [Row("none", 0.0, 0, len(photos), alone.spent_s(everything))]
    for share in shares:
        room = int(share * whole)
        for rule, (missed, kept) in (
            ("LRU", least_recently_used(orders, sizes, room)),
            ("MinIO", minio(orders[0], sizes, room)),
            ("best, unpacked", minio(np.argsort(-alone.cost_s / sizes).tolist(), sizes, room)),
        ):
            rows.append(Row(rule, share, kept, len(missed), alone.spent_s(missed)))
        missed, kept = minio(orders[0], alone.packed_sizes, room)
        packed = np.setdiff1d(np.flatnonzero(alone.packed_sizes < sizes), missed)
        cpu_s = alone.spent_s(missed, packed)
        rows.append(Row("MinIO, packed", share, kept, len(missed), cpu_s, len(packed)))
        private = [minio(order, sizes, room // TRIALS) for order in orders_of(len(photos), TRIALS, 3)]
        rows.append(
            Row(
                f"{TRIALS} private MinIO",
                share,
                sum(kept for _, kept in private),
                sum(len(missed) for missed, _ in private),
                sum(alone.spent_s(missed) for missed, _ in private),
            )
        )
        decoded, packed = ours(photos, room + notes_bytes(len(photos)), epochs)
        kept, cpu_s = len(photos) - len(decoded), alone.spent_s(decoded, packed)
        rows.append(Row("tsnb", share, kept, len(decoded), cpu_s, len(packed)))
    return rows


# -- over a cluster ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fetched:
    """One way to a sample of one size."""

    way: str
    size: int
    """Bytes, as it is kept."""
    wall_ms: float
    """Median."""
    cpu_ms: float
    """Of the worker's machine, median."""
    other_cpu_ms: float
    """Of the other machine, mean."""


def _lend(pipe: Any, token: bytes, room: int) -> None:
    shard = Shard("127.0.0.1", room, token)
    pipe.send(shard.port)
    pipe.recv()
    shard.close()


@contextlib.contextmanager
def lending(room: int) -> Iterator[tuple[ShardLink, psutil.Process]]:
    """Have a process that lends memory; give a connection to it, and the process."""
    context, token = multiprocessing.get_context("spawn"), secrets.token_bytes(TOKEN_BYTES)
    ours, theirs = context.Pipe()
    process = context.Process(target=_lend, args=(theirs, token, room))
    process.start()
    try:
        link = ShardLink("127.0.0.1", ours.recv(), token, time.monotonic() + 30.0)
        with contextlib.closing(link):
            yield link, psutil.Process(process.pid)
    finally:
        ours.send(None)
        process.join()


def timed(way: str, size: int, take: Callable[[int], Any], times: int, other: psutil.Process) -> Fetched:
    """Measure one way to samples, alone."""

    def spent() -> float:
        found = other.cpu_times()
        return float(found.user + found.system)

    take(0)
    theirs, took = spent(), []
    for number in range(times):
        began, mine = time.perf_counter(), time.process_time()
        take(number)
        took.append((time.perf_counter() - began, time.process_time() - mine))
    wall_ms, cpu_ms = 1e3 * np.median(took, axis=0)
    return Fetched(way, size, float(wall_ms), float(cpu_ms), 1e3 * (spent() - theirs) / times)


def over_cluster(photos: int, times: int) -> list[Fetched]:
    """Return what samples cost that are prepared, kept here, and fetched from another machine."""
    torch.set_num_threads(1)
    source = Photos(photos, small=USUAL)
    return ways_to(source, lambda picture: picture, times) + ways_to(
        source, lambda picture: picture.float() / 255, times
    )


def ways_to(source: Photos, convert: Callable[[torch.Tensor], torch.Tensor], times: int) -> list[Fetched]:
    """Measure three ways to samples of one size."""

    def prepare(number: int) -> Any:
        picture, label = source[number % len(source)]
        return convert(picture), label

    records = [encode(prepare(number)) for number in range(len(source))]
    digests = [digest(record) for record in records]
    size, here = len(records[0]), [np.frombuffer(record, np.uint8) for record in records]

    def take(number: int) -> Any:
        return decode(here[number % len(here)].copy())

    def fetch(number: int) -> Any:
        made = link.take(number % len(here), size, time.monotonic() + 30.0)
        assert made is not False
        assert digest(made.data) == digests[number % len(here)]
        return decode(made)

    with lending(len(records) * size) as (link, other):
        for number, record in enumerate(records):
            assert link.put(number, number * size, record, time.monotonic() + 30.0)
        return [
            timed("prepared", size, prepare, max(len(here), times // 10), other),
            timed("kept here", size, take, times, other),
            timed("fetched from another machine", size, fetch, times, other),
        ]


def cluster_table(rows: Sequence[Fetched]) -> str:
    """Return the rows as Markdown."""
    lines = ["| sample | way | time | CPU here | CPU there |", "|---|---|---|---|---|"]
    for row in rows:
        cells = f"{row.wall_ms:.2f} ms | {row.cpu_ms:.2f} ms | {row.other_cpu_ms:.2f} ms"
        lines.append(f"| {row.size / 1e3:,.0f} kB | {row.way} | {cells} |")
    return "\n".join(lines)


# -- what is printed -----------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown."""
    mine = {row.memory: row.cpu_s for row in rows if row.rule == "tsnb"}
    lines = [
        "| memory | rule | kept | of them packed | decoded an epoch | CPU an epoch | against tsnb |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        against = f"{row.cpu_s / mine[row.memory]:.1f}x" if mine.get(row.memory) else ""
        share = f"{row.memory:.0%}" if row.memory else "-"
        kept = f"{row.kept} | {row.packed or '-'} | {row.misses:.0f}"
        lines.append(f"| {share} | {row.rule} | {kept} | {row.cpu_s:.2f} s | {against} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--photos", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--side", type=int, default=MEDIAN_SIDE, help=f"of the median photo ({MEDIAN_SIDE})")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="few photos, one size: does it run")
    parser.add_argument("--cluster", action="store_true", help="what a sample of another machine costs")
    parser.add_argument("--forms", action="store_true", help="what samples are when they are packed")
    given = parser.parse_args()
    if given.forms:
        print(forms_table(8 if given.quick else 100))
        return
    if given.cluster:
        fetched = over_cluster(*((8, 20) if given.quick else (100, 2000)))
        print(cluster_table(fetched))
        if given.json:
            given.json.write_text(json.dumps([asdict(row) for row in fetched], indent=1) + "\n")
        return
    photos = Photos(60 if given.quick else given.photos, given.side)
    rows = measure(photos, (0.5,) if given.quick else (0.25, 0.5, 0.75), given.epochs)
    print(table(rows))
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
