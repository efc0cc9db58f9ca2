"""The data of `regression.py`: points of noisy curves."""

import torch
from torch.utils.data import Dataset

__all__ = ["Curves"]


class Curves(Dataset):
    """Sample i: eight numbers, and the height of a curve there."""

    def __len__(self):
        return 200

    def __getitem__(self, index):
        points = torch.rand(8, generator=torch.Generator().manual_seed(index))
        return points, torch.sin(points.sum())
