"""Data of several programs: points in 64 dimensions around ten centres, one for each class."""

import torch
from torch.utils.data import TensorDataset

__all__ = ["blobs"]


def blobs(count, seed=0):
    """Return so many points, with their classes."""
    random = torch.Generator().manual_seed(seed)
    centres = torch.rand(10, 64, generator=torch.Generator().manual_seed(99))
    labels = torch.randint(10, (count,), generator=random)
    return TensorDataset(centres[labels] + torch.randn(count, 64, generator=random) / 4, labels)
