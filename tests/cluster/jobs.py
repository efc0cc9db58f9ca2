"""What trials on the test's cluster do."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch

import tsnb
from tests.cluster.takers import digest

BEGUN = "here I am"
ENDED = "put in order"


def learn(lr: float, steps: int = 3, seed: int | None = None) -> dict[str, Any]:
    """Log, print, keep a file and a folder, and return what tells where this ran."""
    print("learning with", lr)
    for step in range(steps):
        tsnb.log(step=step, loss=lr / (step + 1))
    folder = Path(os.environ["TSNB_RUNTIME_DIR"]) / f"work-{os.getpid()}"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "net.pt").write_bytes(bytes(range(256)) * 40_000)  # ten megabytes cross in two pieces
    tsnb.log_artifact(folder / "deep" / "net.pt", "net.pt")
    kept = tsnb.log_artifact(folder, "all")
    return {"seed": seed, "drawn": float(torch.rand(())), "kept": str(kept), **surroundings()}


def surroundings() -> dict[str, str]:
    """Return what tells on which node of the cluster this is, and what of it was given to this process."""
    words = ("TSNB_RUNTIME_DIR", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "FLAVOUR")
    return {word: os.environ.get(word, "-") for word in words}


def take(lr: float) -> tuple[int, list[str]]:
    """Take an epoch of the cluster's stream; return its number and its batches."""
    with tsnb.attach() as batches:
        rows = [digest(batch) for batch in batches]
        tsnb.log(loss=lr)
        return batches.epoch, rows


def validate(fold: tuple[int, int, int], epochs: int = 3) -> dict[str, Any]:
    """Train on all but a fold, validate on that; return which samples each epoch had, and the order of the last."""
    images, held = tsnb.attach(fold=fold), tsnb.attach(fold=fold, held_out=True)
    taken = []
    for _ in range(epochs):
        taken.append([n for batch in images for n in batch["label"].tolist()])
        tsnb.log(last=float(taken[-1][-1]))
    validated = [n for batch in held for n in batch["label"].tolist()]
    tsnb.log(mean=sum(validated) / len(validated))
    return {"taken": taken, "validated": validated, "epochs": (images.epoch, held.epoch), **surroundings()}


def spin() -> None:
    """Go on until somebody ends it."""
    print(BEGUN)
    try:
        while True:
            time.sleep(0.01)
    finally:
        print(ENDED)


def fail() -> None:
    """Raise."""
    raise ZeroDivisionError("nothing to divide by")
