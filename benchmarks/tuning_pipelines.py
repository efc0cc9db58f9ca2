"""The five pipelines of `benchmarks.tuning`: what costs time in each, and what does not get faster by more workers."""

from __future__ import annotations

import fcntl
import io
import random
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import Dataset

__all__ = ["PIPELINES", "Pipeline"]

SAMPLES = 1 << 19
"""An epoch lasts longer than all measurements of it: workers are started anew for each, which takes some 0.2 s."""


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
        self.kept.append(b"\x01" * 60_000)
        return torch.zeros(16)

    def _read(self, _index: int) -> torch.Tensor:
        place = self.gate / str(random.Random().randrange(2))  # two reads at a time; no draw of the data's
        with place.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(0.002)
        return torch.zeros(16)


PIPELINES = ("jpeg", "tiny", "uneven", "leaking", "read")


def _jpeg() -> bytes:
    noise = torch.randint(0, 255, (24, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    picture = Image.frombytes("RGB", (32, 24), bytes(noise.flatten().tolist())).resize((512, 384))
    file = io.BytesIO()
    picture.save(file, "JPEG")
    return file.getvalue()
