"""What benchmarks.balance trains: three residual networks whose steps cost about 1 : 6 : 20, on shrunken photos."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import torch
from torch import nn

from benchmarks.sharing.workloads import Samples, Workload, photos

__all__ = ["BATCH", "MODELS", "PHOTOS"]

BATCH = 8


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])
        self.around = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Args: images: float32 [batch, before, H, W]."""
        inner = torch.relu(self.norms[0](self.first(images)))
        return torch.relu(self.norms[1](self.second(inner)) + self.around(images))


def resnet(depth: int, width: int) -> nn.Module:
    """Return a residual network for images of 32x32: four stages of `depth` blocks."""
    stages: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1)]
    before = width
    for stage in range(4):
        after = width << stage
        blocks = [
            Block(before if k == 0 else after, after, 2 if stage and not k else 1) for k in range(depth)
        ]
        stages, before = [*stages, *blocks], after
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 2))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "resnet10-w16": lambda: resnet(1, 16),
    "resnet18-w32": lambda: resnet(2, 32),
    "resnet18-w64": lambda: resnet(2, 64),
}


def _small_photos() -> Samples:
    """Decode, crop, flip, and shrink to 32x32."""
    import numpy as np
    from PIL import Image

    files = photos()

    def get(index: int) -> tuple[torch.Tensor, int]:
        top, left, flip = (int(torch.randint(bound, ())) for bound in (32, 32, 2))
        photo = Image.open(BytesIO(files[index % len(files)])).convert("RGB")
        small = np.asarray(photo.crop((left, top, left + 224, top + 224)).resize((32, 32)))
        pixels = torch.from_numpy(np.array(small[:, ::-1] if flip else small))
        return pixels.permute(2, 0, 1).float().div_(255), index % 2

    return Samples(get)


PHOTOS = Workload("photos-32", BATCH, BATCH * 3 * 32 * 32 * 4, True, _small_photos)
