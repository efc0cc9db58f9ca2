"""A net of skorch, fitted like an estimator of scikit-learn: its training iterator is an argument."""

import json

import torch
from blobs import blobs
from seen import Seen
from skorch import NeuralNetClassifier
from torch import nn
from torch.utils.data import DataLoader

seen = Seen()


def make_loader(dataset=None, **options):
    random = torch.Generator().manual_seed(0)
    return DataLoader(blobs(640), batch_size=32, shuffle=True, generator=random)


class Network(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, images):
        if self.training:
            seen(images)
        return self.layers(images)


def train(lr):
    torch.manual_seed(0)
    net = NeuralNetClassifier(
        Network,
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.SGD,
        lr=lr,
        max_epochs=3,
        train_split=None,
        classes=list(range(10)),
        iterator_train=make_loader,
        callbacks=[],
        verbose=0,
    )
    net.fit(blobs(640), y=None)
    points, labels = blobs(320, seed=1).tensors
    correct = (net.predict(points) == labels.numpy()).mean()
    return {"loss": net.history[-1, "train_loss"], "accuracy": float(correct), "seen": seen.digest()}


if __name__ == "__main__":
    for lr in (0.1, 0.025):
        print(json.dumps({"lr": lr, **train(lr)}))
