"""What each sample of the soak is, and the error of one that is not."""

from __future__ import annotations

import torch

__all__ = ["SAMPLES", "Loss", "contents"]

SAMPLES = 3000

_BASE = torch.randint(
    0, 256, (SAMPLES, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
)


def contents(numbers: torch.Tensor, epoch: int) -> torch.Tensor:
    """Return the samples' images in an epoch: uint8 [batch, 3, 16, 16]; no two epochs agree in a byte."""
    return _BASE[numbers % SAMPLES] ^ ((epoch % 255) + 1)


class Loss(Exception):
    """A sample was lost, doubled, out of order or changed."""
