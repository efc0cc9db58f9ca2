"""What does it cost to feed N training processes: N loaders of their own, or one shared by tsnb?

Isolated here: preparing a batch and bringing it to the process that wants it. The consumers do no training;
they touch the first and the last value of every tensor and ask for the next batch. Loader settings are the
same in each way of working (`--workers`, prefetch 2), torch runs on one thread in each process.

    jpeg      decode, crop and flip photos (china.jpg and flower.jpg from scikit-learn): 32x3x224x224 float32
    images    nothing to prepare but the collation of large samples: 64x3x224x224 float32, 38.5 MB a batch
    vectors   nothing to prepare, little to carry, so the machinery itself: 64x784 float32, 0.2 MB a batch

    plain     one DataLoader in one process (what everybody has today)
    separate  the same, N times side by side
    tsnb      one producer process with that DataLoader, N consumer processes attached to it

Every configuration runs in fresh processes. Repeats are interleaved (all configurations once, then all
again), and a figure is the median over the repeats, so that a busy minute on the machine falls on all of
them. Counting begins after some batches and ends some batches before the epoch does: process start, imports
and worker start are not in it, nor does work done ahead flatter anybody.

    make bench                                  about ten minutes
    make bench BENCH="--quick --json rows.json"

`batches/s` is that of the slowest consumer. `CPU ms` is what the whole process tree (producer, loader
workers, consumers) spent for one batch in the hands of one consumer. The last columns are ratios within this
run against `plain` and against `separate` at the same N; absolute numbers say little about another machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import psutil

STREAM = "bench"
MEASURED_BATCHES = {"jpeg": 60, "images": 150, "vectors": 1500}
WARM_UP_BATCHES = {"jpeg": 20, "images": 30, "vectors": 200}
TAIL_BATCHES = 20
"""Taken after the measured ones, so that as many batches are prepared ahead when counting ends as when it
began: window (8), the loader's own prefetch (2 a worker) and those on their way."""


@dataclass(frozen=True)
class Row:
    """One configuration: medians over its repeats."""

    case: str
    """jpeg, images or vectors."""
    way: str
    """plain, separate or tsnb."""
    consumers: int
    """How many processes take batches at the same time."""
    workers: int
    """Loader workers in each loader."""
    batches_per_s: float
    """Of the slowest consumer."""
    cpu_s_per_batch: float
    """CPU seconds of all processes for one batch in the hands of one consumer."""
    lowest_batches_per_s: float
    """The worst repeat."""
    highest_batches_per_s: float
    """The best repeat."""
    repeats: int
    """Runs behind the medians."""
    cores: int
    """Cores this process may run on."""


# ---- the child processes ----


