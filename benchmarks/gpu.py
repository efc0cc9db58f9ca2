"""What sharing a loader does for N models on one GPU: a loader each, one that is shared, and the peer.

    python -m benchmarks.gpu [--model resnet18 resnet50] [--n 1 2 4 8] [--jpegs] [--seconds 20] [--json FILE]

Two of its cells were run on an H200 (benchmarks/RESULTS.md). Without a GPU the program ends at once and says so.

Isolated here: N trainings of equal models of our own, in N processes on one GPU. The models are as large as ResNet-18
(11.7 M parameters) and ResNet-50 (25.6 M), in bfloat16 where the GPU has it, on batches of 64 images. The loader crops,
flips and normalises 256x256 images from memory with `--workers` processes: a trial's, or all in all where it is shared.
With `--jpegs` it decodes JPEGs of 500x375 pixels, crops and resizes them, and `separate` divides the processes.

    separate       each trial has a DataLoader, with pinned memory and copies that wait for nothing
    tsnb           one loader; each trial copies its batches to the GPU, two ahead (`prefetch_to_device=2`)
    tsnb-shared    one loader; each batch is copied to the GPU once (`share_on_device=True`)
    tensorsocket   0.0.5 from PyPI; its producer copies each batch to the GPU, which is what it was built for

Fresh processes for each row. All is measured in one window of `--seconds`, after every trial has done some steps.
samples/s: all trials together, and the slowest. GPU: mean of NVML's share of time in which a kernel ran. H2D: bytes
copied to the GPU for each sample that a trial was given: counted for tsnb-shared, reckoned for the others. CPU s: of
all processes together, for 1,000 samples of each trial.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing as mp
import os
import queue
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.residual import Images, model
from benchmarks.sharing import peer
from tsnb.checks.devices import devices
from tsnb.machine.gpus import Gpus

SYSTEMS = ("separate", "tsnb", "tsnb-shared", "tensorsocket")
WARM_STEPS = 40
"""Of each trial before the window: the first batches find no memory yet that was written into before."""
SYNC_STEPS = 5
LOOK_S = 0.25
LONGEST_S = 300.0


@dataclass(frozen=True)
class Row:
    """One system with N trials."""

    model: str
    """ResNet-18 or ResNet-50, in size."""
    n: int
    """Trials on the GPU."""
    system: str
    """One of `SYSTEMS`."""
    samples_per_s: float
    """Of all trials together."""
    slowest_per_s: float
    """Of the slowest."""
    gpu_busy: float | None
    """Share of the window in which a kernel ran; None: not told."""
    h2d_bytes: float
    """Bytes copied to the GPU for each sample that a trial was given."""
    cpu_s: float
    """CPU seconds of all processes for 1,000 samples of each trial."""


@dataclass(frozen=True)
class Setting:
    """What a row is measured with."""

    model: str
    n: int
    system: str
    batch: int
    size: int
    workers: int
    seconds: float
    device: str
    jpegs: bool = False


class Jpegs(Dataset[Any]):
    """JPEGs in memory; decoded, cropped, resized, flipped and normalised as for ImageNet.

    Args:
        size: Pixels of a side after the crop.
        side: Of the JPEGs' height.
    """

    def __init__(self, size: int, side: int = 375) -> None:
        import numpy as np
        from PIL import Image

        self.size = size
        self.files: list[bytes] = []
        draws = np.random.default_rng(0)
        wide = side * 4 // 3
        for _ in range(64):
            rough = draws.integers(0, 256, (side // 16, side // 12, 3), dtype=np.uint8)
            image = Image.fromarray(rough).resize((wide, side), Image.Resampling.BICUBIC)
            fine = np.asarray(image).astype(np.int16) + draws.integers(-12, 13, (side, wide, 3))
            file = io.BytesIO()
            Image.fromarray(fine.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        import numpy as np
        from PIL import Image

        image = Image.open(io.BytesIO(self.files[index % 64])).convert("RGB")
        share, across, down = torch.rand(3).tolist()
        width, height = (int(side * (0.3 + 0.7 * share)) for side in image.size)
        left, top = int((image.width - width) * across), int((image.height - height) * down)
        box = (left, top, left + width, top + height)
        small = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box)
        pixels = torch.from_numpy(np.array(small)).permute(2, 0, 1).float().div_(255).sub_(0.45).div_(0.225)
        return (pixels.flip(2) if index % 2 else pixels).contiguous(), index % 1000


def loader_of(setting: Setting, *, pinned: bool = False) -> DataLoader[Any]:
    """Return the DataLoader that all systems have."""
    data = Jpegs(setting.size) if setting.jpegs else Images(setting.size)
    own = setting.jpegs and setting.system == "separate"
    workers = max(1, setting.workers // setting.n) if own else setting.workers
    return DataLoader(data, setting.batch, num_workers=workers, drop_last=True, pin_memory=pinned)


class OnGpu:
    """The peer's loader: batches are on the GPU before it gets them."""

    def __init__(self, loader: DataLoader[Any], device: str) -> None:
        self.loader, self.device, self.dataset = loader, device, loader.dataset

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        for images, labels in self.loader:
            yield images.to(self.device), labels.to(self.device)


