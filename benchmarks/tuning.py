"""Does `workers="auto"` find the best number of workers while trials go on? Beside fixed numbers and grain's rule.

What is isolated: the loader. One consumer takes batches as fast as they come, in the producer's own process. Five
pipelines:

    jpeg      decodes and crops a picture: CPU time, the same for each sample
    tiny      next to nothing a sample: workers cost more than they give
    uneven    one sample in twenty costs twenty times the others
    leaking   three stages of uneven cost, and a worker that keeps some memory of each sample
    read      waits for a disk that serves two reads at a time

For each: a plain DataLoader with PyTorch's defaults, no worker, in this process; on a stream every fixed number of
workers from 1 to `--most`, 0 and 2 workers, as many as cores, and as many as grain's rule gives: the memory budget by
the bytes of one batch. What the rule gives is printed, and beside it what was run of it, at most `--most`. Then "auto"
with the budget, until nothing is left to try, and its pace after that. Beside it: probes, seconds until it rested, the
most memory of all workers in samples at 20 Hz, whether its stream has the digest of one worker's, and where asked for
(`--halve`) its pace against the best fixed number after half of the cores were taken away.

    python -m benchmarks.tuning [--pipelines jpeg read] [--seconds 2] [--most 4] [--memory 2GiB] [--halve] [--json FILE]
"""

from __future__ import annotations

import abc
import argparse
import contextlib
import hashlib
import io
import itertools
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset

import tsnb
from tsnb.machine.processes import children_of_thread, use_of
from tsnb.words import bytes_of, text_table

if TYPE_CHECKING:
    from typing_extensions import Self

SAMPLES, BATCH, SEED = 4096, 8, 7
DIGEST_BATCHES = 64
SAMPLE_S = 0.05
REST_S = 60.0
"""Auto has so long until nothing may be left to try."""
RECOVER_S = 15.0


def _spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Pipeline(Dataset[Any]):
    """One of the five, by its name."""

    def __init__(self, kind: str, gate: Path) -> None:
        self.kind, self.gate = kind, gate
        self.kept: list[bytes] = []
        self.encoded = _jpeg() if kind == "jpeg" else b""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        made = getattr(self, f"_{self.kind}")(index)
        return torch.cat([torch.tensor([float(index)]), torch.rand(1), made])

    def _jpeg(self, _index: int) -> torch.Tensor:
        from PIL import Image

        picture = Image.open(io.BytesIO(self.encoded)).convert("RGB").resize((64, 64))
        return torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).float()

    def _tiny(self, _index: int) -> torch.Tensor:
        return torch.zeros(16)

    def _uneven(self, index: int) -> torch.Tensor:
        _spin(0.02 if index % 20 == 0 else 0.001)
        return torch.zeros(16)

    def _leaking(self, index: int) -> torch.Tensor:
        for stage_s in (0.0005, 0.004 if index % 7 == 0 else 0.001, 0.0005):
            _spin(stage_s)
        self.kept.append(os.urandom(20_000))
        return torch.zeros(16)

    def _read(self, _index: int) -> torch.Tensor:
        import fcntl

        place = self.gate / str(random.Random().randrange(2))  # two reads at a time; no draw of the data's
        with place.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(0.002)
        return torch.zeros(16)


PIPELINES = ("jpeg", "tiny", "uneven", "leaking", "read")


