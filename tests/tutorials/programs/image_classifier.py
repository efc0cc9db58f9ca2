"""An image classifier, in the shape of PyTorch's quickstart: its functions ask the loader for the dataset."""

import json

import torch
from seen import Seen
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset

seen = Seen()


class Digits(Dataset):
    """Small pictures of digits: the first 1,500 to train, the others to test."""

    def __init__(self, train):
        rows = slice(None, 1500) if train else slice(1500, None)
        self.data, self.targets = load_digits().images[rows] / 16, load_digits().target[rows]
        self.classes = [str(digit) for digit in range(10)]

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return torch.tensor(self.data[index], dtype=torch.float32).unsqueeze(0), int(self.targets[index])


def make_loader():
    return DataLoader(
        Digits(train=True), batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(0)
    )


def train_loop(loader, model, loss_fn, optimizer):
    size = len(loader.dataset)
    model.train()
    for batch, (images, labels) in enumerate(loader):
        seen([images, labels])
        loss = loss_fn(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if batch % 10 == 0:
            print(f"loss: {loss.item():>7f}  [{batch * loader.batch_size + len(images):>5d}/{size:>5d}]")
    return loss.item()


def test_loop(loader, model):
    size, correct = len(loader.dataset), 0
    model.eval()
    with torch.no_grad():
        for images, labels in loader:
            correct += (model(images).argmax(1) == labels).sum().item()
    return correct / size


def train(lr):
    torch.manual_seed(0)
    loader = make_loader()
    test_loader = DataLoader(Digits(train=False), batch_size=64)
    classes = len(loader.dataset.classes)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for epoch in range(3):
        loss = train_loop(loader, model, nn.CrossEntropyLoss(), optimizer)
        accuracy = test_loop(test_loader, model)
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.4f}")
    return {"loss": loss, "accuracy": accuracy, "size": len(loader.dataset), "seen": seen.digest()}


if __name__ == "__main__":
    for lr in (0.1, 0.025):
        print(json.dumps({"lr": lr, **train(lr)}))
