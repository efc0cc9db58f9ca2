"""An object detector, in the shape of torchvision's tutorial: a batch is a list of images of several sizes."""

import json

import torch
from seen import Seen
from torch import nn
from torch.utils.data import DataLoader, Dataset

seen = Seen()


class Squares(Dataset):
    """A bright square on a dark picture, and where it is."""

    def __len__(self):
        return 90

    def __getitem__(self, index):
        random = torch.Generator().manual_seed(index)
        height, width = torch.randint(24, 40, (2,), generator=random).tolist()
        x, y, side = torch.randint(4, 12, (3,), generator=random).tolist()
        image = torch.rand(3, height, width, generator=random) / 4
        image[:, y : y + side, x : x + side] += 0.75
        boxes = torch.tensor([[x, y, x + side, y + side]], dtype=torch.float32)
        return image, {"boxes": boxes, "labels": torch.tensor([1]), "image_id": index}


def collate(batch):
    images, targets = zip(*batch)
    return list(images), list(targets)


def make_loader():
    random = torch.Generator().manual_seed(0)
    return DataLoader(Squares(), batch_size=4, shuffle=True, collate_fn=collate, generator=random)


class Detector(nn.Module):
    """Takes a list of images, and gives a box for each."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 5), nn.ReLU(), nn.AdaptiveAvgPool2d(6), nn.Flatten())
        self.head = nn.Linear(8 * 36, 4)

    def forward(self, images, targets):
        boxes = torch.cat([self.head(self.body(image[None])) for image in images])
        wanted = torch.cat([target["boxes"] for target in targets])
        return {"loss_box": nn.functional.smooth_l1_loss(boxes, wanted)}


def train(lr):
    torch.manual_seed(0)
    loader = make_loader()
    model = Detector()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for epoch in range(3):
        images_seen = 0
        for images, targets in loader:
            seen([images, targets])
            loss = sum(model(images, targets).values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            images_seen += len(images)
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    return {"loss": loss.item(), "images": images_seen, "seen": seen.digest()}


if __name__ == "__main__":
    for lr in (0.01, 0.0025):
        print(json.dumps({"lr": lr, **train(lr)}))