def _jpeg() -> bytes:
    from PIL import Image

    noise = torch.randint(0, 255, (24, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    picture = Image.frombytes("RGB", (32, 24), bytes(noise.flatten().tolist())).resize((512, 384))
    file = io.BytesIO()
    picture.save(file, "JPEG")
    return file.getvalue()


@dataclass
class Row:
    """One pipeline."""

    pipeline: str
    grid: dict[int, float] = field(default_factory=dict)
    """Batches a second by number of workers."""
    none_per_s: float = 0.0
    """Of a stream without workers."""
    cores: int = 0
    grain: int = 0
    """Workers that were run for grain's rule: at most those of the grid."""
    auto: int = 0
    """Workers that were found."""
    ahead: int = 0
    auto_per_s: float = 0.0
    probes: int = 0
    rested_s: float | None = None
    """None: it was still trying at the end."""
    most_bytes: float = 0.0
    """Of all workers, the most of the samples at 20 Hz."""
    budget_bytes: float = 0.0
    looks: int = 0
    same_digest: bool = False
    halved: float | None = None
    """Share of the best fixed number's pace, half of the cores gone; None: not measured."""
    plain_per_s: float = 0.0
    """Of a plain DataLoader as PyTorch makes it: no worker, no stream."""
    grain_rule: int = 0
    """Workers that grain's rule gives, whatever can be run."""

    @property
    def best(self) -> tuple[int, float]:
        """The grid's best number, and its pace."""
        return max(self.grid.items(), key=lambda each: each[1])


class Beside(abc.ABC):
    """Works on a thread of its own while a `with` block runs."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @abc.abstractmethod
    def _run(self) -> None:
        """Work until `_over` is set."""


class Taker(Beside):
    """Takes batches; counts them, and keeps a digest of the first."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.taken = 0
        self.digest = hashlib.blake2b(digest_size=16)
        self._name = name

    def _run(self) -> None:
        with tsnb.attach("taker", self._name) as consumer:
            while not self._over.is_set():
                for batch in consumer:
                    if self.taken < DIGEST_BATCHES:
                        self.digest.update(batch.numpy().tobytes())
                    self.taken += 1
                    if self._over.is_set():
                        break

    def pace(self, seconds: float) -> float:
        """Return batches a second over the next seconds."""
        began, before = time.monotonic(), self.taken
        time.sleep(seconds)
        return (self.taken - before) / (time.monotonic() - began)

    def until(self, batches: int) -> None:
        """Wait until so many were taken."""
        while self.taken < batches:
            time.sleep(0.02)


class Scale(Beside):
    """Weighs the workers twenty times a second: what is theirs alone, as the kernel counts resident pages."""

    def __init__(self, thread: int) -> None:
        super().__init__()
        self.most_bytes, self.looks = 0.0, 0
        self._loading = thread

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            uses = [use_of(pid) for pid in children_of_thread(self._loading)]
            total = sum(use.anonymous_bytes for use in uses if use is not None)
            self.most_bytes, self.looks = max(self.most_bytes, float(total)), self.looks + 1


@contextlib.contextmanager
def _served(kind: str, gate: Path, workers: int | str, **more: Any) -> Iterator[tuple[tsnb.Producer, Taker]]:
    loader = DataLoader(Pipeline(kind, gate), BATCH, shuffle=True)
    with (
        tsnb.serve(loader, name=f"tuning-{kind}", seed=SEED, workers=workers, **more) as producer,
        Taker(producer.name) as taker,
    ):
        taker.until(4)
        yield producer, taker


def fixed(kind: str, gate: Path, workers: int, seconds: float) -> tuple[float, bytes]:
    """Return batches a second with so many workers, and the digest of the first batches."""
    with _served(kind, gate, workers) as (_, taker):
        taker.until(2 * BATCH)
        pace = taker.pace(seconds)
        taker.until(DIGEST_BATCHES)
        return pace, taker.digest.digest()


def plain(kind: str, gate: Path, seconds: float) -> float:
    """Return batches a second of a DataLoader with PyTorch's defaults, taken as fast as they come."""
    loader = DataLoader(Pipeline(kind, gate), BATCH, shuffle=True)
    batches = (batch for epoch in itertools.repeat(loader) for batch in epoch)
    for _ in itertools.islice(batches, 2 * BATCH):  # as many as a stream gives before it counts
        pass
    began, taken = time.monotonic(), 0
    while time.monotonic() - began < seconds or taken < 2:
        next(batches)
        taken += 1
    return taken / (time.monotonic() - began)


def measure(kind: str, seconds: float, most: int, budget_bytes: float, *, halve: bool) -> Row:
    """Measure one pipeline."""
    cores = len(os.sched_getaffinity(0))
    row = Row(kind, cores=cores, budget_bytes=budget_bytes)
    with tempfile.TemporaryDirectory() as folder:
        gate = Path(folder)
        batch_bytes = BATCH * Pipeline(kind, gate)[0].nbytes
        row.grain_rule = max(1, int(budget_bytes / batch_bytes))
        row.grain = min(most, row.grain_rule)
        row.plain_per_s = plain(kind, gate, seconds)
        wanted = b""
        for workers in range(1, most + 1):
            row.grid[workers], digest = fixed(kind, gate, workers, seconds)
            wanted = wanted or digest
        row.none_per_s = fixed(kind, gate, 0, seconds)[0]
        with _served(kind, gate, "auto", memory=int(budget_bytes)) as (producer, taker):
            loading = next(
                t.native_id for t in threading.enumerate() if t.name == f"tsnb-load-{producer.name}"
            )
            with Scale(loading or 0) as scale:
                row.rested_s = _rested(producer)
                row.auto_per_s = taker.pace(seconds)
            row.most_bytes, row.looks = scale.most_bytes, scale.looks
            row.same_digest = taker.digest.digest() == wanted
            reading = producer.status()
            row.auto, row.probes = reading.workers, len(producer.probes)
            row.ahead = reading.tuning.prefetch if reading.tuning is not None else 0
            if halve and cores > 1:
                row.halved = _halved(producer, taker, loading or 0, seconds, min(most, cores))
    return row


def _rested(producer: tsnb.Producer) -> float | None:
    began = time.monotonic()
    while (took_s := time.monotonic() - began) < REST_S:
        tuning = producer.status().tuning
        if tuning is not None and tuning.resting:
            return took_s
        time.sleep(0.1)
    return None


def _halved(producer: tsnb.Producer, taker: Taker, loading: int, seconds: float, most: int) -> float:
    """Take half of the loader's cores away; return auto's pace 15 s later over the best fixed number's then."""
    all_cores = sorted(os.sched_getaffinity(loading))
    half = all_cores[: len(all_cores) // 2]
    for task in (loading, *children_of_thread(loading)):
        os.sched_setaffinity(task, half)
    time.sleep(RECOVER_S)
    auto = taker.pace(seconds)
    best = 0.0
    for workers in range(1, most + 1):
        producer.tune(workers=workers)
        taker.pace(1.0)
        best = max(best, taker.pace(seconds))
    os.sched_setaffinity(loading, all_cores)
    return auto / best if best else 0.0


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text."""
    head = [
        "pipeline", "best of the grid", "auto", "of the best", "probes", "rested", "PyTorch's default",
        "0 workers", "2", "= cores", "grain's rule", "most memory", "digest", "cores halved",
    ]  # fmt: skip
    cells = []
    for row in rows:
        number, best = row.best

        def at(workers: int, row: Row = row) -> str:
            return f"{row.grid[workers]:.1f}" if workers in row.grid else "-"

        cells.append([
            row.pipeline, f"{best:.1f} ({number})", f"{row.auto_per_s:.1f} ({row.auto}, {row.ahead} ahead)",
            f"{100 * row.auto_per_s / best:.0f}%", str(row.probes),
            "no" if row.rested_s is None else f"{row.rested_s:.0f} s", f"{row.plain_per_s:.1f}",
            f"{row.none_per_s:.1f}", at(2), at(row.cores), f"{at(row.grain)} ({_of_rule(row)})",
            f"{row.most_bytes / 2**20:.0f} of {row.budget_bytes / 2**20:.0f} MiB",
            "same" if row.same_digest else "OTHER", "-" if row.halved is None else f"{100 * row.halved:.0f}%",
        ])  # fmt: skip
    return "\n".join(text_table([head, *cells]))


def _of_rule(row: Row) -> str:
    """Return what grain's rule gives, and what was run of it where that is less."""
    return f"{row.grain_rule:,}" if row.grain == row.grain_rule else f"{row.grain_rule:,}, {row.grain} run"


def verdict(rows: Sequence[Row]) -> str:
    """Say in a line what was reached of what is wanted."""
    near = sum(row.auto_per_s >= 0.95 * row.best[1] for row in rows)
    few = sum(row.probes <= 8 or (row.rested_s is not None and row.rested_s <= 30) for row in rows)
    kept = sum(row.most_bytes <= row.budget_bytes for row in rows)
    same = sum(row.same_digest for row in rows)
    leaking = [
        row.auto_per_s / row.plain_per_s for row in rows if row.pipeline == "leaking" and row.plain_per_s
    ]
    times = (
        f"; leaking: {leaking[0]:.2f} times a plain DataLoader without workers, PyTorch's default (InTune: 2.29)"
        if leaking
        else ""
    )
    halved = [row.halved for row in rows if row.halved is not None]
    back = (
        f"; cores halved: {sum(share >= 0.95 for share in halved)} of {len(halved)} at 95 %" if halved else ""
    )
    return (
        f"of {len(rows)}: {near} at 95 % of the best, {few} in 8 probes or 30 s, {kept} within the budget, "
        f"{same} with the same digest{times}{back}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; print the table.

    Args:
        arguments: Left out: those of the command line.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tuning", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--pipelines", nargs="+", choices=PIPELINES, default=list(PIPELINES))
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement (2)")
    parser.add_argument("--most", type=int, help="workers of the grid (twice the cores)")
    parser.add_argument("--memory", type=bytes_of, default=2.0**31, help="budget of all workers (2GiB)")
    parser.add_argument("--halve", action="store_true", help="also take half of the cores away")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    given = parser.parse_args(arguments)
    cores = len(os.sched_getaffinity(0))
    most = given.most or 2 * cores
    rows = []
    for kind in given.pipelines:
        rows.append(measure(kind, given.seconds, most, given.memory, halve=given.halve))
        print(table(rows[-1:]), flush=True)
    load = os.getloadavg()[0]
    print(f"\n{cores} cores, load {load:.1f}, {given.seconds:g} s each; batches of {BATCH} a second\n")
    print(table(rows))
    print(f"\n{verdict(rows)}")
    if given.json is not None:
        given.json.write_text(
            json.dumps({"cores": cores, "load": load, "rows": [asdict(r) for r in rows]}, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
