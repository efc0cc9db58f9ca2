"""How long 8 seeds of 2 arms take on a shared loader, beside one run alone and the same runs one after another.

The loader decodes JPEG photos, which is the limit: a training step costs next to nothing. Each plain run is a fresh
process, forked when torch is imported, with a `DataLoader` of its own. The duel has the same loader once, in this
process, and its 16 trials are processes too. A time is from the first start to the last end, starts of processes
included. All have the same number of loader workers, and one thread for torch.

Run `python -m benchmarks.duelling --times`: about 2 minutes where nothing else runs, 4 where much does. With --quick a
smaller form, for tests.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import tsnb
from tsnb.experiments import trials

SIDE, SMALL, BATCH = 448, 16, 32
"""Pixels of a photo's side, and of what is trained on; photos of a batch."""
EPOCHS = 2
GAIN = 0.3
"""What the candidate's learning rate is more than the incumbent's."""
LEVEL = 1e-6
"""Error of the duel: so small that no verdict comes before its last seed."""
CAREFUL = 54
"""Runs of the careful person at one deviation of a seed, where a duel's verdict takes 8 seeds (`duelling`)."""
LIMIT_S = 220.0


class Photos(Dataset[tuple[torch.Tensor, int]]):
    """Noisy JPEG files in memory, in two classes; decoded and made small at each access."""

    def __init__(self, number: int) -> None:
        draws = np.random.default_rng(0)
        self.files: list[bytes] = []
        for at in range(number):
            coarse = draws.integers(0, 200, (28, 28, 3)) + 40 * (at % 2)
            picture = Image.fromarray(coarse.astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
            noisy = np.asarray(picture, np.int16) + draws.integers(-12, 12, (SIDE, SIDE, 3))
            file = io.BytesIO()
            Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = Image.open(io.BytesIO(self.files[index])).convert("RGB").resize((SMALL, SMALL))
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float().div(255), index % 2


def loader_of(photos: Photos, workers: int) -> DataLoader[Any]:
    """Return the loader, the same for all."""
    return DataLoader(photos, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)


def learn(batches: Iterable[Any], rate: float) -> float:
    """Train a small net for some epochs; return its last loss."""
    torch.set_num_threads(1)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SMALL * SMALL, 2))
    optimizer, loss = torch.optim.SGD(net.parameters(), rate), torch.zeros(())
    for _ in range(EPOCHS):
        for pixels, labels in batches:
            loss = cross_entropy(net(pixels), labels)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
    return loss.item()


def incumbent(rate: float = 0.01) -> None:
    """Train on the shared loader."""
    tsnb.log(loss=learn(tsnb.attach(), rate))


def candidate() -> None:
    """Train with larger steps."""
    incumbent(0.01 * (1 + GAIN))


def _plain(photos: Photos, workers: int, seed: int) -> None:
    torch.manual_seed(seed)
    learn(loader_of(photos, workers), 0.01)


def plain_s(photos: Photos, workers: int, runs: int) -> list[float]:
    """Return how long each of some plain runs takes, one after another."""
    fork, took = multiprocessing.get_context("fork"), []
    for seed in range(runs):
        began_s = time.perf_counter()
        process = fork.Process(target=_plain, args=(photos, workers, seed))
        process.start()
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a plain run has ended with {process.exitcode}")
        took.append(time.perf_counter() - began_s)
    return took


def duel_s(photos: Photos, workers: int, seeds: int) -> tuple[float, tsnb.duels.result.Duel]:
    """Return how long a duel takes whose seeds all run at once, and the duel."""
    with tsnb.serve(loader_of(photos, workers), name="photos"):
        began_s = time.perf_counter()
        duel = tsnb.duel(
            incumbent, candidate, metric="loss", mode="min", error=LEVEL, seeds=seeds, at_once=2 * seeds
        )
        duel.wait(LIMIT_S)
        took_s = time.perf_counter() - began_s
        trials.clear()
    return took_s, duel


def measure(*, quick: bool = False) -> None:
    """Measure, and print what was found."""
    number, seeds, workers = (64, 2, 1) if quick else (512, 8, 1)
    torch.set_num_threads(1)
    photos = Photos(number)
    load = os.getloadavg()[0]
    after = plain_s(photos, workers, 2 * seeds)
    with tempfile.TemporaryDirectory() as project:
        os.environ["TSNB_PROJECT_DIR"] = project
        took_s, duel = duel_s(photos, workers, seeds)
    alone, whole = statistics.median(after), sum(after)
    blocks = duel.verdict.blocks
    print(
        f"{number} JPEG photos, {EPOCHS} epochs, {workers} loader worker; {os.cpu_count()} cores, "
        f"load {load:.1f} before"
    )
    print(f"one run alone, median of {len(after)}:    {alone:6.1f} s")
    print(f"{2 * seeds} runs one after another:     {whole:6.1f} s   {whole / alone:5.1f} x one run")
    print(f"a duel of {seeds} seeds, 2 arms each:  {took_s:6.1f} s   {took_s / alone:5.1f} x one run")
    print(f"the duel is {whole / took_s:.1f} times sooner; {len(blocks)} seeds count: {duel.verdict}")
    print(
        f"computed: {CAREFUL} runs one after another take {CAREFUL * alone / took_s:.1f} times as long as the duel"
    )
    sys.stdout.flush()