def make_loader(case: str, batches: int, workers: int) -> Any:
    """Return the DataLoader of a case, `batches` long; called in the process that will iterate it."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Jpegs(Dataset[tuple[torch.Tensor, int]]):
        """256x256 crops of two photos, kept as JPEG and decoded at every access."""

        def __init__(self, length: int) -> None:
            import numpy as np
            from PIL import Image
            from sklearn.datasets import load_sample_images

            rng = np.random.default_rng(0)
            self.length = length
            self.files: list[bytes] = []
            for photo in load_sample_images().images:
                for _ in range(32):
                    top, left = (int(rng.integers(0, side - 256)) for side in photo.shape[:2])
                    file = BytesIO()
                    Image.fromarray(photo[top : top + 256, left : left + 256]).save(file, "JPEG", quality=90)
                    self.files.append(file.getvalue())

        def __len__(self) -> int:
            return self.length

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            import numpy as np
            from PIL import Image

            top, left, flip = (int(torch.randint(bound, ())) for bound in (32, 32, 2))
            photo = np.asarray(Image.open(BytesIO(self.files[index % len(self.files)])).convert("RGB"))
            crop = photo[top : top + 224, left : left + 224]
            pixels = torch.from_numpy(np.ascontiguousarray(crop[:, ::-1] if flip else crop))
            return pixels.permute(2, 0, 1).float().div_(255), index % 2

    class Ready(Dataset[tuple[torch.Tensor, int]]):
        """Samples that lie in memory already."""

        def __init__(self, length: int, shape: tuple[int, ...]) -> None:
            self.length = length
            self.samples = torch.randn(128, *shape)

        def __len__(self) -> int:
            return self.length

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return self.samples[index % len(self.samples)], index % 10

    batch_size = 32 if case == "jpeg" else 64
    length = batches * batch_size
    shape = {"images": (3, 224, 224), "vectors": (784,)}
    dataset = Jpegs(length) if case == "jpeg" else Ready(length, shape[case])
    return DataLoader(dataset, batch_size, shuffle=True, num_workers=workers)


def tell(word: str, **facts: float) -> None:
    """Report to the parent."""
    print(json.dumps({"word": word, **facts}), flush=True)


def consume(case: str, way: str, workers: int, batches: int) -> None:
    """One consumer: wait for the start signal, take an epoch, report the pace after the warm-up."""
    import torch

    import tsnb

    torch.set_num_threads(1)
    name = f"consumer-{os.getpid()}"
    source = tsnb.attach(name, STREAM) if way == "tsnb" else make_loader(case, batches, workers)
    tell("ready")
    sys.stdin.readline()
    first, last, taken, since = WARM_UP_BATCHES[case], batches - TAIL_BATCHES, 0, 0.0
    for images, labels in source:
        float(images.view(-1)[0]) + float(images.view(-1)[-1]) + int(labels[0])
        taken += 1
        if taken == first:
            since = time.perf_counter()
            tell("warm")
        if taken == last:
            tell("done", batches_per_s=(last - first) / (time.perf_counter() - since))
    assert taken == batches, f"{taken} of {batches} batches arrived"
    sys.stdin.read()


def produce(case: str, workers: int, batches: int) -> None:
    """The producer: serve until the parent closes the pipe."""
    import torch

    import tsnb

    torch.set_num_threads(1)
    with tsnb.serve(make_loader(case, batches, workers), name=STREAM):
        tell("ready")
        sys.stdin.read()


# ---- the parent ----


class Child:
    """A fresh Python process in one of the two roles above."""

    def __init__(self, arguments: Sequence[object], runtime_directory: str) -> None:
        command = [sys.executable, __file__, "--child", *map(str, arguments)]
        environment = {**os.environ, "TSNB_RUNTIME_DIR": runtime_directory}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def expect(self, word: str) -> dict[str, float]:
        """Read the child's next report.

        Raises:
            RuntimeError: It said something else, or ended.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        report: dict[str, Any] = json.loads(line) if line else {"word": "nothing (its error stands above)"}
        if report["word"] != word:
            raise RuntimeError(f"a benchmark process should have said {word!r}, but said {report['word']!r}")
        return report

    def go(self) -> None:
        """Give the start signal."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Let the child leave, by force if it does not."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def cpu_seconds(children: Sequence[Child]) -> float:
    """CPU seconds that the children and everything below them have spent so far."""
    spent = 0.0
    for child in children:
        root = psutil.Process(child.process.pid)
        for process in [root, *root.children(recursive=True)]:
            times = process.cpu_times()
            spent += times.user + times.system + times.children_user + times.children_system
    return spent


@contextmanager
def started(arguments: Sequence[object], runtime_directory: str) -> Iterator[Child]:
    """A child that is ready, and that has gone afterwards."""
    child = Child(arguments, runtime_directory)
    try:
        child.expect("ready")
        yield child
    finally:
        child.end()


def measure(case: str, way: str, consumers: int, workers: int, scale: float) -> tuple[float, float]:
    """Run one configuration once.

    Returns:
        Batches per second of the slowest consumer, and CPU seconds per delivered batch.
    """
    measured = max(10, int(MEASURED_BATCHES[case] * scale))
    batches = WARM_UP_BATCHES[case] + measured + TAIL_BATCHES
    with tempfile.TemporaryDirectory(prefix="tsnb-bench-") as directory, ExitStack() as stack:
        everyone: list[Child] = []
        if way == "tsnb":
            everyone.append(stack.enter_context(started(["produce", case, way, workers, batches], directory)))
        takers = [
            stack.enter_context(started(["consume", case, way, workers, batches], directory))
            for _ in range(consumers)
        ]
        everyone += takers
        for taker in takers:
            taker.go()
        for taker in takers:
            taker.expect("warm")
        before = cpu_seconds(everyone)
        slowest = min(taker.expect("done")["batches_per_s"] for taker in takers)
        spent = cpu_seconds(everyone) - before
    return slowest, spent / (measured * consumers)


def configurations(cases: Sequence[str], numbers: Sequence[int]) -> list[tuple[str, str, int]]:
    """Return (case, way, consumers); one plain loader is what `separate` means at N = 1."""
    return [
        (case, way if number > 1 or way == "tsnb" else "plain", number)
        for case in cases
        for number in numbers
        for way in ("separate", "tsnb")
    ]


def run(cases: Sequence[str], numbers: Sequence[int], workers: int, repeats: int, scale: float) -> list[Row]:
    """Measure all configurations, interleaved, and return one row each."""
    runs: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for repeat in range(repeats):
        for configuration in configurations(cases, numbers):
            case, way, consumers = configuration
            runs.setdefault(configuration, []).append(measure(case, way, consumers, workers, scale))
            print(f"  {repeat + 1}/{repeats}: {case}, {way}, N={consumers}", file=sys.stderr, flush=True)
    rows = []
    for (case, way, consumers), results in runs.items():
        paces = [pace for pace, _ in results]
        row = Row(
            case=case,
            way=way,
            consumers=consumers,
            workers=workers,
            batches_per_s=statistics.median(paces),
            cpu_s_per_batch=statistics.median(cpu for _, cpu in results),
            lowest_batches_per_s=min(paces),
            highest_batches_per_s=max(paces),
            repeats=repeats,
            cores=len(os.sched_getaffinity(0)),
        )
        rows.append(row)
    return rows


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text, with the ratios within this run."""
    found = {(row.case, row.way, row.consumers): row for row in rows}
    columns = ("case", "N", "way", "batches/s", "CPU ms", "pace/plain", "pace/separate", "CPU/separate")
    shape = "{:8} {:>2} {:9} {:>10} {:>8} {:>11} {:>14} {:>13}"
    lines = [shape.format(*columns)]
    for row in rows:
        plain = found.get((row.case, "plain", 1))
        peer = found.get((row.case, "separate", row.consumers), plain if row.consumers == 1 else None)
        cells = (
            row.case,
            row.consumers,
            row.way,
            f"{row.batches_per_s:.1f}",
            f"{row.cpu_s_per_batch * 1e3:.2f}",
            f"{row.batches_per_s / plain.batches_per_s:.2f}" if plain else "-",
            f"{row.batches_per_s / peer.batches_per_s:.2f}" if peer else "-",
            f"{row.cpu_s_per_batch / peer.cpu_s_per_batch:.2f}" if peer else "-",
        )
        lines.append(shape.format(*cells))
    return "\n".join(lines)


