"""Networks in the shape of ResNet-18 and ResNet-50, and images to train them on; neither is downloaded."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

__all__ = ["Images", "model"]


class Block(nn.Module):
    """A residual block: two convolutions, or a bottleneck of three."""

    def __init__(self, inside: int, width: int, stride: int, deep: bool) -> None:
        super().__init__()
        out = width * 4 if deep else width
        shape = [(inside, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1)]
        if not deep:
            shape = [(inside, width, 3, stride), (width, width, 3, 1)]
        layers: list[nn.Module] = []
        for a, b, size, step in shape:
            layers += [
                nn.Conv2d(a, b, size, step, size // 2, bias=False),
                nn.BatchNorm2d(b),
                nn.ReLU(inplace=True),
            ]
        self.way = nn.Sequential(*layers[:-1])
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inside != out:
            self.short = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return what the block makes of images [batch, channels, H, W]."""
        return torch.relu(self.way(images) + self.short(images))


def model(name: str) -> nn.Module:
    """Return a network of ResNet's shape: resnet18, resnet50, or tiny for a look whether all of this runs."""
    depths = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3), "tiny": (1,)}[name]
    deep = name == "resnet50"
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
    ]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inside = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for place in range(depth):
            layers.append(Block(inside, width, 2 if stage and not place else 1, deep))
            inside = width * 4 if deep else width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))


class Images(Dataset[Any]):
    """Images from memory, augmented as for ImageNet but for the decoding.

    Args:
        size: Pixels of a side after the crop.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        side = size * 8 // 7
        self.pool = torch.randint(0, 256, (64, 3, side, side), dtype=torch.uint8)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = self.pool[index % 64]
        top, left = torch.randint(0, image.shape[1] - self.size + 1, (2,)).tolist()
        image = image[:, top : top + self.size, left : left + self.size]
        if index % 2:
            image = image.flip(2)
        return image.float().div_(255).sub_(0.45).div_(0.225), index % 1000