def batches_of(setting: Setting, number: int, ports: Sequence[int]) -> Iterator[Any]:
    """Give a trial its batches, on the device."""
    if setting.system == "separate":
        for images, labels in loader_of(setting, pinned=setting.device != "cpu"):
            yield images.to(setting.device, non_blocking=True), labels.to(setting.device, non_blocking=True)
    elif setting.system == "tensorsocket":
        with peer.take(ports, setting.batch, tuned=False) as batches:
            yield from batches
    else:
        from tsnb.attaching import attach

        ahead = {"share_on_device": True} if setting.system == "tsnb-shared" else {"prefetch_to_device": 2}
        yield from attach(f"trial-{number}", stream="gpu", device=setting.device, **ahead)


def train(setting: Setting, number: int, ports: Sequence[int], done: Any, go: Any, over: Any) -> None:
    """Train until `over`; in a process of its own. Says how many samples the window had."""
    torch.set_num_threads(1)
    on_gpu = setting.device != "cpu"
    net = model(setting.model).to(setting.device)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    kind = torch.bfloat16 if on_gpu and torch.cuda.is_bf16_supported() else torch.float32
    samples = 0
    for steps, (images, labels) in enumerate(batches_of(setting, number, ports), 1):
        with torch.autocast("cuda" if on_gpu else "cpu", dtype=kind, enabled=kind != torch.float32):
            loss = nn.functional.cross_entropy(net(images), labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if steps % SYNC_STEPS == 0 and on_gpu:
            torch.cuda.synchronize()  # what was asked for has been done: samples are counted, not kernel launches
        if steps == WARM_STEPS:
            done.put(("warm", number, 0))
        if go.is_set():
            samples += len(labels)
        if over.is_set():
            break
    done.put(("samples", number, samples))


def serve(setting: Setting, ports: Sequence[int], left: Any, done: Any, go: Any, over: Any) -> None:
    """Serve the loader until the trials have `left`; in a process of its own. Says how many bytes it has copied."""
    torch.set_num_threads(1)
    copied = 0
    if setting.system == "tensorsocket":
        loader = OnGpu(loader_of(setting), setting.device)
        peer.serve(loader, ports, setting.n, lambda error: done.put(("failed", -1, repr(error))), tuned=False)
        over.wait(LONGEST_S)
    else:
        from tsnb.serving import serve_here

        with serve_here(loader_of(setting), name="gpu") as producer:
            done.put(("serving", -1, 0))
            go.wait(LONGEST_S)
            before = producer._core.devices.copied_bytes
            over.wait(LONGEST_S)
            copied = producer._core.devices.copied_bytes - before
            done.put(("copied", -1, copied))
            left.wait(LONGEST_S)
        return
    done.put(("copied", -1, copied))
    left.wait(LONGEST_S)


def measure(setting: Setting) -> Row:
    """Measure one row.

    Raises:
        RuntimeError: A process ended, or said nothing for too long.
    """
    context = mp.get_context("spawn")
    done, go, over, left = context.Queue(), context.Event(), context.Event(), context.Event()
    ports = peer.free_ports()
    shared = setting.system != "separate"
    started: list[Any] = []
    said = Said(done, started)

    def start(target: Callable[..., None], *arguments: Any) -> None:
        process = context.Process(target=target, args=(*arguments, done, go, over))
        process.start()
        started.append(process)

    try:
        if shared:
            start(serve, setting, ports, left)
        if setting.system.startswith("tsnb"):
            said.expect("serving", 1)
        for number in range(setting.n):
            start(train, setting, number, ports)
        said.expect("warm", setting.n)
        family = [
            p
            for s in started
            for p in (psutil.Process(s.pid), *psutil.Process(s.pid).children(recursive=True))
        ]
        cpu_before = _cpu_s(family)
        go.set()
        busy, seconds = _watch(setting.seconds)
        cpu = _cpu_s(family) - cpu_before
        over.set()
        found = said.expect("samples", setting.n)
        copied = said.expect("copied", 1)[0] if shared else 0
    finally:
        over.set()
        left.set()
        for process in started:
            process.join(20)
            if process.is_alive():
                process.kill()
    total = sum(found)
    batch_bytes = 3 * setting.size * setting.size * 4 + 8
    once = {"tsnb-shared": copied / max(1, total), "tensorsocket": batch_bytes / setting.n}
    return Row(
        setting.model,
        setting.n,
        setting.system,
        total / seconds,
        min(found) / seconds,
        busy,
        once.get(setting.system, float(batch_bytes)),
        cpu / max(1, total / setting.n) * 1000,
    )


class Said:
    """What the processes of a row have said, by word; in whatever order it came.

    Args:
        done: The queue that they write to.
        started: The processes.
    """

    def __init__(self, done: Any, started: Sequence[Any]) -> None:
        self._done, self._started = done, started
        self._values: dict[str, list[Any]] = {}

    def expect(self, word: str, count: int) -> list[Any]:
        """Wait until a word was said so often; return what was said with it.

        Raises:
            RuntimeError: A process failed, or nothing came for too long.
        """
        deadline = time.monotonic() + LONGEST_S
        while len(self._values.get(word, ())) < count:
            if time.monotonic() > deadline or any(p.exitcode not in (None, 0) for p in self._started):
                raise RuntimeError(f"a process ended, or said nothing of {word!r} for {LONGEST_S:.0f} s")
            try:
                kind, _, value = self._done.get(timeout=1.0)
            except queue.Empty:
                continue
            if kind == "failed":
                raise RuntimeError(str(value))
            self._values.setdefault(kind, []).append(value)
        return self._values[word]


def _cpu_s(family: Sequence[psutil.Process]) -> float:
    total = 0.0
    for process in family:
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.Error:
            continue
    return total


def _watch(seconds: float) -> tuple[float | None, float]:
    """Let the window pass; return the GPU's mean load, and how long it was."""
    gpus, loads, began = Gpus(), [], time.monotonic()
    while time.monotonic() - began < seconds:
        loads += [gpu.busy for gpu in gpus.look()[:1] if gpu.busy is not None]
        time.sleep(LOOK_S)
    return (statistics.fmean(loads) if loads else None), time.monotonic() - began


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text."""
    head = f"{'model':9} {'N':>2} {'system':13} {'samples/s':>10} {'slowest':>8} {'GPU':>5} {'H2D MB':>7} {'CPU s':>7}"
    lines = [head]
    for row in rows:
        busy = "-" if row.gpu_busy is None else f"{row.gpu_busy:.0%}"
        lines.append(
            f"{row.model:9} {row.n:>2} {row.system:13} {row.samples_per_s:>10,.0f} {row.slowest_per_s:>8,.0f} "
            f"{busy:>5} {row.h2d_bytes / 1e6:>7.2f} {row.cpu_s:>7.2f}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 2: there is no GPU to run it on."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="N models on one GPU")
    parser.add_argument(
        "--model", nargs="+", default=["resnet18", "resnet50"], choices=("resnet18", "resnet50", "tiny")
    )
    parser.add_argument("--n", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--system", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=min(8, max(1, (os.cpu_count() or 2) - 2)))
    parser.add_argument("--jpegs", action="store_true", help="decode JPEGs instead of cropping ready images")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--on-cpu", action="store_true", help="only to see that it runs: its figures mean nothing"
    )
    given = parser.parse_args(arguments)
    here = devices()
    if not given.on_cpu and not (here.gpus and torch.cuda.is_available()):
        why = here.obstacle or f"torch {here.torch} does not see it"
        print(
            f"benchmarks.gpu needs a GPU, and there is none for it here: {why}. Nothing was measured.",
            file=sys.stderr,
        )
        return 2
    rows: list[Row] = []
    print(here, flush=True)
    for name in given.model:
        for n in given.n:
            for system in given.system:
                device = "cpu" if given.on_cpu else "cuda:0"
                setting = Setting(
                    name,
                    n,
                    system,
                    given.batch,
                    given.size,
                    given.workers,
                    given.seconds,
                    device,
                    given.jpegs,
                )
                try:
                    rows.append(measure(setting))
                    print(table(rows[-1:]).splitlines()[-1], flush=True)
                except RuntimeError as error:
                    print(f"{name:9} {n:>2} {system:13} {error}", flush=True)
    print(table(rows))
    if given.json:
        given.json.write_text(
            json.dumps({"machine": repr(here), "rows": [asdict(row) for row in rows]}, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