def main() -> None:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(description="Plain loader, separate loaders and tsnb, side by side.")
    parser.add_argument(
        "--case", action="append", choices=list(MEASURED_BATCHES), help="only this one (repeatable)"
    )
    parser.add_argument("--consumers", type=int, nargs="+", default=[1, 2, 4], metavar="N")
    parser.add_argument("--workers", type=int, default=1, help="loader workers in each loader (default 1)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--quick", action="store_true", help="one short repeat: does it run, not how fast it is"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the rows there, one JSON object a line"
    )
    options = parser.parse_args()
    repeats, scale = (1, 0.4) if options.quick else (options.repeats, 1.0)
    rows = run(options.case or list(MEASURED_BATCHES), options.consumers, options.workers, repeats, scale)
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores, {options.workers} worker(s) a loader, medians of {repeats} interleaved runs\n")
    print(table(rows))
    if options.json:
        options.json.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows), encoding="utf-8")


def child_main(arguments: Sequence[str]) -> None:
    """Take a role: ROLE CASE WAY WORKERS BATCHES."""
    role, case, way, workers, batches = arguments
    if role == "produce":
        produce(case, int(workers), int(batches))
    else:
        consume(case, way, int(workers), int(batches))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child_main(sys.argv[2:])
    else:
        main()
